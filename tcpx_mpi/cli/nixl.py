"""`tcpx-mpi nixl`: what agents of NIXL move over the backend TCPX, and over UCX beside it."""

from __future__ import annotations

import functools
import os
from dataclasses import replace
from typing import Any

import click

from tcpx_mpi.cli.help import CommandWithExamples
from tcpx_mpi.errors import TcpxError, UsageError
from tcpx_mpi.launch.launcher_rank import LauncherRank, under_launcher
from tcpx_mpi.launch.terminal import terminal_of_rank
from tcpx_mpi.patterns import ROUND_TRIP

_EXAMPLES = (
    "tcpx-mpi nixl",
    "tcpx-mpi nixl --size 4K,64M --op read --against ucx --hdf5 nixl.h5",
    "tcpx-mpi nixl --size 4000K --descriptors 1000",
    "tcpx-mpi nixl --initiators 0 --targets 1-3 --size 64K -n 1000",
    "mpirun -n 8 --hostfile HOSTS tcpx-mpi nixl --initiators 0-3 --targets 4-7 --kv llama-3.1-8b",
)
#: Of `run`, what a rank goes by while it waits for others.
_FIXED = {"pattern": ROUND_TRIP, "hdf5": "none", "plugin": "none"}


@click.command("nixl", cls=CommandWithExamples, examples=_EXAMPLES)
@click.option(
    "--initiators", metavar="RANKS",
    help="Who asks: 0-3, or 0,2; each asks all targets.  [the first half]",
)  # fmt: skip
@click.option(
    "--targets", metavar="RANKS", help="Who is asked.  [the others]",
)  # fmt: skip
@click.option("--size", metavar="SIZE[,SIZE...]", help="Bytes of a request.  [64M]")
@click.option(
    "--kv", metavar="SHAPE",
    help="In place of --size, a model's KV cache: layers,heads,dim,block,tokens, in bfloat16, or a "
    "preset: llama-3.1-8b, llama-3.1-70b, mixtral-8x7b, qwen3-235b-a22b, deepseek-v3, or with "
    "-small behind it a 32nd of the tokens.",
)  # fmt: skip
@click.option(
    "--op", "operation", type=click.Choice(["read", "write"]), default="write", show_default=True,
    help="What an initiator asks for.",
)  # fmt: skip
@click.option(
    "--memory", type=click.Choice(["dram", "vram"]), default="dram", show_default=True,
    help="On both sides; vram: of the GPUs of a node, one a rank in turn.",
)  # fmt: skip
@click.option(
    "--descriptors", type=click.IntRange(1), default=1, show_default=True,
    help="Number of blocks of a request, each with a gap behind it.",
)  # fmt: skip
@click.option(
    "--batch", type=click.IntRange(1, 1024), default=1, show_default=True,
    help="Requests that an initiator has under way with each target.",
)  # fmt: skip
@click.option(
    "--threads", type=click.IntRange(1, 64), default=1, show_default=True,
    help="Of an initiator, which share its requests.",
)  # fmt: skip
@click.option(
    "--iters", "-n", type=click.IntRange(1), default=50, show_default=True,
    help="Times that an initiator posts all its requests and waits for them, a row.",
)  # fmt: skip
@click.option(
    "--warmup", "-w", type=click.IntRange(0), default=5, show_default=True,
    help="Not timed, before each.",
)  # fmt: skip
@click.option(
    "--against", default="none", show_default=True, metavar="none|ucx|libfabric[,...]",
    help="Run the wheel's backends in turns, with UCX_TLS=tcp (and cuda_copy beside a GPU) and "
    "FI_PROVIDER=tcp unless set.",
)  # fmt: skip
@click.option("--plugin", default="", metavar="PATH", help="NCCL network plugin.  [softtcpx]")
@click.option(
    "--device", metavar="N[,N...]",
    help="Of the plugin: for one rank of a node after the other.  [TCPX_NIXL_DEVICE, or 0]",
)  # fmt: skip
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
def command(ctx: click.Context, /, **values: Any) -> int:
    """Times requests between agents of NIXL, over the backend TCPX: two on this machine, or as many
    as --initiators and --targets name; under mpirun each rank is one.

    The table, the statistics and the file are those of `run`; every received byte is checked. A
    time is an initiator's, from its post to the end that NIXL tells, with NIXL's Python in it. It
    takes NIXL: pip install 'tcpx-mpi[nixl]'.
    """
    arguments = ["tcpx-mpi", *ctx.obj]
    rank = under_launcher(os.environ)
    if rank is not None:
        return _as_rank(values, arguments, rank)
    from tcpx_mpi.nixl.story import measure_alone

    return measure_alone(_asked(**values), arguments)


def _as_rank(values: dict[str, Any], arguments: list[str], rank: LauncherRank) -> int:
    """All ranks meet, whatever is wrong with the command line, and one says it."""
    from tcpx_mpi.nixl.story import NixlStory
    from tcpx_mpi.run import admission
    from tcpx_mpi.run.story import run_rank
    from tcpx_mpi.run.terminal import screen_of_run

    try:
        asked = _asked(**values)
        settings = admission.read_settings(dict(_FIXED), os.environ)
        settings = admission.with_ranks_of_launcher(settings, rank.size)
        # Open MPI gives rank 0 a terminal of its own, whatever its output goes to.
        terminal = terminal_of_rank(os.environ)
        asked = replace(asked, screen=screen_of_run(settings, terminal, os.environ))
    except TcpxError as error:
        return run_rank(error, arguments, functools.partial(NixlStory, asked=None))
    return run_rank(settings, arguments, functools.partial(NixlStory, asked=asked))


def _asked(
    *, size: str | None, kv: str | None, operation: str, descriptors: int, iters: int, warmup: int,
    against: str, plugin: str, device: str | None, initiators: str | None, targets: str | None,
    prom_path: str | None, **same: Any,
) -> Any:  # fmt: skip
    """What is asked for, right by itself. Raises UsageError."""
    from tcpx_mpi.nixl.settings import NixlSettings, against_of, devices_of, requests_of
    from tcpx_mpi.nixl.story import Asked
    from tcpx_mpi.run.terminal import screen_here

    if plugin and plugin != "softtcpx":
        if not os.path.isfile(plugin):
            raise UsageError(f"--plugin: {plugin} is no file; give its path, or softtcpx")
        plugin = os.path.abspath(plugin)
    settings = NixlSettings(
        requests=requests_of(size, kv, operation, descriptors),
        operation=operation,
        kv=kv or "",
        iterations=iters,
        warmup_iterations=warmup,
        against=against_of(against),
        plugin=plugin,
        devices=devices_of(device),
        **same,
    )
    return Asked(settings, initiators, targets, prom_path, screen_here(os.environ))
