"""The rows of a run before they are measured: sizes, iterations, slots; equal on all ranks."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tcpx_mpi.config import Settings
from tcpx_mpi.knobs import LEAST_BLOCKS
from tcpx_mpi.patterns import Pattern
from tcpx_mpi.records import Plan, RowFacts
from tcpx_mpi.row_plan import RowPlan, plan_row, slot_shape, slots_for
from tcpx_mpi.schedule import BufferId, Column, Op
from tcpx_mpi.topology import Host


@dataclass(frozen=True)
class PlannedRow:
    """A row to come: its facts and its slots and batches."""

    facts: RowFacts
    plan: RowPlan


class RowPlanner:
    """Plans the rows from the settings and the hosts of all ranks; pure."""

    def __init__(
        self, settings: Settings, pattern: Pattern, single: Pattern, hosts: Sequence[Host]
    ) -> None:
        self._settings = settings
        self._pattern = pattern
        self._single = single
        self._world = len(hosts)
        self._llc_bytes = max(host.llc_bytes for host in hosts)
        self._local_ranks = min(Counter(host.node for host in hosts).values())

    def rows(self) -> list[PlannedRow]:
        """The rows of the first cycle."""
        return [self._row(index, size) for index, size in enumerate(self._settings.sizes)]

    def cycles(self, rows: Sequence[PlannedRow]) -> Iterator[PlannedRow]:
        """The rows of all cycles (`-N`, 0: for ever), each with an index of its own."""
        wanted = self._settings.run_cycles * self.rounds
        for cycle in itertools.count() if wanted == 0 else range(wanted):
            for row in rows:
                index = cycle * len(rows) + row.facts.index
                facts = dataclasses.replace(row.facts, index=index, cycle=cycle)
                yield PlannedRow(facts, row.plan)

    @property
    def rounds(self) -> int:
        """Cycles through the sizes until every round of the pattern was run once."""
        return len(self._pattern.rounds_run(self._world, self._settings.all_pairs))

    def plan(self, rows: Sequence[PlannedRow]) -> Plan:
        """What was asked for, for the record."""
        s = self._settings
        return Plan(
            sizes=s.sizes,
            run_cycles=s.run_cycles * self.rounds,
            iters=s.iters,
            warmup_iters=s.warmup_iters,
            agg_iters=s.agg_iters,
            average=s.average,
            check=s.check,
            blocking=s.blocking,
            chunk_bytes=s.chunk_bytes,
            channels=s.channels,
            window_send=s.window_send,
            window_recv=s.window_recv,
            slots=tuple(row.plan.slots for row in rows),
            report_timestamps=s.report_timestamps,
            report_cputime=s.report_cputime,
            report_gbits=s.report_gbits,
            per_iter_timing=s.per_iter_timing,
            per_iter_skip=s.per_iter_skip,
        )

    def end_by_ns(self, now_ns: int) -> int:
        """The instant at which `-T` ends the run; 0 for never."""
        return now_ns + int(self._settings.timeout_s * 1e9) if self._settings.timeout_s else 0

    def _row(self, index: int, size: int) -> PlannedRow:
        s = self._settings
        longest = max(s.iters, s.warmup_iters)
        slots = slots_for(
            self._slot_bytes(size), longest, s.check_memory_bytes, self._llc_bytes,
            self._local_ranks,
        )  # fmt: skip
        facts = RowFacts(
            index=index,
            cycle=0,
            size_bytes=size,
            count=size,
            agg=s.agg_iters,
            messages_per_copy=self._messages(),
            chunk_bytes=s.chunk_bytes,
            slots=slots,
            iterations=s.iters,
            warmup_iterations=s.warmup_iters,
        )
        # Medians over blocks: of a peer beside us, and where ranks are compared with each other.
        several = bool(s.against) or self._pattern.rounds is not None
        blocks = min(LEAST_BLOCKS, s.iters) if several else 1
        return PlannedRow(facts, plan_row(slots, s.iters, s.warmup_iters, blocks))

    def _slot_bytes(self, size: int) -> int:
        """Bytes that a slot takes on the rank where it takes most."""
        return max(
            sum(strides(self._pattern, rank, self._world, size).values())
            for rank in range(self._world)
        )

    def _messages(self) -> int:
        """Messages that a rank receives in one copy of the pattern; all receivers are alike."""
        single = self._single.rounds_run(self._world, False)[0]
        return max(
            int((single.schedule(rank, self._world).column(Column.OP) == Op.RECV).sum())
            for rank in (0, self._world - 1)
        )


def strides(pattern: Pattern, rank: int, world: int, size: int) -> dict[BufferId, int]:
    """Bytes from one slot to the next, for each buffer that the rank uses."""
    layout = pattern.layout(rank, world, size)
    return {
        buffer: slot_shape(table.total_bytes).stride_bytes
        for buffer, table in layout.items()
        if table.blocks
    }


def buffer_sizes(
    pattern: Pattern, rank: int, world: int, rows: Sequence[PlannedRow]
) -> dict[BufferId, int]:
    """Bytes of each buffer on this rank, enough for every row."""
    sizes: Counter[BufferId] = Counter()
    for row in rows:
        for buffer, stride in strides(pattern, rank, world, row.facts.size_bytes).items():
            sizes[buffer] = max(sizes[buffer], stride * row.plan.slots)
    return dict(sizes)
