"""The proof: a pattern's promise against what its schedules do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.arrays import Int64s
from tcpx_mpi.schedule.engine_model import EngineModel
from tcpx_mpi.schedule.interpreter.races import check_races
from tcpx_mpi.schedule.interpreter.run import Outcome, Run
from tcpx_mpi.schedule.interpreter.state import Start
from tcpx_mpi.schedule.interpreter.values import OriginCodes, difference_text, reduced_at, scaled
from tcpx_mpi.schedule.pattern import Pattern, expected_bytes
from tcpx_mpi.schedule.promise import Scaled
from tcpx_mpi.schedule.table import (
    NONE,
    BufferId,
    Column,
    Layout,
    Op,
    Schedule,
    ScheduleError,
    step_bytes,
)


def interpret(
    schedules: Sequence[Schedule],
    layouts: Sequence[Layout],
    engine: EngineModel = EngineModel(),  # noqa: B008 - frozen
    iterations: int = 1,
    starts: Sequence[Start] | None = None,
) -> Outcome:
    """Run one schedule a rank, `iterations` times back to back.

    `starts` says what stands in memory at the start; None: the payload, in SEND. Raises
    ScheduleError for a race within a rank, a deadlock, sends and receives that disagree in order or
    length, a step that reads bytes that nobody wrote, or a message that nobody receives.
    """
    for rank, (schedule, layout) in enumerate(zip(schedules, layouts, strict=True)):
        try:
            check_races(schedule, layout, engine.chunk_bytes)
        except ScheduleError as error:
            raise ScheduleError(f"rank {rank}: {error}") from None
    return Run(schedules, layouts, engine, iterations, starts).run()


def prove(
    pattern: Pattern,
    world: int,
    size_bytes: int,
    engine: EngineModel = EngineModel(),  # noqa: B008 - frozen
    iterations: int = 1,
) -> Outcome:
    """Run a pattern and compare every byte of every RECV buffer with what it promises.

    Raises ScheduleError that names the first difference.
    """
    schedules = [pattern.schedule(rank, world) for rank in range(world)]
    layouts = [pattern.layout(rank, world, size_bytes) for rank in range(world)]
    for rank in range(world):
        _check_elements(pattern, rank, schedules[rank], layouts[rank], engine.chunk_bytes)
    starts = [
        Start(
            pattern.payload_of(rank, world, size_bytes),
            None if pattern.held is None else pattern.held(rank, world),
        )
        for rank in range(world)
    ]
    outcome = interpret(schedules, layouts, engine, iterations, starts)
    for rank in range(world):
        for iteration, found in enumerate(outcome.values[rank]):
            # Messages are matched within an iteration; this looks after the model's own slots.
            promise = _promise(pattern, rank, world, size_bytes, iteration, outcome.codes)
            wrong = found != promise.values
            if pattern.held is not None:
                wrong &= promise.named
            if wrong.any():
                byte = int(np.argmax(wrong))
                raise ScheduleError(
                    f"{pattern.name}: rank {rank}, iteration {iteration}: RECV byte {byte} must "
                    f"be {promise.text(byte)}, found {promise.found_text(byte, int(found[byte]))}"
                )
    return outcome


def _check_elements(
    pattern: Pattern, rank: int, schedule: Schedule, layout: Layout, chunk_bytes: int
) -> None:
    """No step that computes may cut an element, nor may its chunks."""
    size = pattern.element_bytes
    computes = np.isin(schedule.column(Column.OP), (Op.RECV_REDUCE, Op.SCALE))
    if size == 1 or not computes.any():
        return
    if chunk_bytes % size:
        raise ScheduleError(f"chunks of {chunk_bytes} bytes cut elements of {size}")
    steps = step_bytes(schedule, layout)
    for values in (steps.src_offset, steps.dst_offset, steps.length):
        cut = computes & (values % size != 0)
        if cut.any():
            step = schedule.describe(int(np.argmax(cut)))
            raise ScheduleError(f"rank {rank}: {step} cuts an element of {size} bytes")


@dataclass(frozen=True, eq=False)
class _Promise:
    """The content of a RECV buffer, as values of the model; NONE if nothing may be written."""

    codes: OriginCodes
    values: Int64s
    #: Every origin of every byte, in no order: which byte, and the value that is reduced into it.
    places: Int64s
    members: Int64s

    @property
    def named(self) -> NDArray[np.bool_]:
        """The bytes of which something is promised."""
        named: NDArray[np.bool_] = self.values != NONE
        return named

    def text(self, byte: int) -> str:
        """The wanted byte, in words."""
        origins = self._members_of(byte)
        if len(origins) < 2:
            return self.codes.text(int(self.values[byte]))
        return f"the reduction of {len(origins)} origins"

    def found_text(self, byte: int, found: int) -> str:
        """The found byte, in words."""
        if len(members := self._members_of(byte)) < 2:
            return self.codes.text(found)
        strangers = self.members.tolist()
        return difference_text(self.codes, found, int(self.values[byte]), members, strangers)

    def _members_of(self, byte: int) -> list[int]:
        members: list[int] = self.members[self.places == byte].tolist()
        return members


def _promise(
    pattern: Pattern, rank: int, world: int, size_bytes: int, iteration: int, codes: OriginCodes
) -> _Promise:
    total = pattern.layout(rank, world, size_bytes)[BufferId.RECV].total_bytes
    expected = pattern.expected(rank, world)
    rows = expected_bytes(pattern, rank, world, size_bytes)
    at, length, origin, offset = rows.T
    # Every row byte by byte: how far into its row each byte is.
    within = np.arange(int(length.sum())) - np.repeat(np.cumsum(length) - length, length)
    places = np.repeat(at, length) + within
    first = (iteration * codes.world + origin) * codes.stride + offset
    members = np.repeat(first, length) + within
    if not expected.reduced and (twice := np.bincount(places, minlength=1) > 1).any():
        raise ScheduleError(
            f"{pattern.name}: rank {rank} promises bytes at {int(np.argmax(twice))} twice"
        )
    if expected.scaled == Scaled.BEFORE:
        members = scaled(members)
    values = reduced_at(places, members, total)
    if expected.scaled == Scaled.AFTER:
        values[values != NONE] = scaled(values[values != NONE])
    return _Promise(codes, values, places, members)
