"""`tcpx-mpi smoke`: one small message each way between every two ranks, checked."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence

import click

from tcpx_mpi import patterns
from tcpx_mpi.cli.help import write_examples, write_exit_codes
from tcpx_mpi.cli.run import bare_flags, with_bare_values
from tcpx_mpi.config.options import OPTIONS
from tcpx_mpi.config.settings import Settings, load_settings
from tcpx_mpi.errors import TcpxError, UsageError
from tcpx_mpi.launch import mpirun
from tcpx_mpi.run import admission
from tcpx_mpi.run.start import start_ranks

_EXAMPLES = (
    "tcpx-mpi smoke --ranks 4",
    "mpirun -n 2 tcpx-mpi smoke --plugin tcpx -v",
)
#: The options of a run that mean something here.
_NAMES = (
    "plugin", "abi", "memory", "unpack", "channels", "chunk", "window_send", "window_recv",
    "profile", "nic", "gpu", "share_gpu", "cpus", "placement", "seed",
    "stall_timeout", "connect_timeout", "setup_timeout", "ranks",
)  # fmt: skip
_OPTIONS = [option for option in OPTIONS if option.name in _NAMES]
_MAY_BE_BARE = bare_flags(_OPTIONS)
_PAYLOAD_VARIABLE = "UCCL_TCPX_PAYLOAD_BYTES"
#: The length of `Hello from TCPX client!`, which the first tests of TCPX sent.
_PAYLOAD_BYTES = "23"


class _SmokeCommand(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_bare_values(args, _MAY_BE_BARE))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_exit_codes(formatter)
        write_examples(formatter, _EXAMPLES)


@click.pass_context
def _callback(
    ctx: click.Context, /, payload_bytes: str | None, verbose: bool, **values: str | None
) -> int:
    arguments: list[str] = ctx.obj
    rank = mpirun.under_launcher(os.environ)
    if rank is None:
        return _as_parent(values, payload_bytes, arguments)
    try:
        settings = settings_of(values, payload_bytes, os.environ)
        settings = admission.admit_rank(settings, os.environ, rank, admission.SMOKE)
    except TcpxError as error:
        return _as_rank(error, arguments, verbose)
    return _as_rank(settings, arguments, verbose)


def settings_of(
    values: Mapping[str, str | None], payload_bytes: str | None, environ: Mapping[str, str]
) -> Settings:
    """The settings: one message a pair, no output but the table. Raises UsageError."""
    text = payload_bytes
    if text is None:
        text = environ.get(_PAYLOAD_VARIABLE, "").strip() or _PAYLOAD_BYTES
    try:
        settings = load_settings({**values, **_one_message(text)}, environ)
    except UsageError as error:
        name = "--payload-bytes" if payload_bytes is not None else _PAYLOAD_VARIABLE
        raise UsageError(str(error).replace("--sizes", name)) from None
    if len(settings.sizes) != 1:
        raise UsageError(f"--payload-bytes ({text}) is not one size; write it like 23 or 4K")
    if not settings.checks():
        raise UsageError(
            "smoke checks every byte, which --unpack none (or UCCL_TCPX_UNPACK_IMPL) leaves "
            "scattered: use kernel, d2d or host"
        )
    return settings


def _one_message(size: str) -> dict[str, str]:
    return {
        "pattern": patterns.SMOKE,
        "sizes": size,
        "iters": "1",
        "warmup_iters": "0",
        "check": "1",
        "check_memory": "1",  # as few slots as there can be
        "hdf5": "none",
    }


def _as_rank(settings: Settings | TcpxError, arguments: Sequence[str], verbose: bool) -> int:
    from tcpx_mpi.run.smoke import Smoke  # MPI and numpy
    from tcpx_mpi.run.story import run_rank

    story = functools.partial(Smoke, verbose=verbose)
    return run_rank(settings, ["tcpx-mpi", *arguments], story)


def _as_parent(
    values: Mapping[str, str | None], payload_bytes: str | None, arguments: Sequence[str]
) -> int:
    """Finds every mistake that can be found here, then starts mpirun; the ranks say the rest."""
    settings = settings_of(values, payload_bytes, os.environ)
    if settings.ranks is None:
        raise UsageError(admission.how_to_start(os.environ, "smoke"))
    admission.admit_parent(settings, os.environ, settings.ranks, admission.SMOKE)
    return start_ranks(settings, settings.ranks, arguments)


def _parameters() -> list[click.Parameter]:
    options: list[click.Parameter] = [
        click.Option(
            ["payload_bytes", "--payload-bytes"],
            metavar="SIZE",
            help=f"Bytes of a message [{_PAYLOAD_BYTES}] (or {_PAYLOAD_VARIABLE}).",
        ),
        click.Option(
            ["verbose", "-v", "--verbose"],
            is_flag=True,
            help="Show the descriptors and the first bytes that the plugin delivered.",
        ),
    ]
    # Text until `load_settings`, as for a run.
    options += [
        click.Option(
            [option.name, *option.flags], metavar=option.metavar, help=_help_of(option.help)
        )
        for option in _OPTIONS
    ]
    return options


def _help_of(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


command = _SmokeCommand(
    "smoke",
    params=_parameters(),
    callback=_callback,
    options_metavar="[OPTIONS]",
    help="Sends one small message each way between every two ranks and checks every byte.\n\n"
    "Start it under mpirun, or alone with --ranks N. Options mean what they mean for `run`.",
)
