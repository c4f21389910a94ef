"""The work of a row on one rank: its schedule, where its payload stands, what must come out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.arrays import Int64s
from tcpx_mpi.records import RowFacts
from tcpx_mpi.schedule.element_group import ElementGroup
from tcpx_mpi.schedule.elements import ElementType
from tcpx_mpi.schedule.pattern import Pattern, expected_bytes, held_bytes
from tcpx_mpi.schedule.table import (
    RECEIVE_OPS,
    BufferId,
    Column,
    Layout,
    Op,
    Schedule,
    step_bytes,
)
from tcpx_mpi.workload.workload import Workload


@dataclass(frozen=True, eq=False)
class RowWork:
    """A row's work on this rank: out of place, or in place; alone, or under load."""

    world: int
    size_bytes: int
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
    #: Where iterations differ: that of each, by its number in the row; None: all are alike.
    turn: Callable[[int], RowWork] | None = None

    def of_batch(self, first: int, count: int) -> list[RowWork]:
        """The work of the iterations of a batch: one for all, or one each."""
        turn = self.turn
        return [self] if turn is None else [turn(first + number) for number in range(count)]

    @functools.cached_property
    def longest_bytes(self) -> int:
        """The bytes of the longest message between any two ranks."""
        ranks = (
            step_bytes(
                self.pattern.schedule(rank, self.world),
                self.pattern.layout(rank, self.world, self.size_bytes),
            )
            for rank in range(self.world)
        )
        return max((int(steps.length.max(initial=0)) for steps in ranks), default=0)

    @functools.cached_property
    def _lengths(self) -> tuple[NDArray[np.int32], Int64s]:
        return self.schedule.column(Column.OP), step_bytes(self.schedule, self.layout).length

    @functools.cached_property
    def sent_bytes(self) -> int:
        """In an iteration."""
        op, lengths = self._lengths
        return int(lengths[op == Op.SEND].sum())

    @functools.cached_property
    def received_bytes(self) -> int:
        op, lengths = self._lengths
        return int(lengths[np.isin(op, RECEIVE_OPS)].sum())

    def remote_bytes(self, here: Callable[[int], bool]) -> int:
        """The bytes to, or from, ranks that are not `here`."""
        peers = self.schedule.column(Column.PEER).tolist()
        steps = zip(self._lengths[1].tolist(), peers, strict=True)
        return sum(length for length, peer in steps if peer >= 0 and not here(peer))

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
        turn = (
            None
            if (turns := pattern.turn) is None
            else (lambda number: _work_of(workload, rank, facts, turns(number)))
        )
        return RowWork(world, size, pattern, schedule, layout, held, wanted, turn=turn)
    kind, op = ElementType.of_label(facts.type_name), workload.reduce_op(facts)
    if op is None:
        elements = ElementGroup(int(kind), -1, world)
        return RowWork(
            world, size, pattern, schedule, layout, held, wanted, elements, facts.type_name
        )
    origins = workload.origins(rank)
    index = origins.index(rank)
    held[:, 2] = index
    # What comes out is of the whole group, whoever put in what.
    wanted[:, 2] = 0
    return RowWork(
        world,
        size,
        pattern,
        schedule,
        layout,
        held,
        np.unique(wanted, axis=0),
        ElementGroup(int(kind), int(op), len(origins), origins),
        facts.type_name,
        (int(kind), int(op), op.factor(index, len(origins))),
    )
