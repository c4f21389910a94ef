"""The time of a pattern, from a simulation of all its ranks or of those that stand for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.errors import UsageError
from tcpx_mpi.schedule.engine_model import EngineModel
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.simulator.costs import Costs
from tcpx_mpi.schedule.simulator.events import Events
from tcpx_mpi.schedule.simulator.ranks import Ends, Rank, rank_of
from tcpx_mpi.schedule.symmetry import Symmetry
from tcpx_mpi.schedule.table import NONE, Column, Op, Schedule, ScheduleError, step_bytes

#: Sent in all iterations that are simulated; more take minutes.
MOST_CHUNKS = 2_500_000
#: Iterations that are simulated; what comes behind them goes on as the last one did. Fewer where
#: so many ranks are simulated.
_ITERATIONS = 3
_MANY_RANKS = 2048


@dataclass(frozen=True)
class Prediction:
    """The time and the needs of a pattern; times are means of the iterations, over the ranks that
    receive."""

    mean_ns: float
    min_ns: float
    max_ns: float
    rank_0_ns: float
    #: The most of any rank, any NIC.
    steps: int
    connections: int
    nic_bytes: int
    #: Ranks that were simulated, which stand for all.
    simulated: int

    def by_average(self, average: int) -> float:
        """The time as `-a` has it: 0 rank 0, 1 average, 2 minimum, 3 maximum."""
        return (self.rank_0_ns, self.mean_ns, self.min_ns, self.max_ns)[average]


def predict(
    pattern: Pattern,
    world: int,
    size_bytes: int,
    engine: EngineModel,
    costs: Costs,
    iterations: int = 1,
    ranks_per_nic: int = 1,
    symmetric: bool = True,
) -> Prediction:
    """`iterations` of a pattern back to back, from a start of all ranks at once.

    `symmetric`: use the symmetry that the pattern declares. Raises UsageError if that is more
    than can be simulated.
    """
    symmetry = pattern.symmetry(world) if symmetric else None
    count = world
    if symmetry is not None and symmetry.folds(world, ranks_per_nic):
        count = ranks_per_nic
    else:
        symmetry = None
        _refuse_steps(pattern, world)
    simulated = min(iterations, _ITERATIONS if count < _MANY_RANKS else _ITERATIONS - 1)
    ranks, nics = _ranks(
        pattern, world, size_bytes, engine, simulated, ranks_per_nic, count, symmetry
    )
    _connect(ranks, symmetry, world)
    events = Events([rank for rank, _, _ in ranks], nics, costs, simulated)
    events.run()
    times = [_mean_ns(rank.ends_ns, iterations) for rank, _, _ in ranks if rank.receives]
    first = ranks[0][0]
    return Prediction(
        mean_ns=sum(times) / len(times) if times else 0.0,
        min_ns=min(times, default=0.0),
        max_ns=max(times, default=0.0),
        rank_0_ns=_mean_ns(first.ends_ns, iterations),
        steps=max(rank.steps for rank, _, _ in ranks),
        connections=max(rank.connections for rank, _, _ in ranks),
        nic_bytes=max(events.sent_bytes) // simulated,
        simulated=count,
    )


def _mean_ns(ends_ns: Sequence[float], iterations: int) -> float:
    last = ends_ns[-1]
    if iterations > len(ends_ns):
        last += (iterations - len(ends_ns)) * (ends_ns[-1] - ends_ns[-2])
    return last / iterations


def _refuse_steps(pattern: Pattern, world: int) -> None:
    """Refuses what is too much even before it is cut into chunks; roots are among the first and
    last."""
    ends = {0, world // 2, world - 1}
    least = min(pattern.schedule(rank, world).steps for rank in ends)
    if least * world > 2 * MOST_CHUNKS:
        raise UsageError(_too_many(pattern, world, least * world // 2))


def _too_many(pattern: Pattern, world: int, chunks: int) -> str:
    return (
        f"{pattern.name} on {world} ranks has {chunks} chunks or more, and {MOST_CHUNKS} can be "
        "simulated: give fewer --ranks, a smaller -e or a larger --chunk"
    )


def _ranks(
    pattern: Pattern,
    world: int,
    size_bytes: int,
    engine: EngineModel,
    iterations: int,
    ranks_per_nic: int,
    count: int,
    symmetry: Symmetry | None,
) -> tuple[list[tuple[Rank, Ends, Ends]], int]:
    """The ranks that are simulated, and how many NICs they have."""
    parts: list[tuple[Schedule, NDArray[np.int64]]] = []
    chunks = 0
    for number in range(count):
        if symmetry is None:
            schedule = pattern.schedule(number, world)
            layout = pattern.layout(number, world, size_bytes)
        else:
            schedule = _seen_from(pattern.schedule(0, world), symmetry, number, world)
            layout = pattern.layout(0, world, size_bytes)
        lengths = step_bytes(schedule, layout).length
        parts.append((schedule, lengths))
        # All of them before the first is cut into chunks, which takes time and memory.
        sent = lengths[schedule.column(Column.OP) == Op.SEND]
        chunks += int(np.maximum(-(-sent // engine.chunk_bytes), 1).sum())
        if chunks * iterations > MOST_CHUNKS:
            raise UsageError(_too_many(pattern, world, chunks * iterations))
    found = [
        rank_of(schedule, lengths, engine, iterations, number // ranks_per_nic)
        for number, (schedule, lengths) in enumerate(parts)
    ]
    return found, -(-count // ranks_per_nic)


def _seen_from(schedule: Schedule, symmetry: Symmetry, place: int, world: int) -> Schedule:
    """The schedule of rank 0 as that of the rank at `place`: other peers, the same blocks."""
    table = schedule.table.copy()
    for row in table:
        if row[Column.PEER] != NONE:
            row[Column.PEER] = symmetry.moved(int(row[Column.PEER]), place, world)
    return Schedule(table)


def _connect(
    ranks: Sequence[tuple[Rank, Ends, Ends]], symmetry: Symmetry | None, world: int
) -> None:
    """Each queue of sends with the queue that receives its chunks."""
    for number, (_, sends, _) in enumerate(ranks):
        for (peer, lane, channel), queue in sends.items():
            place, source = peer, number
            if symmetry is not None:
                place, source = symmetry.stand_in(peer, number, world, len(ranks))
            partner = ranks[place][2].get((source, lane, channel))
            if partner is None or len(partner.items) != len(queue.items):
                raise ScheduleError(
                    f"rank {peer} does not receive what rank {number} sends on lane {lane}"
                )
            queue.partner = partner
