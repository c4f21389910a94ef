"""Races within a rank: found in the table, whatever order a run would have."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tcpx_mpi.schedule.table import (
    NONE,
    BufferId,
    Column,
    Layout,
    Op,
    Schedule,
    ScheduleError,
    StepBytes,
    Wait,
    step_bytes,
)

#: Steps that may have the same source and destination: they go element by element.
_IN_PLACE_OPS = (Op.RECV_REDUCE, Op.SCALE)


@dataclass(frozen=True)
class _Access:
    """A step touches bytes [start, end) of a buffer."""

    start: int
    end: int
    step: int
    writes: bool


def check_races(schedule: Schedule, layout: Layout, chunk_bytes: int) -> None:
    """Any two steps that touch the same bytes, one of them writing, must be ordered.

    Only predecessors order: even two receives on one connection are in flight together.
    Raises ScheduleError.
    """
    sizes = step_bytes(schedule, layout)
    ordered = _orders(schedule)
    op = schedule.column(Column.OP)
    for buffer_id in (BufferId.RECV, BufferId.SCRATCH):
        accesses = sorted(
            _accesses(schedule, sizes, buffer_id), key=lambda access: (access.start, access.step)
        )
        running: list[_Access] = []
        for access in accesses:
            running = [other for other in running if other.end > access.start]
            for other in running:
                within = access.step == other.step and op[access.step] in _IN_PLACE_OPS
                if within and access.start == other.start:
                    continue
                if access.writes or other.writes:
                    _check_ordered(schedule, ordered, other, access, chunk_bytes)
            running.append(access)


def _accesses(schedule: Schedule, sizes: StepBytes, buffer_id: BufferId) -> list[_Access]:
    found = []
    for column, offsets, writes in (
        (Column.SRC_BUFFER, sizes.src_offset, False),
        (Column.DST_BUFFER, sizes.dst_offset, True),
    ):
        for step in np.flatnonzero(schedule.column(column) == buffer_id).tolist():
            start, length = int(offsets[step]), int(sizes.length[step])
            if length:
                found.append(_Access(start, start + length, step, writes))
    return found


@dataclass(frozen=True)
class _Before:
    """The steps that come before a step, directly or not, as bits: all of them, and those that it
    waits for whole."""

    any: int = 0
    whole: int = 0

    def how(self, step: int) -> Wait | None:
        """The way that the step waits for another one; None: not at all."""
        if self.whole >> step & 1:
            return Wait.WHOLE
        return Wait.CHUNK if self.any >> step & 1 else None


def _orders(schedule: Schedule) -> list[_Before]:
    """For each step all steps that come before it."""
    before: list[_Before] = []
    for row in schedule.table.tolist():
        found, whole = 0, 0
        for pred_column, wait_column in (
            (Column.PRED0, Column.WAIT0),
            (Column.PRED1, Column.WAIT1),
        ):
            pred, wait = row[pred_column], row[wait_column]
            if pred == NONE:
                continue
            # One WHOLE on the way is enough: whoever waits for all chunks of a step waits for
            # all that those waited for.
            behind = before[pred].any | 1 << pred
            found |= behind
            whole |= behind if wait == Wait.WHOLE else before[pred].whole
        before.append(_Before(found, whole))
    return before


def _check_ordered(
    schedule: Schedule,
    ordered: list[_Before],
    one: _Access,
    other: _Access,
    chunk_bytes: int,
) -> None:
    first, second = sorted((one, other), key=lambda access: access.step)
    how = ordered[second.step].how(first.step)
    if first.step != second.step and how == Wait.WHOLE:
        return
    # Chunk by chunk is enough only if no chunk touches another chunk's bytes of the other step.
    aligned = first.start == second.start or first.end - first.start <= chunk_bytes
    if first.step != second.step and how == Wait.CHUNK and aligned:
        return
    raise ScheduleError(
        f"{schedule.describe(first.step)} and {schedule.describe(second.step)} touch the same "
        f"bytes and the second does not wait for the first"
    )
