"""Writes a schedule step by step."""

from __future__ import annotations

from collections.abc import Sequence

from tcpx_mpi.arrays import np
from tcpx_mpi.schedule.table import NONE, BufferId, Column, Op, Schedule, ScheduleError, Wait


class ScheduleBuilder:
    """Writes a schedule step by step; every method returns the index of the step it added.

    `after` names up to two earlier steps, each with how to wait for it.
    """

    def __init__(self) -> None:
        self._rows: list[tuple[int, ...]] = []

    def send(
        self,
        peer: int,
        block: int,
        *,
        buffer: BufferId = BufferId.SEND,
        blocks: int = 1,
        lane: int = 0,
        after: Sequence[tuple[int, Wait]] = (),
    ) -> int:
        return self._add((Op.SEND, peer, lane, buffer, block, NONE, NONE, blocks), after)

    def receive(
        self,
        peer: int,
        block: int,
        *,
        buffer: BufferId = BufferId.RECV,
        blocks: int = 1,
        lane: int = 0,
        after: Sequence[tuple[int, Wait]] = (),
    ) -> int:
        return self._add((Op.RECV, peer, lane, NONE, NONE, buffer, block, blocks), after)

    def copy(
        self,
        source_block: int,
        block: int,
        *,
        source: BufferId = BufferId.SEND,
        buffer: BufferId = BufferId.RECV,
        blocks: int = 1,
        after: Sequence[tuple[int, Wait]] = (),
    ) -> int:
        return self._add((Op.COPY, NONE, NONE, source, source_block, buffer, block, blocks), after)

    def receive_reduce(
        self,
        peer: int,
        source_block: int,
        block: int,
        *,
        source: BufferId = BufferId.SEND,
        buffer: BufferId = BufferId.RECV,
        blocks: int = 1,
        lane: int = 0,
        after: Sequence[tuple[int, Wait]] = (),
    ) -> int:
        head = (Op.RECV_REDUCE, peer, lane, source, source_block, buffer, block, blocks)
        return self._add(head, after)

    def scale(
        self,
        source_block: int,
        block: int,
        *,
        source: BufferId = BufferId.SEND,
        buffer: BufferId = BufferId.RECV,
        blocks: int = 1,
        after: Sequence[tuple[int, Wait]] = (),
    ) -> int:
        return self._add((Op.SCALE, NONE, NONE, source, source_block, buffer, block, blocks), after)

    def pause(self, microseconds: int, *, after: Sequence[tuple[int, Wait]] = ()) -> int:
        head = (Op.PAUSE, NONE, NONE, NONE, NONE, NONE, NONE, microseconds)
        return self._add(head, after)

    def build(self) -> Schedule:
        table = np.array(self._rows, dtype=np.int32).reshape(-1, len(Column))
        return Schedule(table)

    def _add(self, head: tuple[int, ...], after: Sequence[tuple[int, Wait]]) -> int:
        if len(after) > 2:
            raise ScheduleError(f"a step has at most two predecessors; found {len(after)}")
        waits = [value for pred, wait in after for value in (pred, wait)]
        self._rows.append((*head, *waits, *[NONE] * (4 - len(waits))))
        return len(self._rows) - 1
