"""The rows of a simulated run: the sizes and variants that `run` would have, each predicted."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean

from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.records import RowFacts
from tcpx_mpi.run.choose_algorithm import Costs as MessageCosts
from tcpx_mpi.run.choose_algorithm import choose_algorithm
from tcpx_mpi.run.plan import element_aligned
from tcpx_mpi.schedule.engine_model import EngineModel
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.simulator import Costs, Prediction, predict
from tcpx_mpi.schedule.table import Column, Op, ScheduleError, step_bytes
from tcpx_mpi.workload import workload_of

#: Iterations that differ are simulated one by one; the mean of more is hardly another.
_MOST_TURNS = 32


@dataclass(frozen=True)
class PredictedRow:
    """A row with its columns; times as `-a` has them, of one copy of the pattern."""

    facts: RowFacts
    prediction: Prediction
    time_ns: float
    algbw: float
    busbw: float


class Simulation:
    """A simulation: a pattern with its rows, on ranks with costs."""

    def __init__(self, settings: Settings, world: int, costs: Costs, ranks_per_nic: int) -> None:
        """Raises UsageError, one line, for what no run of so many ranks could be."""
        self._workload = workload_of(settings, world)
        if self._workload.single.loaded is not None:
            raise UsageError(
                f"{settings.pattern} times a part of its iteration, which simulate cannot: "
                "use pingpong or mesh"
            )
        if settings.multi_recv > 1:
            raise UsageError(
                f"--multi-recv ({settings.multi_recv}) is of a plugin's calls, which simulate has "
                "not: leave it out"
            )
        self.settings = self._workload.settings
        self.world = world
        self.costs = costs
        self.ranks_per_nic = ranks_per_nic
        #: Why no row is there, as nccl-tests says it; None: all are.
        self.skipped = self._workload.skipped

    def rows(self) -> Iterator[PredictedRow]:
        """Variant by variant, size by size, each simulated when it is asked for."""
        for index, facts in enumerate(self._facts()):
            facts.index = index
            yield self._row(facts)

    def _facts(self) -> Iterator[RowFacts]:
        s, workload = self.settings, self._workload
        messages = MessageCosts(
            self.costs.latency_ns + self.costs.overhead_ns, self.costs.ns_a_byte
        )
        typed = workload.program.typed
        chunk_bytes = element_aligned(s.chunk_bytes) if typed else s.chunk_bytes
        for variant in workload.variants if self.skipped is None else ():
            for size in s.sizes:
                facts = RowFacts(
                    index=0, cycle=0, agg=s.agg_iters, slots=0, iterations=s.iters,
                    warmup_iterations=0, chunk_bytes=chunk_bytes, **workload.facts(variant, size),
                )  # fmt: skip
                yield choose_algorithm(facts, workload, messages)

    def _row(self, facts: RowFacts) -> PredictedRow:
        # Of rounds the first: all have as many ranks that send, each to one other.
        s, pattern = self.settings, self._workload.runs(facts)[0]
        engine = EngineModel(facts.chunk_bytes, s.channels, s.window_send, s.window_recv)
        try:
            found = self._predicted(pattern, facts, engine)
        except ScheduleError as error:
            if s.replay_path is None:
                raise
            raise UsageError(
                f"--replay ({s.replay_path}) cannot be sent again, its records contradict each "
                f"other: {error}"
            ) from error
        copies = facts.agg * pattern.time_divisor
        time_ns = found.by_average(s.average) / copies
        counted = facts.size_bytes * pattern.algbw_factor(self.world)
        algbw = counted / time_ns if time_ns else math.nan
        factor = pattern.busbw_factor(self.world)
        if math.isnan(factor):  # what leaves a rank on average
            factor = self._left(pattern, facts) / facts.size_bytes if facts.size_bytes else 0.0
        return PredictedRow(facts, found, time_ns, algbw, algbw * factor)

    def _predicted(self, pattern: Pattern, facts: RowFacts, engine: EngineModel) -> Prediction:
        """The mean of some iterations that differ, each from a start of all ranks at once."""
        s = self.settings
        turns = [(pattern, 1 if s.blocking else s.iters)]
        if pattern.turn is not None:
            turns = [(pattern.turn(number), 1) for number in self._turns()]
        found = [
            predict(one, self.world, facts.size_bytes, engine, self.costs, iterations,
                    self.ranks_per_nic)
            for one, iterations in turns
        ]  # fmt: skip

        return dataclasses.replace(
            max(found, key=lambda each: each.nic_bytes),
            mean_ns=fmean(each.mean_ns for each in found),
            min_ns=fmean(each.min_ns for each in found),
            max_ns=fmean(each.max_ns for each in found),
            rank_0_ns=fmean(each.rank_0_ns for each in found),
        )

    def _turns(self) -> range:
        """The numbers of the first timed iterations."""
        first = self.settings.warmup_iters
        return range(first, first + min(self.settings.iters, _MOST_TURNS))

    def _left(self, pattern: Pattern, facts: RowFacts) -> float:
        """Bytes that a rank sends to others in an iteration, on average."""
        assert pattern.turn is not None
        total, turns = 0, self._turns()
        for one in map(pattern.turn, turns):
            for rank in range(self.world):
                schedule = one.schedule(rank, self.world)
                layout = one.layout(rank, self.world, facts.size_bytes)
                sends = schedule.column(Column.OP) == Op.SEND
                total += int(step_bytes(schedule, layout).length[sends].sum())
        return total / self.world / len(turns)
