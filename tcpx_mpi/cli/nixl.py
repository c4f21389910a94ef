"""`tcpx-mpi nixl`: what two agents of NIXL move over the backend TCPX, and over UCX beside it."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import click

from tcpx_mpi.cli.help import write_examples, write_exit_codes
from tcpx_mpi.errors import ExitCode, LostRank, UsageError
from tcpx_mpi.units import parse_size

_EXAMPLES = (
    "tcpx-mpi nixl",
    "tcpx-mpi nixl --size 4K,64M --op read --against ucx --hdf5 nixl.h5",
    "tcpx-mpi nixl --size 4000K --descriptors 1000",
)


class _Command(click.Command):
    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_exit_codes(formatter)
        write_examples(formatter, _EXAMPLES)


def _sizes(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(parse_size(part) for part in text.split(","))
    except (UsageError, ValueError) as error:
        raise UsageError(f"--size: {error}") from None
    if min(sizes) < 1:
        raise UsageError(f"--size ({text}): a request moves at least 1 byte")
    return sizes


@click.command("nixl", cls=_Command)
@click.option(
    "--size", default="64M", show_default=True, metavar="SIZE[,SIZE...]", help="Bytes of a request."
)
@click.option(
    "--op", "operation", type=click.Choice(["read", "write"]), default="write", show_default=True,
    help="What the initiator asks for.",
)  # fmt: skip
@click.option(
    "--memory", type=click.Choice(["dram", "vram"]), default="dram", show_default=True,
    help="On both sides.",
)  # fmt: skip
@click.option(
    "--descriptors", type=click.IntRange(1), default=1, show_default=True,
    help="Number of blocks of a request, each with a gap behind it.",
)  # fmt: skip
@click.option(
    "--iters", type=click.IntRange(1), default=50, show_default=True, help="Requests a row."
)
@click.option(
    "--warmup", type=click.IntRange(0), default=5, show_default=True, help="Not timed, before each."
)
@click.option(
    "--against", type=click.Choice(["none", "ucx"]), default="none", show_default=True,
    help="Run the wheel's UCX in turns, with UCX_TLS=tcp unless that is set.",
)  # fmt: skip
@click.option("--plugin", default="", metavar="PATH", help="NCCL network plugin.  [softtcpx]")
@click.option(
    "--progress-thread/--no-progress-thread", default=True, show_default=True,
    help="NIXL's enable_prog_thread.",
)  # fmt: skip
@click.option(
    "--check/--no-check", default=True, show_default=True, help="Every byte, after each block."
)
@click.option(
    "--hdf5", default="none", show_default=True, metavar="FILE", help="Also keep all samples."
)
@click.option("--prom", "prom_path", metavar="FILE.prom", help="As for `run`.")
@click.pass_context
def command(
    ctx: click.Context, /, size: str, iters: int, warmup: int, prom_path: str | None, **values: Any
) -> int:
    """Times requests between two agents of NIXL on this machine, over the backend TCPX.

    The table, the statistics and the file are those of `run`; every received byte is checked. A
    time is the initiator's, from its post to the end that NIXL tells, with NIXL's Python in it. It
    takes NIXL: pip install 'tcpx-mpi[nixl]'.
    """
    from tcpx_mpi.exchange.prometheus import metrics_of, require_prom, write_prom
    from tcpx_mpi.nixl.measure import NixlSettings, measure, wrong_bytes
    from tcpx_mpi.records import Row, Run, require_writable
    from tcpx_mpi.report import begin_lines, end_lines, line_of, summarise_row
    from tcpx_mpi.run.terminal import screen_here

    settings = NixlSettings(
        sizes=_sizes(size), iterations=iters, warmup_iterations=warmup, **values
    )
    for each in settings.sizes:
        if each < settings.descriptors:
            raise UsageError(f"--size ({each}) is less than a byte for --descriptors "
                             f"{settings.descriptors}")  # fmt: skip
    if settings.plugin and settings.plugin != "softtcpx":
        if not os.path.isfile(settings.plugin):
            raise UsageError(f"--plugin: {settings.plugin} is no file; give its path, or softtcpx")
        settings = dataclasses.replace(settings, plugin=os.path.abspath(settings.plugin))
    if settings.hdf5 != "none":
        require_writable(settings.hdf5, "--hdf5")
    if prom_path is not None:
        require_prom(prom_path)
    screen = screen_here(os.environ, False)

    def begin(run: Run) -> None:
        print("\n".join(begin_lines(run.header, None, run.path, screen)), flush=True)

    def row_done(run: Run, row: Row) -> None:
        print(line_of(run.header, summarise_row(run.header, row), screen), flush=True)

    def lost(name: str, why: str) -> None:
        print(f"# Peer {name}: {why}", flush=True)

    run, how = measure(settings, ["tcpx-mpi", *ctx.obj], begin, row_done, lost)
    summaries = [summarise_row(run.header, row) for row in run.rows]
    files = [run.path] if run.path else []
    error = wrong_bytes(run) or (LostRank(f"{how}, after all was moved") if how else None)
    if prom_path is not None:
        code = error.exit_code if error is not None else ExitCode.OK
        files.append(write_prom(prom_path, metrics_of(run, code, summaries=summaries)))
    print("\n".join(end_lines(run, summaries, screen, files=files)))
    if error is not None:
        raise error
    return 0
