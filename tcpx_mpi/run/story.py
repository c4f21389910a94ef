"""The frame of a story on one rank, and its report when the story ends early.

A story is a run, a smoke test or a selftest. Stories have parts in common by what
they call (`tcpx_mpi.run.connect`, `agreement`, `measure`), none is made out of another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Protocol

from tcpx_mpi import _native
from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import TcpxError
from tcpx_mpi.records import Journal
from tcpx_mpi.run import agreement, failure
from tcpx_mpi.run.hanging_call import telling_of_calls_that_hang
from tcpx_mpi.run.hanging_disk import HANGING_DISK_S, within
from tcpx_mpi.run.measure import Measurement
from tcpx_mpi.run.recorder import Output
from tcpx_mpi.world import Alarm, World


class RunState:
    """The state of a story on its rank: `run_rank` reports it and puts it away."""

    def __init__(self, world: World, argv: Sequence[str]) -> None:
        self.world, self.argv = world, list(argv)
        self.output = Output(active=world.rank == 0)
        self.journal: Journal | None = None
        self.measurement: Measurement | None = None
        #: Whether accepts of the plugin wait for a manager.
        self.needs_manager = False

    def report(self) -> tuple[str, ...]:
        """The state of this rank's requests."""
        return self.measurement.report() if self.measurement is not None else ()


class Story(Protocol):
    """Every method that says so is collective."""

    def run(self, parsed: Settings | TcpxError) -> int:
        """Collective: the story, top to bottom; returns the exit code."""


def run_rank(
    parsed: Settings | TcpxError, argv: Sequence[str], make: Callable[[RunState], Story]
) -> int:
    """Collective: a whole story on this rank; returns its exit code, the same on all ranks."""
    _native.install_signal_handlers()
    world = agreement.start_world(parsed, os.environ)
    state = RunState(world, argv)
    with telling_of_calls_that_hang(world, state.output, lambda: state.needs_manager):
        try:
            code = make(state).run(parsed)
        except (TcpxError, Alarm, _native.Interrupt) as error:
            if state.journal is not None:
                within(HANGING_DISK_S, state.journal.put_away)
            code = failure.end(world, state.output, error, state.report())
        _native.watch_ending(code)  # MPI_Finalize is to come
    return code
