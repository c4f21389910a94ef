"""One row on one rank: poison, fill, start together, run, check; the samples of every batch."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi import _native
from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import PluginFailed
from tcpx_mpi.patterns import repeated
from tcpx_mpi.records import (
    PHASES,
    GpuRow,
    Journal,
    RankRow,
    Row,
    RowFacts,
    counted,
    join_row,
    mapped_arrays,
    series_of,
    utc_now,
)
from tcpx_mpi.records.mapped_arrays import Growing
from tcpx_mpi.run.stopping import StoppingRule, Until
from tcpx_mpi.schedule.pattern import Pattern, expected_bytes
from tcpx_mpi.schedule.table import BufferId, Column, Layout, Op, chunks_of, step_bytes
from tcpx_mpi.stragglers.arrivals import Arrivals
from tcpx_mpi.transport.errors import error_of, report_lines, wrong_bytes_text
from tcpx_mpi.transport.interface import GpuWatch, RankContext, Transport
from tcpx_mpi.transport.observed_placement import PlacementObserver
from tcpx_mpi.transport.samples import Batch, add_network, batch_of, joined_batch
from tcpx_mpi.transport.slots import GUARD_BYTES, RowPlan, slot_shape
from tcpx_mpi.units import format_size
from tcpx_mpi.world import World, interrupted_by

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]

#: An agreed start is this far ahead of a rank's clock at first: time to leave the collective and
#: wake the progress thread. A rank that comes late all the same doubles its lead from then on.
_FIRST_LEAD_NS = 500_000
_LONGEST_LEAD_NS = 8_000_000
#: Memory is poisoned and checked at more than this; a collective behind it may be that late.
_SLOWEST_CHECK_BYTES_PER_S = 500e6
#: Samples are written, sorted and summarised at more than this.
_SLOWEST_WRITING_BYTES_PER_S = 50e6

#: Of the batch in which a GPU times its own work: enough for a mean, and done at once.
_WATCHED_ITERATIONS = 16


@dataclass
class _Account:
    """One transport's part of a row, and the verdicts on its batches."""

    transport: Transport
    row: RankRow
    observer: PlacementObserver
    arrivals: Arrivals
    #: Where samples are that are too large for memory.
    spool: str
    verdicts: list[dict[str, Any]] = field(default_factory=list)
    #: Samples by phase, as they come.
    timed: dict[str, Growing] = field(init=False)
    warmup: dict[str, Growing] = field(init=False)
    #: Time within the timed batches.
    measured_ns: int = 0

    def __post_init__(self) -> None:
        self.timed, self.warmup = (
            {phase: Growing(spool=self.spool) for phase in PHASES} for _ in range(2)
        )

    def iterations_ns(self) -> Float64s:
        """The timed iterations so far; empty where this rank receives nothing."""
        times = self.timed["iteration"].array() if self.row.receives else np.zeros(0, np.int64)
        found: Float64s = mapped_arrays.empty(times.size, spool=self.spool)
        found[:] = times
        return found


#: The name of the plugin's own part in a row.
PLUGIN = ""


def name_of(transport: Transport) -> str:
    """The key of a transport's samples in a row."""
    return transport.info.name if transport.info is not None else PLUGIN


class Measurement:
    """Measures rows on this rank; the counters of payload iterations never repeat in a run."""

    def __init__(
        self,
        world: World,
        settings: Settings,
        pattern: Pattern,
        context: RankContext,
        transports: Sequence[Transport],
        journal: Journal | None,
        shared_clock: bool,
        end_by_ns: int,
        between_batches: Callable[[RowFacts, str, int], None] = lambda *batch: None,
    ) -> None:
        self._world = world
        self._settings = settings
        self._whole = self._pattern = pattern
        self._context = context
        self._transports = transports
        self._transport = transports[0]  # whose batch is, or was, the last one
        self._journal = journal
        self._shared_clock = shared_clock
        self._end_by_ns = end_by_ns
        self._between_batches = between_batches
        self._iteration = 0
        self._lead_ns = _FIRST_LEAD_NS
        self._spans: dict[BufferId, Int64s] = {}
        self._where = ""

    def measure(
        self, facts: RowFacts, plan: RowPlan, until: Until | None = None
    ) -> tuple[RankRow, RowFacts]:
        """Collective: run the warm-ups and iterations of a row; this rank's part, and the facts.

        The part is the first transport's, with the rows of the others beside it. With `until` the
        facts say how many iterations it took, and what ended it.
        """
        row = f"row {facts.index} ({format_size(facts.size_bytes)})"
        self._where = f"{self._world.name(self._world.rank)}, {row}"
        try:
            return self._measure(facts, plan, until)
        except _native.CudaError as error:  # of what the main thread asks between batches
            raise PluginFailed(
                f"{self._place()}: CUDA driver call {error} between two batches"
            ) from None

    def _measure(
        self, facts: RowFacts, plan: RowPlan, until: Until | None
    ) -> tuple[RankRow, RowFacts]:
        size = facts.size_bytes
        self._begin_round(facts)
        layout = self._load(facts, plan)
        accounts = [
            _Account(
                transport,
                self._empty_row(facts, layout),
                self._observer(transport),
                Arrivals(self._world.size),
                self._settings.spool,
            )
            for transport in self._transports
        ]
        self._in_turns(accounts, facts, plan, "warmup", plan.warmup_batches)
        if self._context.gpu is not None:
            self._context.gpu.before_row()
        rule = StoppingRule(plan, until)
        batches = self._in_turns(accounts, facts, plan, "timed", self._as_due(rule, accounts[0]))
        facts = dataclasses.replace(facts, iterations=rule.done, ended_by=rule.ended_by)
        for account in accounts:
            self._complete(account, facts, layout, batches)
            if self._settings.checks() and size:
                self._judge(account.row, account.verdicts, facts.chunk_bytes)
        own, *beside = accounts
        if self._context.gpu is not None:
            own.row.gpu = self._watch_unpack(self._context.gpu, own.transport, facts, plan)
        own.row.against = {name_of(account.transport): account.row for account in beside}
        return own.row, facts

    def join(self, facts: RowFacts, part: RankRow) -> Row | None:
        """Collective: the row of all ranks on rank 0, None elsewhere."""
        spool = self._settings.spool
        series = self._world.gather_series(series_of(part), "samples", self.patience_s, spool)
        parts = self._world.gather(counted(part), "results", self.patience_s)
        if series is None or parts is None:
            return None
        return join_row(facts, parts, utc_now(), series, spool)

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

    def _complete(
        self, account: _Account, facts: RowFacts, layout: Any, batches: Sequence[int]
    ) -> None:
        """What is known of a transport's row when its last batch is over."""
        row = account.row
        row.batches = np.array(batches, dtype=np.int64)
        row.samples = {phase: account.timed[phase].array() for phase in PHASES}
        row.warmup = {phase: account.warmup[phase].array() for phase in PHASES}
        row.arrivals, row.arrival_blocks = account.arrivals.arrival_ns, account.arrivals.counts
        row.proof = account.observer.seen(self._remote_bytes(facts, layout))
        schedule = self._context.schedule
        steps, op = step_bytes(schedule, layout), schedule.column(Column.OP)
        row.payload_bytes_sent = int(steps.length[op == Op.SEND].sum()) * facts.iterations
        row.payload_bytes_received = int(steps.length[op == Op.RECV].sum()) * facts.iterations

    def _account_for(
        self, account: _Account, facts: RowFacts, plan: RowPlan, kind: str, first: int, count: int
    ) -> None:
        """Collective: one batch of one transport, from the poison to the journal."""
        row = account.row
        self._transport = account.transport
        batch = self._run_batch(facts, plan, count, account if kind == "timed" else None)
        if self._settings.checks():
            account.verdicts.append(self._check(count, row))
        self._iteration += count
        self._keep(account, kind, facts, first, batch)

    def _observer(self, transport: Transport) -> PlacementObserver:
        context = self._context
        threads = context.plugin_threads if transport.info is None else frozenset[int]()
        others = (each for each in self._transports if each is not transport)
        waiting = [pid for each in others for pid in each.processes]
        return PlacementObserver(transport.timed_loop, threads, context.interface, waiting=waiting)

    def _remote_bytes(self, facts: RowFacts, layout: Layout) -> int:
        """Payload of the timed iterations that goes to, or comes from, other nodes."""
        schedule, nodes = self._context.schedule, self._context.nodes
        here = nodes[self._world.rank]
        lengths: list[int] = step_bytes(schedule, layout).length.tolist()
        peers = schedule.column(Column.PEER).tolist()
        steps = zip(lengths, peers, strict=True)
        remote = sum(length for length, peer in steps if peer >= 0 and nodes[peer] != here)
        return remote * facts.iterations

    # --- Before the batches ----------------------------------------------------------------------

    def _begin_round(self, facts: RowFacts) -> None:
        """Where rounds differ, this row's takes the place of the pattern as a whole."""
        rank, world = self._world.rank, self._world.size
        rounds = self._whole.rounds_run(world, self._settings.all_pairs)
        if len(rounds) > 1:
            self._pattern = rounds[facts.cycle % len(rounds)]
            if facts.pairs and self._whole.of_pairs is not None:
                self._pattern = repeated(self._whole.of_pairs(facts.pairs), facts.agg)
            schedule = self._pattern.schedule(rank, world)
            self._context = dataclasses.replace(self._context, schedule=schedule)

    def _load(self, facts: RowFacts, plan: RowPlan) -> Any:
        rank, world = self._world.rank, self._world.size
        layout = self._pattern.layout(rank, world, facts.size_bytes)
        for transport in self._transports:
            for buffer, memory in transport.buffers.items():
                shape = slot_shape(layout[buffer].total_bytes)
                memory.cut(shape.used_bytes, GUARD_BYTES, shape.stride_bytes, plan.slots)
            transport.load(self._context, facts, layout, plan.batch)
        whole = layout[BufferId.SEND].total_bytes
        self._spans = {
            BufferId.SEND: np.array([[0, whole, rank, 0]] if whole else [], np.int64).reshape(
                -1, 4
            ),
            BufferId.RECV: expected_bytes(self._pattern, rank, world, facts.size_bytes),
        }
        return layout

    def _empty_row(self, facts: RowFacts, layout: Any) -> RankRow:
        schedule = self._context.schedule
        steps = step_bytes(schedule, layout)
        op = schedule.column(Column.OP)
        chunks = [chunks_of(int(n), facts.chunk_bytes) for n in steps.length[op != Op.COPY]]
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

    # --- One batch -------------------------------------------------------------------------------

    def _run_batch(
        self, facts: RowFacts, plan: RowPlan, count: int, account: _Account | None
    ) -> Batch:
        """Collective. `account` is told what the batch cost; None for warm-ups."""
        prepare_ns = self._prepare(plan)
        patience = self.patience_s
        before = self._transport.timed_loop.sockets()
        if account is not None:
            account.observer.before()
        if self._settings.blocking:
            parts = [self._run_loop(slot, 1, patience) for slot in range(count)]
        else:
            parts = [self._run_loop(0, count, patience)]
        # Pairs of ranks go on by themselves, and one may take many times as long as another.
        self._world.barrier("end of a batch", patience, moving=True)
        after = self._transport.timed_loop.sockets()
        if account is not None:
            account.observer.after(after)
            row = account.row
            row.prepare_ns += prepare_ns
            row.cpu_user_ns += sum(part[1][0] for part in parts)
            row.cpu_system_ns += sum(part[1][1] for part in parts)
            row.cpu_others_ns += sum(part[1][2] for part in parts)
            add_network(row, before, after)
        return joined_batch([part[0] for part in parts])

    def _prepare(self, plan: RowPlan) -> int:
        """Fill the send slots and poison the receive slots, all of them; returns ns."""
        start = time.monotonic_ns()
        buffers, seed = self._transport.buffers, self._settings.seed
        fresh = self._settings.checks() or self._iteration == 0
        if fresh and BufferId.SEND in buffers:
            buffers[BufferId.SEND].fill(
                0, plan.slots, self._iteration, seed, self._spans[BufferId.SEND]
            )
        if fresh and BufferId.RECV in buffers:
            buffers[BufferId.RECV].poison(
                0, plan.slots, self._iteration, seed, self._spans[BufferId.RECV]
            )
        return time.monotonic_ns() - start

    def _run_loop(
        self, first_slot: int, count: int, patience_s: float
    ) -> tuple[Batch, tuple[int, int, int]]:
        """Collective: start together, wait for the loop; what it stamped and its CPU time."""
        loop = self._transport.timed_loop
        loop.arm(count)
        start_ns = self._agree_start(patience_s)
        stall_ns = int(self._settings.stall_timeout_s * 1e9)
        if 0 < self._end_by_ns < _native.now_ns():  # a short batch does not look at the clock
            limits = {"timeout_s": self._settings.timeout_s, "stall_timeout_s": 0.0}
            raise error_of({"kind": "timeout"}, (), self._place(), self._world.places, limits)
        loop.start(first_slot, count, start_ns, stall_ns, self._end_by_ns)
        while not loop.wait(0.25):
            self._show_progress()
            # Of MPI no more than this while the plugin moves anything, and in long batches only.
            if self._world.roll_call.alarmed():
                loop.request_stop()
            elif loop.idle_ns() < stall_ns:
                self._world.roll_call.answer_inquiries()
        self._show_progress()  # asked for in the last moments of a batch, or of a short one
        self._raise_fault()
        batch = batch_of(loop.stamps(count))
        if batch.late:
            self._lead_ns = min(2 * self._lead_ns, _LONGEST_LEAD_NS)
        return batch, loop.cpu_time()

    def _show_progress(self) -> None:
        """Prints the picture that SIGUSR1 asked the engine for, if it has taken one."""
        if self._transport.timed_loop.take_picture_ready():
            lines = self._picture_lines()
            print("\n".join(lines), file=sys.stderr)

    def _agree_start(self, patience_s: float) -> int:
        """The instant at which all ranks start: on one clock an agreed one, else 0 for "now"."""
        if not self._shared_clock:
            self._world.barrier("start of a batch", patience_s)
            return 0
        ready_ns = _native.now_ns() + self._lead_ns
        return self._world.maximum(ready_ns, "start of a batch", patience_s)

    def _raise_fault(self) -> None:
        fault = self._transport.timed_loop.fault()
        if fault is not None:
            limits = {
                "stall_timeout_s": self._settings.stall_timeout_s,
                "timeout_s": self._settings.timeout_s,
            }
            picture = self._transport.timed_loop.picture()
            raise error_of(fault, picture, self._place(), self._world.places, limits)
        if signal_number := _native.stop_signal():
            raise interrupted_by(signal_number)

    def report(self) -> tuple[str, ...]:
        """Where every unfinished flow of this rank stands, or that no batch was under way."""
        if self._transport.timed_loop.fault() is None:
            return (f"{self._where}: between two batches, with nothing posted",)
        return self._picture_lines()

    def _picture_lines(self) -> tuple[str, ...]:
        picture = self._transport.timed_loop.picture()
        return report_lines(picture, self._place(), self._world.places)

    def _place(self) -> str:
        """Where this rank is, and which baseline was at work if it was not the plugin."""
        name = name_of(self._transport)
        return self._where + (f", peer {name}" if name != PLUGIN else "")

    @property
    def patience_s(self) -> float:
        """How late a rank may come to a collective after it has poisoned or checked its slots."""
        memory: int = sum(buffer.bytes for buffer in self._context.buffers.values())
        return self._settings.stall_timeout_s + memory / _SLOWEST_CHECK_BYTES_PER_S

    def writing_s(self, facts: RowFacts) -> float:
        """How long rank 0 may take to write and summarise the samples of a row."""
        samples = facts.iterations * self._world.size * len(self._transports) * len(PHASES)
        return samples * 8 / _SLOWEST_WRITING_BYTES_PER_S

    def _watch_unpack(
        self, watch: GpuWatch, transport: Transport, facts: RowFacts, plan: RowPlan
    ) -> GpuRow:
        """Collective: a batch that is not timed, in which the GPU notes its own times."""
        watch.after_row()
        self._transport = transport
        iterations = min(plan.batch, _WATCHED_ITERATIONS)
        self._run_batch(facts, plan, iterations, None)
        self._iteration += iterations
        return watch.row()

    # --- After a batch ---------------------------------------------------------------------------

    def _check(self, count: int, row: RankRow) -> dict[str, Any]:
        start = time.monotonic_ns()
        verdict: dict[str, Any] = {"wrong": 0, "guard_wrong": 0}
        if BufferId.RECV in self._transport.buffers:
            verdict = self._transport.buffers[BufferId.RECV].verify(
                0, count, self._iteration, self._settings.seed, self._spans[BufferId.RECV]
            )
        row.check_ns += time.monotonic_ns() - start
        return verdict

    def _judge(self, row: RankRow, verdicts: list[dict[str, Any]], chunk_bytes: int) -> None:
        row.wrong = sum(int(v["wrong"]) + int(v["guard_wrong"]) for v in verdicts)
        first = next((v for v in verdicts if "found" in v), None)
        if first is not None:
            begins = self._spans[BufferId.RECV][:, 0]
            block = int(begins[begins <= first["offset"]].max(initial=0))
            row.fault = wrong_bytes_text(self._world.rank, first, chunk_bytes, block)

    def _keep(
        self, account: _Account, kind: str, facts: RowFacts, first: int, batch: Batch
    ) -> None:
        samples = account.warmup if kind == "warmup" else account.timed
        for phase, values in batch.samples.items():
            samples[phase].append(values)
        if kind == "timed":
            account.measured_ns += int(batch.samples["iteration"].sum())
            account.arrivals.add(batch.sources, batch.arrivals)
            account.row.batch_start = np.append(account.row.batch_start, batch.start_ns)
            account.row.late = np.append(account.row.late, batch.late)
        if self._journal is not None:
            name = name_of(account.transport)
            self._journal.append_batch(
                facts.index, facts.size_bytes, kind, first, batch.samples, name
            )
