"""The whole size from at most one rank and to at most one, at the same time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from tcpx_mpi.patterns.program import one_block
from tcpx_mpi.schedule.builder import ScheduleBuilder
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.promise import Expected
from tcpx_mpi.schedule.table import Layout, Schedule, make_layout

#: (rank, world) -> who sends to it, and to whom it sends; None: nobody.
Ends = Callable[[int, int], tuple[int | None, int | None]]


def one_to_one(name: str, ends: Ends, **more: Any) -> Pattern:
    """The pattern; `more` are fields of it."""

    def schedule(rank: int, world: int) -> Schedule:
        source, target = ends(rank, world)
        steps = ScheduleBuilder()
        if source is not None:
            steps.receive(source, 0)
        if target is not None:
            steps.send(target, 0)
        return steps.build()

    def layout(rank: int, world: int, size_bytes: int) -> Layout:
        source, target = ends(rank, world)
        whole = one_block(size_bytes)
        return make_layout(
            send=None if target is None else whole, recv=None if source is None else whole
        )

    def expected(rank: int, world: int) -> Expected:
        source, _ = ends(rank, world)
        return Expected.of_rows([] if source is None else [(0, source, 0)])

    return Pattern(name=name, schedule=schedule, layout=layout, expected=expected, **more)


def by_distance(distance: int) -> Ends:
    """Everybody to the rank so far behind it."""
    return lambda rank, world: ((rank - distance) % world, (rank + distance) % world)


def to_and_from_all(name: str, **more: Any) -> Pattern:
    """A pattern of rounds as a whole: it has the peers of all of them, and is never run."""

    def schedule(rank: int, world: int) -> Schedule:
        steps = ScheduleBuilder()
        for other in range(world):
            if other != rank:
                steps.receive(other, 0)
                steps.send(other, 0)
        return steps.build()

    ring = one_to_one(name, by_distance(1), **more)
    return dataclasses.replace(ring, schedule=schedule)
