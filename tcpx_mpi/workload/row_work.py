"""What a row does on one rank: its schedule, where its payload stands, what must come out."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.records import RowFacts
from tcpx_mpi.schedule.element_group import ElementGroup
from tcpx_mpi.schedule.elements import ElementType
from tcpx_mpi.schedule.pattern import Pattern, expected_bytes, held_bytes
from tcpx_mpi.schedule.table import BufferId, Layout, Schedule
from tcpx_mpi.workload.workload import Workload

Int64s = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RowWork:
    """A row's work on this rank: out of place, or in place; alone, or under load."""

    pattern: Pattern
    schedule: Schedule
    layout: Layout
    #: Where the payload stands at the start, and what RECV must hold at the end: int64[n, 4] of
    #: offset, bytes, sender and offset in its payload.
    held: Int64s
    wanted: Int64s
    #: Of elements that are judged as such; None: bytes.
    elements: ElementGroup | None = None
    type_name: str = ""
    #: Of steps that compute: type, operation and factor, by the numbers of `schedule.elements`.
    arithmetic: tuple[int, int, float] | None = None

    @property
    def in_place(self) -> bool:
        return self.pattern.held is not None

    @property
    def payload_buffer(self) -> BufferId:
        return BufferId.RECV if self.in_place else BufferId.SEND


def works_of(workload: Workload, rank: int, facts: RowFacts) -> list[RowWork]:
    """The works of a row on a rank, in turn."""
    return [_work_of(workload, rank, facts, pattern) for pattern in workload.runs(facts)]


def _work_of(workload: Workload, rank: int, facts: RowFacts, pattern: Pattern) -> RowWork:
    world, size = workload.world, facts.size_bytes
    schedule, layout = pattern.schedule(rank, world), pattern.layout(rank, world, size)
    held = held_bytes(pattern, rank, world, size)
    wanted = expected_bytes(pattern, rank, world, size)
    if not workload.program.typed:
        return RowWork(pattern, schedule, layout, held, wanted)
    kind, op = ElementType.of_label(facts.type_name), workload.reduce_op(facts)
    if op is None:
        elements = ElementGroup(int(kind), -1, world)
        return RowWork(pattern, schedule, layout, held, wanted, elements, facts.type_name)
    origins = workload.origins(rank)
    index = origins.index(rank)
    held[:, 2] = index
    # What comes out is of the whole group, whoever put in what.
    wanted[:, 2] = 0
    return RowWork(
        pattern,
        schedule,
        layout,
        held,
        np.unique(wanted, axis=0),
        ElementGroup(int(kind), int(op), len(origins), origins),
        facts.type_name,
        (int(kind), int(op), op.factor(index, len(origins))),
    )
