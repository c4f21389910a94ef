"""One row on one rank: its batches in turns with the baselines', their samples and verdicts."""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from tcpx_mpi import _native
from tcpx_mpi.arrays import Float64s, Int64s
from tcpx_mpi.errors import PluginFailed
from tcpx_mpi.records import (
    IN_PLACE,
    LOADED,
    PHASES,
    GpuRow,
    Journal,
    RankRow,
    Row,
    RowFacts,
    SideKey,
    counted,
    join_row,
    mapped_arrays,
    series_of,
    utc_now,
)
from tcpx_mpi.records.clock import RowClock
from tcpx_mpi.records.mapped_arrays import Growing
from tcpx_mpi.records.trace import later
from tcpx_mpi.run.common_clock import CommonClock
from tcpx_mpi.run.run_batch import BatchRunner, name_of
from tcpx_mpi.run.stopping import StoppingRule, Until
from tcpx_mpi.schedule.table import (
    REMOTE_OPS,
    Column,
    chunks_of,
    step_bytes,
)
from tcpx_mpi.stragglers.arrivals import Arrivals
from tcpx_mpi.transport.errors import (
    wrong_bytes_text,
    wrong_element_text,
)
from tcpx_mpi.transport.in_place import cause_of
from tcpx_mpi.transport.interface import GpuWatch, RankContext, Transport
from tcpx_mpi.transport.observed_placement import PlacementObserver
from tcpx_mpi.transport.samples import Batch
from tcpx_mpi.transport.slots import RowPlan
from tcpx_mpi.units import format_size
from tcpx_mpi.workload import Workload
from tcpx_mpi.workload.row_work import RowWork, works_of
from tcpx_mpi.world import World

#: Samples are written, sorted and summarised at more than this.
_SLOWEST_WRITING_BYTES_PER_S = 50e6

#: The first iteration of what is measured aside.
_ASIDE_ITERATION = 1 << 40

#: Of the batch in which a GPU times its own work: enough for a mean, and done at once.
_WATCHED_ITERATIONS = 16


@dataclass
class _Account:
    """One transport's part of a row, and the verdicts on its batches."""

    transport: Transport
    work: RowWork
    row: RankRow
    observer: PlacementObserver
    arrivals: Arrivals
    #: Where samples are that are too large for memory.
    spool: str
    verdicts: list[_native.Verdict] = field(default_factory=list)
    #: Of the timed iterations: what was sent, received, and went to or came from other nodes.
    moved: list[int] = field(default_factory=lambda: [0, 0, 0])
    #: Where the stretches of the first iteration with a wrong byte begin.
    wrong_begins: Int64s | None = None
    #: Samples by phase, as they come.
    timed: dict[str, Growing] = field(init=False)
    warmup: dict[str, Growing] = field(init=False)
    #: Time within the timed batches.
    measured_ns: int = 0

    def __post_init__(self) -> None:
        self.timed, self.warmup = (
            {phase: Growing(spool=self.spool) for phase in PHASES} for _ in range(2)
        )

    @property
    def side(self) -> SideKey:
        """The transport's side of the row."""
        if (loaded := self.work.pattern.loaded) is not None and loaded.alone is not None:
            return SideKey(place=LOADED)
        return SideKey(name_of(self.transport), IN_PLACE if self.work.in_place else "")

    def iterations_ns(self) -> Float64s:
        """The timed iterations so far; empty if this rank receives nothing."""
        times = self.timed["iteration"].array() if self.row.receives else np.zeros(0, np.int64)
        found: Float64s = mapped_arrays.empty(times.size, spool=self.spool)
        found[:] = times
        return found


class Measurement:
    """Measures rows on this rank; the counters of payload iterations never repeat in a run."""

    def __init__(
        self,
        world: World,
        workload: Workload,
        context: RankContext,
        transports: Sequence[Transport],
        journal: Journal | None,
        clock: CommonClock,
        end_by_ns: int,
        between_batches: Callable[[RowFacts, str, int], None] = lambda *batch: None,
    ) -> None:
        self._world = world
        self._settings = settings = workload.settings
        self._workload = workload
        self._context = context
        self._transports = transports
        self._journal = journal
        self._clock = clock
        self._row_clock: RowClock | None = None
        self._between_batches = between_batches
        self._batches = BatchRunner(world, settings, context, transports[0], clock, end_by_ns)

    def aside(self) -> Measurement:
        """One that measures rows of the plugin alone that nobody keeps, before this one does."""
        other = copy.copy(self)
        other._transports, other._journal = self._transports[:1], None
        other._between_batches = lambda *batch: None
        # Its iterations are not those of rows to come, whose payload so is another.
        other._batches = copy.copy(self._batches)
        other._batches.iteration = _ASIDE_ITERATION
        return other

    def measure(
        self, facts: RowFacts, plan: RowPlan, until: Until | None = None
    ) -> tuple[RankRow, RowFacts]:
        """Collective: run the warm-ups and iterations of a row; this rank's part, and the facts.

        The part is the first transport's, with the rows of the others beside it. With `until` the
        facts say how many iterations it took, and what ended it.
        """
        row = f"row {facts.index} ({format_size(facts.size_bytes)})"
        self._batches.where = f"{self._world.name(self._world.rank)}, {row}"
        try:
            return self._measure(facts, plan, until)
        except _native.CudaError as error:  # of what the main thread asks between batches
            raise PluginFailed(
                f"{self._batches.place()}: CUDA driver call {error} between two batches"
            ) from None

    def _measure(
        self, facts: RowFacts, plan: RowPlan, until: Until | None
    ) -> tuple[RankRow, RowFacts]:
        size = facts.size_bytes
        works = works_of(self._workload, self._world.rank, facts)
        able = [transport for transport in self._transports if transport.has(facts)]
        accounts = [self._account(transport, works[0], facts) for transport in able] + [
            self._account(transport, work, facts)
            for work in works[1:]
            for transport in able
            if transport is self._transports[0] or (work.in_place and transport.in_place)
        ]
        self._clock.begin_row(self.patience_s)
        self._batches.begin_row()
        self._in_turns(accounts, facts, plan, "warmup", plan.warmup_batches)
        if self._context.gpu is not None:
            self._context.gpu.before_row()
        rule = StoppingRule(plan, until)
        batches = self._in_turns(accounts, facts, plan, "timed", self._as_due(rule, accounts[0]))
        self._row_clock = self._clock.end_row(self.patience_s)
        facts = dataclasses.replace(facts, iterations=rule.done, ended_by=rule.ended_by)
        for account in accounts:
            self._complete(account, facts, batches)
            if self._settings.checks() and size:
                self._judge(account, facts.chunk_bytes)
        own, *others = accounts
        if self._context.gpu is not None:
            own.row.gpu = self._watch_unpack(self._context.gpu, own, facts, plan)
        own.row.sides = {account.side: account.row for account in others}
        return own.row, facts

    def join(self, facts: RowFacts, part: RankRow) -> Row | None:
        """Collective: the row of all ranks on rank 0, None elsewhere."""
        spool = self._settings.spool
        series = self._world.gather_series(series_of(part), "samples", self.patience_s, spool)
        parts = self._world.gather(counted(part), "results", self.patience_s)
        if series is None or parts is None:
            return None
        row = join_row(facts, parts, utc_now(), series, spool)
        return dataclasses.replace(row, clock=self._row_clock)

    def _in_turns(
        self,
        accounts: Sequence[_Account],
        facts: RowFacts,
        plan: RowPlan,
        kind: str,
        batches: Iterable[int],
    ) -> list[int]:
        """Collective: the batches of all transports in turns; returns how long they were."""
        done: list[int] = []
        for number, count in enumerate(batches):
            first = sum(done)
            self._between_batches(facts, kind, first)
            # ABBA: what drifts with time falls on all alike.
            for account in accounts if number % 2 == 0 else reversed(accounts):
                self._account_for(account, facts, plan, kind, first, count)
            done.append(count)
        return done

    def _as_due(self, rule: StoppingRule, own: _Account) -> Iterator[int]:
        """Collective where the row is open-ended: the timed batches, each when it is due."""
        began_ns = time.monotonic_ns()
        while count := rule.next_batch():
            yield count
            if rule.open_ended:
                elapsed_ns = time.monotonic_ns() - began_ns
                look = rule.own_look(own.measured_ns, elapsed_ns, own.iterations_ns)
                rule.take(self._world.allgather(look, "look at a row", self.patience_s))

    def _complete(self, account: _Account, facts: RowFacts, batches: Sequence[int]) -> None:
        """The result of a transport's row when its last batch is over."""
        row = account.row
        row.batches = np.array(batches, dtype=np.int64)
        row.samples, row.warmup = (
            {phase: series.array() for phase, series in kind.items()}
            for kind in (account.timed, account.warmup)
        )
        row.arrivals, row.arrival_blocks = account.arrivals.arrival_ns, account.arrivals.counts
        row.payload_bytes_sent, row.payload_bytes_received, remote = account.moved
        row.proof = account.observer.seen(remote)

    def _account_for(
        self, account: _Account, facts: RowFacts, plan: RowPlan, kind: str, first: int, count: int
    ) -> None:
        """Collective: one batch of one transport, from the poison to the journal."""
        work = account.work
        number = first if kind == "warmup" else facts.warmup_iterations + first
        turns = work.of_batch(number, count)
        self._batches.use(account.transport, work, facts, plan, turns)
        kept = (account.row, account.observer) if kind == "timed" else None
        batch = self._batches.run(work, plan, count, kept)
        if kept is not None:
            self._add_moved(account, turns, count)
        if self._settings.checks():
            told = account.row if kept is not None else None
            verdict = self._batches.check(told, count)
            account.verdicts.append(verdict)
            if verdict["first"] is not None and account.wrong_begins is None:
                number = verdict["first"]["iteration"] - self._batches.iteration
                account.wrong_begins = turns[number % len(turns)].wanted[:, 0]
        self._batches.iteration += count
        self._keep(account, kind, facts, first, batch)

    def _observer(self, transport: Transport) -> PlacementObserver:
        context = self._context
        threads = context.plugin_threads if transport.info is None else frozenset[int]()
        others = (each for each in self._transports if each is not transport)
        waiting = [pid for each in others for pid in each.processes]
        return PlacementObserver(transport.timed_loop, threads, context.interface, waiting=waiting)

    def _add_moved(self, account: _Account, turns: Sequence[RowWork], count: int) -> None:
        """The payload of a batch of so many iterations."""
        nodes = self._context.nodes
        here = nodes[self._world.rank]
        for work in turns:
            moved = (
                work.sent_bytes,
                work.received_bytes,
                work.remote_bytes(lambda peer: nodes[peer] == here),
            )
            for place, amount in enumerate(moved):
                account.moved[place] += amount * count // len(turns)

    def _account(self, transport: Transport, work: RowWork, facts: RowFacts) -> _Account:
        return _Account(
            transport,
            work,
            self._empty_row(facts, work),
            self._observer(transport),
            Arrivals(self._world.size),
            self._settings.spool,
        )

    def _empty_row(self, facts: RowFacts, work: RowWork) -> RankRow:
        schedule = work.schedule
        steps = step_bytes(schedule, work.layout)
        op = schedule.column(Column.OP)
        moved = steps.length[np.isin(op, REMOTE_OPS)]
        chunks = [chunks_of(int(n), facts.chunk_bytes) for n in moved]
        return RankRow(
            rank=self._world.rank,
            receives=schedule.receives,
            checked=self._settings.checks() and facts.size_bytes > 0,
            wrong=-1,
            chunks=sum(chunks),
            payload_bytes_sent=0,
            payload_bytes_received=0,
            prepare_ns=0,
            check_ns=0,
            cpu_user_ns=0,
            cpu_system_ns=0,
            cpu_others_ns=0,
            net_sent=0,
            net_received=0,
            tcp_retransmits=0,
            samples={},
            warmup={},
            batches=np.zeros(0, np.int64),
            batch_start=np.zeros(0, np.int64),
            late=np.zeros(0, np.bool_),
        )

    def report(self) -> tuple[str, ...]:
        """The state of every unfinished flow of this rank, or that no batch was under way."""
        return self._batches.report()

    @property
    def patience_s(self) -> float:
        """The time that a rank may be late for a collective after it has poisoned or checked its
        slots."""
        return self._batches.patience_s

    def writing_s(self, facts: RowFacts) -> float:
        """The time that rank 0 may take to write and summarise the samples of a row."""
        samples = facts.iterations * self._world.size * len(self._transports) * len(PHASES)
        return samples * 8 / _SLOWEST_WRITING_BYTES_PER_S

    def _watch_unpack(
        self, watch: GpuWatch, own: _Account, facts: RowFacts, plan: RowPlan
    ) -> GpuRow:
        """Collective: a batch that is not timed, in which the GPU notes its own times."""
        watch.after_row()
        if not watch.unpacks:
            return watch.row()
        iterations = min(plan.batch, _WATCHED_ITERATIONS)
        turns = own.work.of_batch(0, iterations)
        self._batches.use(own.transport, own.work, facts, plan, turns)
        self._batches.run(own.work, plan, iterations, None)
        self._batches.iteration += iterations
        return watch.row()

    def _judge(self, account: _Account, chunk_bytes: int) -> None:
        """Counts what was wrong: bytes, or elements, and bytes written behind a slot."""
        row, verdicts, work = account.row, account.verdicts, account.work
        row.wrong = sum(v["wrong"] + v["guard_wrong"] for v in verdicts)
        first = next((v["first"] for v in verdicts if v["first"] is not None), None)
        if first is None:
            return
        if work.elements is not None:
            how = "in place" if work.in_place else ""
            row.fault = wrong_element_text(self._world.rank, first, work.type_name, how)
            row.fault += cause_of(self._settings, first)
            return
        begins = account.wrong_begins if account.wrong_begins is not None else work.wanted[:, 0]
        block = int(begins[begins <= first["offset"]].max(initial=0))
        row.fault = wrong_bytes_text(self._world.rank, first, chunk_bytes, block)
        row.fault += cause_of(self._settings, first)

    def _keep(
        self, account: _Account, kind: str, facts: RowFacts, first: int, batch: Batch
    ) -> None:
        samples = account.warmup if kind == "warmup" else account.timed
        for phase, values in batch.samples.items():
            samples.setdefault(phase, Growing(spool=account.spool)).append(values)
        if kind == "timed":
            account.measured_ns += batch.elapsed_ns
            account.arrivals.add(batch.sources, batch.arrivals)
            if (most := self._settings.trace) > 0:
                kept = [account.row.trace, later(batch.trace, first)]
                account.row.trace = np.concatenate(kept)[-most:]
            account.row.batch_start = np.append(account.row.batch_start, batch.start_ns)
            account.row.late = np.append(account.row.late, batch.late)
        if self._journal is not None:
            self._journal.append_batch(
                facts.index, facts.size_bytes, kind, first, batch.samples, account.side
            )
