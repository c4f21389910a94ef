"""A rank of the suite of clocks: rank 0 prints what was found as JSON.

tries COUNT DELAY_NS question|answer AHEAD_S   ranks 0 and 1 compare clocks that lie, and rank 2
                                               passes on what they send, one way later
drift SECONDS AHEAD_S                          a clock that drifts, in one row of so long
cost                                           as many clocks as ranks
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from tcpx_mpi import world as mpi
from tcpx_mpi.clock.source import ClockSource
from tcpx_mpi.run.common_clock import CommonClock

DAY_NS = 86_400_000_000_000
PATIENCE_S = 300.0
_MORE, _OVER = 1, 2
_TAG = 7


@dataclass
class Lying:
    """A clock that is ahead of the first node's and drifts; `kernel_ns`: as the kernel has it."""

    kernel_ns: int = 0
    ahead_ns: int = 0
    ppm: float = 0.0
    since_ns: int = 0

    def of(self, true_ns: int) -> int:
        return true_ns + self.ahead_ns + round(self.ppm * 1e-6 * (true_ns - self.since_ns))

    def true_of(self, told_ns: int) -> int:
        since = told_ns - self.ahead_ns - self.since_ns
        return self.since_ns + round(since / (1 + self.ppm * 1e-6))

    def now_ns(self) -> int:
        return self.of(time.monotonic_ns() - self.kernel_ns)

    def suspended_ns(self) -> int:
        return 0


class ByRelay:
    """Of a world what compares clocks, between two ranks whose messages a third one passes on."""

    size = 2

    def __init__(self, comm: MPI.Comm) -> None:
        self.rank = comm.rank
        self._comm = comm
        self._both = comm.Split(0 if comm.rank < self.size else 1)

    def ask(
        self, peer: int, more: bool, now_ns: Callable[[], int], what: str, patience_s: float | None
    ) -> tuple[int, int, int]:
        said = np.empty(1, np.int64)
        asked = now_ns()
        self._comm.Send(np.array([more * _MORE], np.int64), 2, _TAG)
        self._comm.Recv(said, 2, _TAG)
        return asked, int(said[0]), now_ns()

    def answer(
        self, peer: int, now_ns: Callable[[], int], what: str, patience_s: float | None
    ) -> bool:
        question = np.empty(1, np.int64)
        self._comm.Recv(question, 2, _TAG)
        self._comm.Send(np.array([now_ns()], np.int64), 2, _TAG)
        return bool(question[0])

    def allgather(
        self, value: object, what: str, patience_s: float | None, while_alive: bool = False
    ) -> list[Any]:
        return self._both.allgather(value)

    def end(self) -> None:
        """The relay's, too."""
        if self.rank == 0:
            self._comm.Send(np.array([_OVER], np.int64), 2, _TAG)


def relay(comm: MPI.Comm, delays_ns: tuple[int, int]) -> None:
    """Passes questions from rank 0 to 1 and answers back, each so much later."""
    comm.Split(1)
    message = np.empty(1, np.int64)
    while True:
        for source, delay_ns in enumerate(delays_ns):
            comm.Recv(message, source, _TAG)
            if source == 0 and message[0] == _OVER:
                return
            until = time.monotonic_ns() + delay_ns
            while time.monotonic_ns() < until:
                os.sched_yield()
            comm.Send(message, 1 - source, _TAG)


def tries(count: int, delay_ns: int, way: str, ahead_s: int) -> dict[str, Any] | None:
    comm = MPI.COMM_WORLD
    began = comm.bcast(time.monotonic_ns())
    if comm.rank == 2:
        relay(comm, (delay_ns, 0) if way == "question" else (0, delay_ns))
        return None
    world = ByRelay(comm)
    kernel_ns = ahead_s * 10**9 * comm.rank
    assert abs(time.monotonic_ns() - kernel_ns - began) < 60e9, "no time namespace"
    rng = np.random.default_rng(delay_ns + len(way))
    errors, bounds = [], []
    for _ in range(count):
        aheads, ppms = rng.integers(-9 * DAY_NS, 9 * DAY_NS, 2), rng.uniform(-90, 90, 2)
        clocks = [
            Lying(kernel_ns, int(ahead), ppm, began)
            for ahead, ppm in zip(aheads, ppms, strict=True)
        ]
        found = _row(world, clocks[comm.rank])
        for knot in found.tree.edges[1].knots:
            true_ns = clocks[1].true_of(knot.at_ns)
            errors.append(abs(knot.offset_ns - (knot.at_ns - clocks[0].of(true_ns))))
            bounds.append(knot.bound_ns)
    world.end()
    within = sum(error <= bound for error, bound in zip(errors, bounds, strict=True))
    errors_us, bounds_us = ([min(each) / 1e3, max(each) / 1e3] for each in (errors, bounds))
    return {"knots": len(errors), "within": within, "error_us": errors_us, "bound_us": bounds_us}


def _row(world: Any, source: ClockSource) -> Any:
    clock = CommonClock(world, ["0", "1"], source, lambda: None)
    clock.begin_row(PATIENCE_S)
    return clock.end_row(PATIENCE_S)


def drift(seconds: float, ahead_s: int) -> dict[str, Any]:
    world = mpi.start(lambda: 0, os.environ)
    began = MPI.COMM_WORLD.bcast(time.monotonic_ns())
    clocks = [Lying(since_ns=began), Lying(ahead_s * 10**9, DAY_NS, 50.0, began)]
    source = clocks[world.rank]
    clock = CommonClock(world, ["0", "1"], source, lambda: None)
    clock.begin_row(PATIENCE_S)
    starts = []
    going = True
    while going:
        starts.append(clock.agreed_start(500_000, "start", PATIENCE_S))
        while source.now_ns() < starts[-1]:
            os.sched_yield()
        over = source.true_of(source.now_ns()) - began > seconds * 1e9
        going = not any(world.allgather(over, "over", PATIENCE_S))
    ended = MPI.COMM_WORLD.bcast(time.monotonic_ns())
    found = clock.end_row(PATIENCE_S)
    assert found is not None
    truth = np.linspace(began + 10**9, ended, 1000).astype(np.int64)
    told = found.tree.to_common(1, np.array([clocks[1].of(int(at)) for at in truth]))
    # When the ranks began what they had agreed on, by the true time.
    both = world.allgather([source.true_of(at) for at in starts], "starts", PATIENCE_S)
    (fit,) = found.fits
    return {"drift_ppm": fit.drift_ppm, "moved_us": fit.moved_ns / 1e3,
            "bound_us": fit.bound_ns / 1e3, "error_us": float(np.abs(told - truth).max()) / 1e3,
            "knots": len(found.tree.edges[1].knots),
            "starts": len(starts), "apart_us": float(np.abs(np.subtract(*both)).max()) / 1e3,
            "seconds": (ended - began) / 1e9}  # fmt: skip


def cost() -> dict[str, Any]:
    world = mpi.start(lambda: 0, os.environ)
    clock = CommonClock(world, [str(rank) for rank in range(world.size)], Lying(), lambda: None)
    took, worked = [], []
    for step in (clock.begin_row, clock.end_row, clock.end_row):
        world.barrier("step", PATIENCE_S)
        began, before = time.monotonic(), time.process_time()
        found = step(PATIENCE_S)
        own = time.monotonic() - began, time.process_time() - before
        of_ranks = world.allgather(own, "took", PATIENCE_S)
        took.append(max(wall for wall, _ in of_ranks))
        worked.append([cpu for _, cpu in of_ranks])
    assert found is not None
    return {"clocks": world.size, "took_s": took, "cpu_s_of_a_rank": [max(each) for each in worked],
            "cpu_s_of_all": [sum(each) for each in worked], "bound_us": found.bound_ns / 1e3,
            "trips": np.bincount(found.trips[:, 0]).tolist()}  # fmt: skip


def main(what: str, *given: str) -> None:
    if what == "tries":
        count, delay_ns, way, ahead_s = given
        found = tries(int(count), int(delay_ns), way, int(ahead_s))
    elif what == "drift":
        seconds, ahead_s = given
        found = drift(float(seconds), int(ahead_s))
    else:
        found = cost()
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
