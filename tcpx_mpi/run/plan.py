"""The rows of a run before they are measured: sizes, iterations, slots; equal on all ranks."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.config.options import LEAST_BLOCKS
from tcpx_mpi.errors import UsageError
from tcpx_mpi.machine.topology import Host
from tcpx_mpi.plugin.softtcpx_defaults import chunk_of
from tcpx_mpi.records import PHASES, Plan, RowFacts
from tcpx_mpi.run.stopping import Until
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.table import RECEIVE_OPS, BufferId, Column, Schedule, step_bytes
from tcpx_mpi.stragglers.retest import most_retests
from tcpx_mpi.transport.slots import RowPlan, plan_row, slot_shape, slots_for, stamp_bytes
from tcpx_mpi.units import format_size
from tcpx_mpi.workload import Workload
from tcpx_mpi.workload.memory import turn_bytes

#: A batch of an open-ended row may grow to so many iterations and bytes a rank, as memory allows.
_MOST_IN_A_BATCH = 4096
_BATCH_BYTES = 256 << 20
#: Bytes of the widest element: no chunk of a program cuts one.
MOST_BYTES = 8
#: Of an open loop: in fewer iterations one after the other nobody sees whether ranks keep up.
_FEWEST_PACED = 16
#: The plugin, raw with its variants, mpi.
_MOST_SIDES = 6


@dataclass(frozen=True)
class PlannedRow:
    """A row to come: its facts and its slots and batches."""

    facts: RowFacts
    plan: RowPlan
    #: None: the planned batches.
    until: Until | None = None


class RowPlanner:
    """Plans the rows of a workload on the hosts of all ranks; pure."""

    def __init__(self, workload: Workload, hosts: Sequence[Host]) -> None:
        self._settings = workload.settings
        self._workload = workload
        self._world = workload.world
        self._llc_bytes = max(host.llc_bytes for host in hosts)
        self._local_ranks = min(Counter(host.node for host in hosts).values())
        self._sources = max(len(set(peers.tolist())) for peers in self._senders())

    def rows(self) -> list[PlannedRow]:
        """The rows of the first cycle; of a program, those of all its variants in turn."""
        sizes, workload = self._settings.sizes, self._workload
        return [
            self._row(number * len(sizes) + index, number, workload.facts(variant, size))
            for number, variant in enumerate(workload.variants)
            for index, size in enumerate(sizes)
            if workload.skipped is None
        ]

    def run(
        self, rows: Sequence[PlannedRow], choose: Callable[[], Mapping[int, Sequence[str]]]
    ) -> Iterator[PlannedRow]:
        """All rows: those of the cycles, then, with `--all`, for each size the pairs
        (`RowFacts.pairs`) that are chosen when it comes to that.
        """
        if rows:  # a program may run none with so many ranks
            yield from self.cycles(rows)
        if self._settings.all_pairs:
            yield from self._again(rows, choose())

    def cycles(self, rows: Sequence[PlannedRow]) -> Iterator[PlannedRow]:
        """The rows of all cycles (`-N`, 0: for ever), each with an index of its own.

        One of several launches has them in an order of its own, so that no size always follows
        the same one.
        """
        wanted, launch = self._settings.run_cycles * self._workload.cycles, self._settings.launch
        # Not before it is wanted: to import numpy.random takes a fiftieth of a rank's start.
        random = np.random.default_rng([self._settings.seed, launch]) if launch else None
        count = len(self._settings.sizes)
        for cycle in itertools.count() if wanted == 0 else range(wanted):
            first = cycle * count % len(rows)  # of a program, each cycle has a variant of its own
            order = random.permutation(count) if random else np.arange(count)
            for row in (rows[first + int(number)] for number in order):
                index = cycle * count + row.facts.index % count
                facts = dataclasses.replace(row.facts, index=index, cycle=cycle)
                yield PlannedRow(facts, row.plan, row.until)

    def _again(
        self, rows: Sequence[PlannedRow], pairs: Mapping[int, Sequence[str]]
    ) -> Iterator[PlannedRow]:
        first = self._settings.run_cycles * self._workload.cycles
        for number in range(max(map(len, pairs.values()), default=0)):
            for row in rows:
                of_size = pairs.get(row.facts.size_bytes, ())
                if number < len(of_size):
                    cycle = first + number
                    index = cycle * len(rows) + row.facts.index
                    facts = dataclasses.replace(
                        row.facts, index=index, cycle=cycle, pairs=of_size[number]
                    )
                    yield PlannedRow(facts, row.plan, row.until)

    def plan(self, rows: Sequence[PlannedRow]) -> Plan:
        """The plan as asked for, for the record."""
        s = self._settings
        slots = tuple(row.plan.slots for row in rows[: len(s.sizes)])
        options = {**s.plan_options(), "run_cycles": s.run_cycles * self._workload.cycles}
        return Plan(**options, slots=slots, skipped=self._workload.skipped or "")

    def _row(self, index: int, cycle: int, of_workload: Mapping[str, Any]) -> PlannedRow:
        s = self._settings
        facts = RowFacts(
            index=index,
            cycle=cycle,
            **of_workload,
            agg=s.agg_iters,
            messages_per_copy=self._messages(),
            chunk_bytes=s.chunk_bytes,
            slots=0,
            iterations=0 if s.open_ended() else s.iters,
            warmup_iterations=s.warmup_iters,
        )
        slot_bytes = self._slot_bytes(facts)
        longest = max(s.iters, s.warmup_iters)
        if s.open_ended():
            longest = max(longest, min(_MOST_IN_A_BATCH, _BATCH_BYTES // max(slot_bytes, 1)))
        slots = slots_for(
            slot_bytes,
            stamp_bytes(self._sources) + self._turn_bytes(facts),
            longest,
            s.check_memory_bytes,
            self._llc_bytes,
            self._local_ranks,
        )
        chunk = chunk_of(s, self._message_bytes(facts), s.agg_iters * self._messages())
        chunk = element_aligned(chunk) if self._workload.program.typed else chunk
        facts = dataclasses.replace(facts, slots=slots, chunk_bytes=chunk)
        # Medians over blocks: of a baseline beside us, and where ranks are compared.
        several = bool(s.against) or self._retests or self._loaded
        blocks = min(LEAST_BLOCKS, s.iters) if several else 1
        plan = plan_row(slots, s.iters, s.warmup_iters, blocks)
        if not s.open_ended():
            return PlannedRow(facts, plan)
        return PlannedRow(facts, dataclasses.replace(plan, batch=slots), self._until(plan, several))

    def _until(self, plan: RowPlan, several: bool) -> Until:
        s = self._settings
        return Until(
            ci=s.ci,
            max_time_ns=int(s.max_time_s * 1e9),
            duration_ns=int(s.duration_s * 1e9),
            most_iterations=max(self._room() // self._rows_to_come(), plan.batches[0]),
            even_batches=LEAST_BLOCKS if several else 0,
        )

    def _sample_bytes(self) -> int:
        """Bytes that the file has of an iteration: all phases of all ranks and sides."""
        sides = _MOST_SIDES if self._settings.against else 1 + self._loaded
        phases = len(PHASES) + self._settings.flushes()
        return phases * 8 * self._world * sides

    def _rows_to_come(self) -> int:
        """Rows of the run, which share the space for samples; of endless cycles those of one."""
        s = self._settings
        again = 2 * most_retests(self._world) if self._retests and s.all_pairs else 0
        return len(s.sizes) * (max(s.run_cycles, 1) * self._workload.cycles + again)

    def _room(self) -> int:
        """Iterations of all rows together that there is space for."""
        return self._settings.sample_space_bytes // self._sample_bytes()

    def require_room(self) -> None:
        """Refuses more samples than there is space for, and an open loop of fewer iterations one
        after the other than show its pace, with the figures; raises UsageError."""
        s, rows = self._settings, self._rows_to_come()
        if not s.open_ended() and s.iters * rows > self._room():
            needed = format_size(s.iters * rows * self._sample_bytes())
            fewer = self._room() // rows
            raise UsageError(
                f"-n/--iters ({s.iters}) takes {needed} for the samples of all rows "
                f"({rows}), more than --sample-space ({format_size(s.sample_space_bytes)}); use "
                f"{f'{fewer} or less, or ' if fewer else ''}more --sample-space"
            )
        if s.rates:
            self._require_pace()

    def _require_pace(self) -> None:
        s = self._settings
        if not s.open_ended() and s.iters < _FEWEST_PACED:
            raise UsageError(
                f"-n/--iters ({s.iters}) is too few to see whether ranks keep up with --rate; use "
                f"{_FEWEST_PACED} or more"
            )
        fewest = min(self.rows(), key=lambda row: row.plan.slots)
        if fewest.plan.slots < _FEWEST_PACED:
            raise UsageError(
                f"--rate needs {_FEWEST_PACED} iterations one after the other, and "
                f"--check-memory ({format_size(s.check_memory_bytes)}) has room for "
                f"{fewest.plan.slots} of {format_size(fewest.facts.size_bytes)}; use more of it, "
                "or smaller sizes"
            )

    @property
    def _retests(self) -> bool:
        """Whether ranks that look slow may meet others once more."""
        rounds = self._workload.single.rounds
        return rounds is not None and rounds.of_pairs is not None

    @property
    def _loaded(self) -> bool:
        """Whether a row is measured under load as well."""
        return self._workload.single.loaded is not None

    def _slot_bytes(self, facts: RowFacts) -> int:
        """Bytes that a slot takes on the rank where it takes most."""
        return max(
            sum(strides(pattern, rank, self._world, facts.size_bytes).values())
            for pattern in self._workload.patterns(facts)
            for rank in range(self._world)
        )

    def _turn_bytes(self, facts: RowFacts) -> int:
        """Memory for the schedule of one iteration, where each has its own."""
        pattern = self._workload.pattern(facts)
        return turn_bytes(pattern, 0, self._world, facts.size_bytes, facts.chunk_bytes)

    def _messages(self) -> int:
        """Messages that a rank receives in one copy of the pattern."""
        return max(senders.size for senders in self._senders())

    def _message_bytes(self, facts: RowFacts) -> int:
        """Bytes of the largest message that a rank receives in one copy of the pattern."""
        pattern = self._workload.pattern(facts, single=True).rounds_run(self._world, False)[0]
        most = 0
        for rank, schedule in self._receivers(pattern):
            if (here := np.isin(schedule.column(Column.OP), RECEIVE_OPS)).any():
                layout = pattern.layout(rank, self._world, facts.size_bytes)
                most = max(most, int(step_bytes(schedule, layout).length[here].max()))
        return most

    def _senders(self) -> Iterator[NDArray[np.int32]]:
        """The senders of each message of one copy of the pattern; all receivers are alike."""
        single = self._workload.single.rounds_run(self._world, False)[0]
        for _, schedule in self._receivers(single):
            receives = np.isin(schedule.column(Column.OP), RECEIVE_OPS)
            yield schedule.column(Column.PEER)[receives]

    def _receivers(self, pattern: Pattern) -> Iterator[tuple[int, Schedule]]:
        """Two ranks, all others being like one of them."""
        for rank in (0, self._world - 1):
            yield rank, pattern.schedule(rank, self._world)


def element_aligned(chunk: int) -> int:
    """A chunk that cuts no element of a program, of whatever type."""
    return max(chunk // MOST_BYTES * MOST_BYTES, MOST_BYTES)


def strides(pattern: Pattern, rank: int, world: int, size: int) -> dict[BufferId, int]:
    """Bytes from one slot to the next, for each buffer that the rank uses."""
    layout = pattern.layout(rank, world, size)
    return {
        buffer: slot_shape(table.total_bytes).stride_bytes
        for buffer, table in layout.items()
        if table.blocks
    }


def buffer_sizes(workload: Workload, rank: int, rows: Sequence[PlannedRow]) -> dict[BufferId, int]:
    """Bytes of each buffer on this rank, enough for every pattern of every row."""
    sizes: Counter[BufferId] = Counter()
    for row in rows:
        for pattern in workload.patterns(row.facts):
            of_pattern = strides(pattern, rank, workload.world, row.facts.size_bytes)
            for buffer, stride in of_pattern.items():
                sizes[buffer] = max(sizes[buffer], stride * row.plan.slots)
    return dict(sizes)
