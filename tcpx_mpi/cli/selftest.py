"""`tcpx-mpi selftest`: what the tool costs, how quiet the machine is, and its ceilings."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from tcpx_mpi.cli.ceiling import MachineCommand, StoryMaker, link_of, parameters, run_stories

if TYPE_CHECKING:
    from tcpx_mpi.run.selftest import SelfTest


class _SelfTestCommand(MachineCommand):
    examples = (
        "tcpx-mpi selftest",
        "mpirun -n 4 tcpx-mpi selftest --output selftest.json",
    )


@click.pass_context
def _callback(
    ctx: click.Context,
    /,
    interface: str | None,
    congestion: str | None,
    output: str | None,
    **values: str | None,
) -> int:
    return run_stories(ctx.obj, _story(interface, congestion, output), values)


def _story(interface: str | None, congestion: str | None, output: str | None) -> StoryMaker:
    def story() -> Callable[..., SelfTest]:
        from tcpx_mpi.run.selftest import SelfTest

        return functools.partial(SelfTest, link=link_of(interface, congestion), path=output)

    return story


command = _SelfTestCommand(
    "selftest",
    params=[
        *parameters(),
        click.Option(
            ["--output"],
            type=click.Path(),
            metavar="FILE.json",
            help="Keep all figures, to lie beside results. A file that exists is kept.",
        ),
    ],
    callback=_callback,
    options_metavar="[OPTIONS]",
    help="Measures this tool and how quiet this machine is: the clock, the engine's cost a chunk, "
    "barrier skew, interruptions, noise, steal; then the ceilings of `tcpx-mpi ceiling`.",
)
