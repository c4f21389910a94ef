"""What a pattern promises, held against what its schedules do."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.schedule.interpreter.races import check_races
from tcpx_mpi.schedule.interpreter.run import Outcome, Run
from tcpx_mpi.schedule.interpreter.state import EngineModel
from tcpx_mpi.schedule.pattern import Pattern, expected_bytes
from tcpx_mpi.schedule.table import NONE, BufferId, Layout, Schedule, ScheduleError


def interpret(
    schedules: Sequence[Schedule],
    layouts: Sequence[Layout],
    engine: EngineModel = EngineModel(),  # noqa: B008 - frozen
    iterations: int = 1,
) -> Outcome:
    """Run one schedule a rank, `iterations` times back to back.

    Raises ScheduleError for a race within a rank, a deadlock, sends and receives that disagree in
    order or length, a send of bytes that nobody wrote, or a message that nobody receives.
    """
    for rank, (schedule, layout) in enumerate(zip(schedules, layouts, strict=True)):
        try:
            check_races(schedule, layout, engine.chunk_bytes)
        except ScheduleError as error:
            raise ScheduleError(f"rank {rank}: {error}") from None
    return Run(schedules, layouts, engine, iterations).run()


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
    outcome = interpret(
        [pattern.schedule(rank, world) for rank in range(world)],
        [pattern.layout(rank, world, size_bytes) for rank in range(world)],
        engine,
        iterations,
    )
    for rank in range(world):
        want_rank, want_offset = _promise(pattern, rank, world, size_bytes)
        for iteration, found in enumerate(outcome.received[rank]):
            # Messages are matched within an iteration; this looks after the model's own slots.
            want_iteration = np.where(want_rank == NONE, NONE, iteration)
            wrong = (
                (found.rank != want_rank)
                | (found.offset != want_offset)
                | (found.iteration != want_iteration)
            )
            if wrong.any():
                byte = int(np.argmax(wrong))
                raise ScheduleError(
                    f"{pattern.name}: rank {rank}, iteration {iteration}: RECV byte {byte} must "
                    f"be {_origin_text(want_iteration[byte], want_rank[byte], want_offset[byte])}, "
                    f"found "
                    f"{_origin_text(found.iteration[byte], found.rank[byte], found.offset[byte])}"
                )
    return outcome


def _promise(
    pattern: Pattern, rank: int, world: int, size_bytes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The promised origin of each RECV byte: rank and offset, -1 where nothing may be written."""
    total = pattern.layout(rank, world, size_bytes)[BufferId.RECV].total_bytes
    origin_rank = np.full(total, NONE, dtype=np.int64)
    origin_offset = np.full(total, NONE, dtype=np.int64)
    for dst, length, origin, offset in expected_bytes(pattern, rank, world, size_bytes).tolist():
        if (origin_rank[dst : dst + length] != NONE).any():
            raise ScheduleError(f"{pattern.name}: rank {rank} promises bytes at {dst} twice")
        origin_rank[dst : dst + length] = origin
        origin_offset[dst : dst + length] = np.arange(offset, offset + length)
    return origin_rank, origin_offset


def _origin_text(iteration: int, rank: int, offset: int) -> str:
    if rank == NONE:
        return "untouched"
    return f"byte {offset} of rank {rank} in iteration {iteration}"
