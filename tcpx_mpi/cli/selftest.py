"""`tcpx-mpi selftest`: what the tool costs, how quiet the machine is, and its ceilings."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from tcpx_mpi.cli.help import CommandWithExamples
from tcpx_mpi.config.options import OPTIONS
from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import TcpxError
from tcpx_mpi.launch.launcher_rank import under_launcher
from tcpx_mpi.patterns import ROUND_TRIP, STREAM
from tcpx_mpi.run import admission
from tcpx_mpi.run.start import start_ranks

if TYPE_CHECKING:
    from tcpx_mpi.baselines import Connection

_EXAMPLES = (
    "tcpx-mpi selftest",
    "mpirun -n 4 tcpx-mpi selftest --output selftest.json",
    "mpirun -n 2 --hostfile HOSTS tcpx-mpi selftest --ceilings --interface eth1",
)
_NAMES = ("stall_timeout", "connect_timeout", "setup_timeout", "ranks")
_DEFAULT_RANKS = 2
_FIXED = {"hdf5": "none", "against": "raw", "check": "1", "plugin": "none"}
#: Blocks of 10 to 50 ms each.
_STREAM = {**_FIXED, "pattern": STREAM, "sizes": "1M", "iters": "1600", "warmup_iters": "100"}
_MEASURED = (
    _STREAM,
    {**_STREAM, "check": "0"},
    {**_STREAM, "sizes": "64M", "iters": "32", "warmup_iters": "4"},
    {**_FIXED, "pattern": ROUND_TRIP, "sizes": "8", "iters": "16000", "warmup_iters": "1000"},
)


@click.pass_context
def _callback(
    ctx: click.Context,
    /,
    interface: str | None,
    congestion: str | None,
    ceilings: bool,
    output: str | None,
    **values: str | None,
) -> int:
    """As a rank under a launcher, or as the parent that starts mpirun, 2 ranks unless asked."""
    arguments: list[str] = ctx.obj
    rank = under_launcher(os.environ)
    if rank is None:
        asked = _settings(values, os.environ)[0]
        ranks = asked.ranks or _DEFAULT_RANKS
        admission.admit_parent(asked, os.environ, ranks, admission.SELFTEST)
        return start_ranks(asked, ranks, arguments)
    first: Settings | TcpxError
    more: list[Settings] = []
    try:
        settings, *more = _settings(values, os.environ)
        first = admission.admit_rank(settings, os.environ, rank, admission.SELFTEST)
    except TcpxError as error:
        first = error
    from tcpx_mpi.run.selftest import SelfTest  # MPI and numpy
    from tcpx_mpi.run.story import run_rank

    connection = _connection_of(interface, congestion)
    story = functools.partial(
        SelfTest, connection=connection, more=more, path=output, only_ceilings=ceilings
    )
    return run_rank(first, ["tcpx-mpi", *arguments], story)


def _settings(values: Mapping[str, str | None], environ: Mapping[str, str]) -> list[Settings]:
    """The settings by which streams and round trips are measured."""
    return [admission.read_settings({**values, **fixed}, environ) for fixed in _MEASURED]


def _connection_of(interface: str | None, congestion: str | None) -> Connection:
    """The connection of plain TCP: the usual congestion control if none is asked for, or the
    kernel's own if this user may not have that."""
    from tcpx_mpi.baselines import Connection
    from tcpx_mpi.machine.congestion import DEFAULT, USUAL, refusal_of
    from tcpx_mpi.run.ceiling import default_interface

    note = ""
    if congestion is None:
        refusal = refusal_of(USUAL)
        congestion = DEFAULT if refusal else USUAL
        note = f"{refusal.cause}; for it {refusal.remedy}" if refusal else ""
    name = "" if congestion == DEFAULT else congestion
    return Connection(interface or default_interface(), name, streams=1, congestion_note=note)


command = CommandWithExamples(
    "selftest",
    examples=_EXAMPLES,
    params=[
        click.Option(
            ["--interface"],
            metavar="NAME",
            help="Network interface to use [the first that is up, loopback last].",
        ),
        click.Option(
            ["--congestion"],
            metavar="NAME|default",
            help="TCP congestion control; default: the kernel's own [cubic, if this user may].",
        ),
        click.Option(["--ceilings"], is_flag=True, help="Only the ceilings."),
        click.Option(
            ["--output"],
            type=click.Path(),
            metavar="FILE.json",
            help="Keep all figures, to lie beside results. A file that exists is kept.",
        ),
        *(
            click.Option(
                [option.name, *option.flags], metavar=option.metavar, help=f"{option.help}."
            )
            for option in OPTIONS
            if option.name in _NAMES
        ),
    ],
    callback=_callback,
    options_metavar="[OPTIONS]",
    help="Measures this tool and how quiet this machine is: the clock, the engine's cost a chunk, "
    "barrier skew, interruptions, noise, steal. Then its ceilings, without any plugin: memory "
    "copies, the clock, plain TCP streams and round trips between 2 ranks (or as many as mpirun "
    "starts), with a check of every byte.",
)
