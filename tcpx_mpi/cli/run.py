"""`tcpx-mpi run PATTERN`: as a rank under a launcher, or as the parent that starts mpirun."""

from __future__ import annotations

import datetime
import os
from collections.abc import Collection, Iterable, Mapping, Sequence

import click

from tcpx_mpi import patterns
from tcpx_mpi.cli import smoke
from tcpx_mpi.cli.complete import complete_pattern, completions
from tcpx_mpi.cli.help import (
    ALL,
    HELP_NAMES,
    write_examples,
    write_exit_codes,
    write_options,
    write_used_options,
)
from tcpx_mpi.config.file import PATTERN, read_config
from tcpx_mpi.config.option import VARIABLES_ONLY, Option
from tcpx_mpi.config.options import IGNORED, OPTIONS
from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import TcpxError, UsageError
from tcpx_mpi.launch import mpirun
from tcpx_mpi.launch.launcher_rank import under_launcher
from tcpx_mpi.run import admission, series
from tcpx_mpi.run.start import environment_of_ranks, start_ranks

_EXAMPLES = (
    "tcpx-mpi run ring --ranks 4",
    "tcpx-mpi run ring --ranks 4 --against raw,mpi --hdf5 ring.h5",
    "mpirun -n 2 tcpx-mpi run pair -b 1K -e 1G -f 2 -n 50 -w 5",
    "mpirun -n 16 --hostfile HOSTS tcpx-mpi run mesh --plugin tcpx --channels 4",
    "mpirun -n 2 tcpx-mpi run smoke --plugin tcpx -v",
)


def bare_flags(options: Iterable[Option]) -> set[str]:
    """The flags of options that may stand without a value."""
    return {flag for option in options if option.may_be_bare for flag in option.flags}


_OPTIONS = [option for option in OPTIONS if option.group != VARIABLES_ONLY]
_NAMES = {"pattern", *(option.name for option in _OPTIONS)}
#: Options that may stand without a value, which then is 1.
_MAY_BE_BARE = bare_flags(_OPTIONS)


class _RunCommand(click.Command):
    """Options by the table of options, help by its groups."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        refuse_mpiruns(args)
        rest = super().parse_args(ctx, with_bare_values(args, _MAY_BE_BARE))
        if ctx.args and not ctx.resilient_parsing:
            raise click.UsageError(_of_a_word_too_many(ctx.args[0], ctx.params))
        return rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        in_full = ctx.meta.get(ALL)
        if not in_full:
            write_used_options(formatter)
            write_examples(formatter, _EXAMPLES)
        with formatter.section("Patterns"):
            if in_full:
                formatter.write_dl(list(patterns.offered().items()))
            else:
                names = ", ".join(patterns.offered())
                formatter.write_text(f"{names} (--help-all: what each does)")
        if in_full:
            with formatter.section(f"Of {patterns.SMOKE} alone"):
                formatter.write_dl(smoke.HELP)
            write_options(formatter)
            write_examples(formatter, _EXAMPLES)
        write_exit_codes(formatter)


def refuse_mpiruns(args: Sequence[str]) -> None:
    """Raises click.UsageError if an option is mpirun's; ours would take some for another."""
    for position, word in enumerate(args):
        name = word.partition("=")[0]
        if name in mpirun.OPTIONS_OF_MPIRUN:
            value = next(iter(args[position + 1 : position + 2]), "N")
            here = f"give --ranks {value} here, or " if name in mpirun.NUMBER_OF_RANKS else ""
            of_mpirun = f"{word} {value}" if here else f"{word} ..."
            raise click.UsageError(
                f"{name} is an option of mpirun: {here}start it by "
                f"`mpirun {of_mpirun} tcpx-mpi run PATTERN`"
            )


def _of_a_word_too_many(word: str, params: Mapping[str, object]) -> str:
    pattern = params.get("pattern")
    if word in patterns.offered() or word.removesuffix("_perf") in patterns.PROGRAMS:
        return f"{word} is a second pattern beside {pattern}: give each a run of its own"
    if not word[:1].isdigit():
        return f"{word} is no option: a run takes one pattern and options, each with its name"
    return f"{word} is no option: sizes are given by --sizes {word}, or -b and -e, ranks by --ranks"


def with_bare_values(args: Sequence[str], bare: Collection[str] = _MAY_BE_BARE) -> list[str]:
    """Gives `-I` and its like, `bare`, the 1 that they mean where no 0 or 1 follows."""
    complete: list[str] = []
    for position, word in enumerate(args):
        complete.append(word)
        if word in bare and args[position + 1 : position + 2] not in (["0"], ["1"]):
            complete.append("1")
    return complete


@click.pass_context
def _callback(ctx: click.Context, /, payload_bytes: str | None, **values: str | None) -> int:
    arguments: list[str] = ctx.obj
    ignored = [flag for flag in IGNORED if values.pop(f"ignored{flag[1:]}") is not None]
    rank = under_launcher(os.environ)
    if rank is None:
        return _as_parent(_settings(values, payload_bytes, ignored), arguments)
    try:
        settings = _settings(values, payload_bytes, ignored)
        settings = series.part_of_series(settings, os.environ)
        settings = admission.admit_rank(settings, os.environ, rank, _needs(settings))
    except TcpxError as error:
        return _as_rank(error, arguments, values["pattern"])
    if rank.rank == 0 and settings.launch <= 1:
        admission.warn(ignored, settings)
    return _as_rank(settings, arguments, settings.pattern)


def _settings(
    values: Mapping[str, str | None], payload_bytes: str | None, ignored: Sequence[str]
) -> Settings:
    if _pattern_asked(values) == patterns.SMOKE:
        smoke.refuse_useless(values, ignored)
        return smoke.settings_of(values, payload_bytes, os.environ)
    if payload_bytes is not None:
        raise UsageError(
            f"--payload-bytes ({payload_bytes}) is of {patterns.SMOKE} alone: use --sizes"
        )
    return admission.read_settings(values, os.environ)


def _pattern_asked(values: Mapping[str, str | None]) -> object:
    """The pattern of the command line, else of the file of --config."""
    if values["pattern"] is None and values["config"] is not None:
        return read_config(values["config"]).get(PATTERN)
    return values["pattern"]


def _needs(settings: Settings) -> admission.Needs:
    return admission.SMOKE if settings.pattern == patterns.SMOKE else admission.RUN


def refuse(error: UsageError, arguments: list[str]) -> int:
    """Refuses a command line that cannot be parsed; of all ranks one prints it."""
    if under_launcher(os.environ) is None:
        raise error
    return _as_rank(error, arguments)


def _as_rank(
    settings: Settings | TcpxError, arguments: Sequence[str], pattern: str | None = None
) -> int:
    from tcpx_mpi.run.story import run_rank  # MPI and numpy

    argv = ["tcpx-mpi", *arguments]
    if pattern == patterns.SMOKE:
        from tcpx_mpi.run.smoke import Smoke

        return run_rank(settings, argv, Smoke)
    from tcpx_mpi.run.benchmark import Benchmark

    return run_rank(settings, argv, Benchmark)


def _as_parent(settings: Settings, arguments: Sequence[str]) -> int:
    """Finds every mistake that can be found here, then starts mpirun; the ranks say the rest."""
    if settings.ranks is None:
        raise UsageError(admission.how_to_start(os.environ, settings.pattern))
    admission.admit_parent(settings, os.environ, settings.ranks, _needs(settings))
    if settings.runs == 1:
        return start_ranks(settings, settings.ranks, arguments)
    admission.refuse_series(settings)
    from tcpx_mpi.records import default_run_name

    path = settings.hdf5_path or default_run_name(settings.pattern, datetime.datetime.now())
    command = series.Command(settings, arguments, environment_of_ranks(settings, os.environ))
    return series.run_series(command, path)


def settings_of(arguments: Sequence[str], environ: Mapping[str, str]) -> Settings:
    """The admitted settings of a `run` with these arguments, which must have --ranks.

    Raises UsageError and what click raises of a bad option.
    """
    # Its --help-all is headed by this name.
    with command.make_context("tcpx-mpi run", list(arguments)) as context:
        values = {name: value for name, value in context.params.items() if name in _NAMES}
    settings = admission.read_settings(values, environ)
    if settings.ranks is None:
        raise UsageError("launches need --ranks N: each one starts mpirun")
    admission.admit_parent(settings, environ, settings.ranks, admission.RUN)
    return settings


def _help_all(ctx: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        ctx.meta[ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def _parameters() -> list[click.Parameter]:
    # All values stay text until `load_settings`, which knows their limits and their sources.
    options: list[click.Parameter] = [
        # Not required by click, so that our own line lists the patterns.
        click.Argument(
            ["pattern"], required=False, metavar="PATTERN", shell_complete=complete_pattern
        )
    ]
    options += [
        click.Option(
            [option.name, *option.flags], metavar=option.metavar, shell_complete=completions(option)
        )
        for option in _OPTIONS
    ]
    options.append(click.Option(["payload_bytes", "--payload-bytes"], metavar="SIZE"))
    options.append(
        click.Option(
            ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_help_all
        )
    )
    # -D and the like: the name must not clash with that of an option in another case.
    options += [
        click.Option([f"ignored{letter[1:]}", letter, long], hidden=True)
        for letter, long in IGNORED.items()
    ]
    return options


command = _RunCommand(
    "run",
    params=_parameters(),
    callback=_callback,
    context_settings={**HELP_NAMES, "allow_extra_args": True},
    options_metavar="[OPTIONS]",
    help="Measures PATTERN between all ranks and checks every byte.\n\n"
    "Start it under mpirun, or alone with --ranks N. A command-line option wins over an "
    "environment variable, which wins over a --config file, which wins over the default [in "
    "brackets].",
)
