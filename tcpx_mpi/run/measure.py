"""One row on one rank: poison, fill, start together, run, check; the samples of every batch."""

from __future__ import annotations

import copy
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
    IN_PLACE,
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
from tcpx_mpi.run.program_rows import ProgramRows
from tcpx_mpi.run.stopping import StoppingRule, Until
from tcpx_mpi.schedule.elements import ElementType
from tcpx_mpi.schedule.pattern import Pattern, expected_bytes, held_bytes
from tcpx_mpi.schedule.table import (
    RECEIVE_OPS,
    REMOTE_OPS,
    BufferId,
    Column,
    Layout,
    Op,
    chunks_of,
    step_bytes,
)
from tcpx_mpi.stragglers.arrivals import Arrivals
from tcpx_mpi.transport.element_group import ElementGroup
from tcpx_mpi.transport.errors import (
    error_of,
    report_lines,
    wrong_bytes_text,
    wrong_element_text,
)
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

#: The first iteration of what is measured aside.
_ASIDE_ITERATION = 1 << 40

#: Of the batch in which a GPU times its own work: enough for a mean, and done at once.
_WATCHED_ITERATIONS = 16


@dataclass(frozen=True, eq=False)
class _Work:
    """What a row does on this rank: out of place, or in place."""

    pattern: Pattern
    context: RankContext
    layout: Layout
    #: Where the payload stands at the start, and what RECV must hold at the end: int64[n, 4] of
    #: offset, bytes, sender and offset in its payload.
    held: Int64s
    wanted: Int64s
    #: Of elements that are judged as such; None: bytes.
    elements: ElementGroup | None = None
    type_name: str = ""

    @property
    def in_place(self) -> bool:
        return self.pattern.held is not None

    @property
    def payload_buffer(self) -> BufferId:
        return BufferId.RECV if self.in_place else BufferId.SEND


@dataclass
class _Account:
    """One transport's part of a row, and the verdicts on its batches."""

    transport: Transport
    work: _Work
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

    @property
    def name(self) -> str:
        """The key of its samples in a row."""
        return IN_PLACE if self.work.in_place else name_of(self.transport)

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
        program: ProgramRows | None = None,
    ) -> None:
        """`program`: what a program of nccl-tests runs in a row; `pattern` then only connects."""
        self._world = world
        self._settings = settings
        self._whole = pattern
        self._program = program
        self._context = context
        self._transports = transports
        self._transport = transports[0]  # whose batch is, or was, the last one
        self._journal = journal
        self._shared_clock = shared_clock
        self._end_by_ns = end_by_ns
        self._between_batches = between_batches
        self._iteration = 0
        self._lead_ns = _FIRST_LEAD_NS
        #: What the buffers are cut for, by whom it is loaded, and whether its payload is there.
        self._work: _Work | None = None
        self._loaded: list[Transport] = []
        self._filled = False
        self._where = ""

    def aside(self) -> Measurement:
        """One that measures rows of the plugin alone that nobody keeps, before this one does."""
        other = copy.copy(self)
        other._transports, other._journal = self._transports[:1], None
        other._between_batches = lambda *batch: None
        # Its iterations are not those of rows to come, whose payload so is another.
        other._iteration = _ASIDE_ITERATION
        return other

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
        works = self._works(facts)
        able = [transport for transport in self._transports if transport.has(facts)]
        accounts = [self._account(transport, works[0], facts) for transport in able] + [
            self._account(self._transports[0], work, facts) for work in works[1:]
        ]
        self._work = None
        self._in_turns(accounts, facts, plan, "warmup", plan.warmup_batches)
        if self._context.gpu is not None:
            self._context.gpu.before_row()
        rule = StoppingRule(plan, until)
        batches = self._in_turns(accounts, facts, plan, "timed", self._as_due(rule, accounts[0]))
        facts = dataclasses.replace(facts, iterations=rule.done, ended_by=rule.ended_by)
        for account in accounts:
            self._complete(account, facts, batches)
            if self._settings.checks() and size:
                self._judge(account, facts.chunk_bytes)
        own, *beside = accounts
        if self._context.gpu is not None:
            own.row.gpu = self._watch_unpack(self._context.gpu, own, facts, plan)
        own.row.against = {account.name: account.row for account in beside}
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

    def _complete(self, account: _Account, facts: RowFacts, batches: Sequence[int]) -> None:
        """What is known of a transport's row when its last batch is over."""
        row, work = account.row, account.work
        row.batches = np.array(batches, dtype=np.int64)
        row.samples = {phase: account.timed[phase].array() for phase in PHASES}
        row.warmup = {phase: account.warmup[phase].array() for phase in PHASES}
        row.arrivals, row.arrival_blocks = account.arrivals.arrival_ns, account.arrivals.counts
        row.proof = account.observer.seen(self._remote_bytes(facts, work))
        schedule = work.context.schedule
        steps, op = step_bytes(schedule, work.layout), schedule.column(Column.OP)
        received = np.isin(op, RECEIVE_OPS)
        row.payload_bytes_sent = int(steps.length[op == Op.SEND].sum()) * facts.iterations
        row.payload_bytes_received = int(steps.length[received].sum()) * facts.iterations

    def _account_for(
        self, account: _Account, facts: RowFacts, plan: RowPlan, kind: str, first: int, count: int
    ) -> None:
        """Collective: one batch of one transport, from the poison to the journal."""
        self._use(account, facts, plan)
        batch = self._run_batch(account.work, plan, count, account if kind == "timed" else None)
        if self._settings.checks():
            account.verdicts.append(self._check(account, count))
        self._iteration += count
        self._keep(account, kind, facts, first, batch)

    def _observer(self, transport: Transport) -> PlacementObserver:
        context = self._context
        threads = context.plugin_threads if transport.info is None else frozenset[int]()
        others = (each for each in self._transports if each is not transport)
        waiting = [pid for each in others for pid in each.processes]
        return PlacementObserver(transport.timed_loop, threads, context.interface, waiting=waiting)

    def _remote_bytes(self, facts: RowFacts, work: _Work) -> int:
        """Payload of the timed iterations that goes to, or comes from, other nodes."""
        schedule, nodes = work.context.schedule, self._context.nodes
        here = nodes[self._world.rank]
        lengths: list[int] = step_bytes(schedule, work.layout).length.tolist()
        peers = schedule.column(Column.PEER).tolist()
        steps = zip(lengths, peers, strict=True)
        remote = sum(length for length, peer in steps if peer >= 0 and nodes[peer] != here)
        return remote * facts.iterations

    # --- Before the batches ----------------------------------------------------------------------

    def _works(self, facts: RowFacts) -> list[_Work]:
        """What the row runs: out of place, and in place where nccl-tests has that."""
        if self._program is not None:
            program = self._program
            places = (False, True) if program.program.in_place else (False,)
            return [self._work_of(facts, program.pattern(facts, place)) for place in places]
        pattern = self._whole
        rounds = self._whole.rounds_run(self._world.size, self._settings.all_pairs)
        if len(rounds) > 1:  # this row's takes the place of the pattern as a whole
            pattern = rounds[facts.cycle % len(rounds)]
            if facts.pairs and self._whole.of_pairs is not None:
                pattern = repeated(self._whole.of_pairs(facts.pairs), facts.agg)
        return [self._work_of(facts, pattern)]

    def _work_of(self, facts: RowFacts, pattern: Pattern) -> _Work:
        rank, world, size = self._world.rank, self._world.size, facts.size_bytes
        layout = pattern.layout(rank, world, size)
        context = dataclasses.replace(self._context, schedule=pattern.schedule(rank, world))
        wanted = expected_bytes(pattern, rank, world, size)
        held = held_bytes(pattern, rank, world, size)
        if self._program is None:
            return _Work(pattern, context, layout, held, wanted)
        kind, op = ElementType.of_label(facts.type_name), self._program.reduce_op(facts)
        if op is None:
            elements = ElementGroup(int(kind), -1, world)
            return _Work(pattern, context, layout, held, wanted, elements, facts.type_name)
        origins = self._program.origins(rank)
        index = origins.index(rank)
        elements = ElementGroup(int(kind), int(op), len(origins), origins)
        held[:, 2] = index
        # What comes out is of the whole group, whoever put in what.
        wanted[:, 2] = 0
        wanted = np.unique(wanted, axis=0)
        arithmetic = (int(kind), int(op), op.factor(index, len(origins)))
        context = dataclasses.replace(context, arithmetic=arithmetic)
        return _Work(pattern, context, layout, held, wanted, elements, facts.type_name)

    def _use(self, account: _Account, facts: RowFacts, plan: RowPlan) -> None:
        """The buffers cut for an account's work, and its transport ready for it."""
        work, transport = account.work, account.transport
        self._transport = transport
        if self._work is not work:
            self._work, self._loaded, self._filled = work, [], False
        if transport in self._loaded:
            return
        for buffer, memory in transport.buffers.items():
            shape = slot_shape(work.layout[buffer].total_bytes)
            memory.cut(shape.used_bytes, GUARD_BYTES, shape.stride_bytes, plan.slots)
        transport.load(work.context, facts, work.layout, plan.batch)
        self._loaded.append(transport)
        self._filled = False

    def _account(self, transport: Transport, work: _Work, facts: RowFacts) -> _Account:
        return _Account(
            transport,
            work,
            self._empty_row(facts, work),
            self._observer(transport),
            Arrivals(self._world.size),
            self._settings.spool,
        )

    def _empty_row(self, facts: RowFacts, work: _Work) -> RankRow:
        schedule = work.context.schedule
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

    # --- One batch -------------------------------------------------------------------------------

    def _run_batch(self, work: _Work, plan: RowPlan, count: int, account: _Account | None) -> Batch:
        """Collective. `account` is told what the batch cost; None for warm-ups."""
        prepare_ns = self._prepare(work, plan)
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

    def _prepare(self, work: _Work, plan: RowPlan) -> int:
        """Poison the receive slots and put the payload into its own, all of them; returns ns."""
        start = time.monotonic_ns()
        buffers, seed = self._transport.buffers, self._settings.seed
        # In place an iteration overwrites its payload, so the next one would compute with results.
        if self._settings.checks() or not self._filled or work.in_place:
            of_slots = (0, plan.slots, self._iteration, seed)
            payload = work.payload_buffer
            if BufferId.RECV in buffers:
                if work.elements is None:
                    buffers[BufferId.RECV].poison(*of_slots, work.wanted)
                else:
                    buffers[BufferId.RECV].poison_elements(*of_slots, work.wanted, work.elements)
            if payload in buffers:
                if work.elements is None:
                    buffers[payload].fill(*of_slots, work.held)
                else:
                    buffers[payload].fill_elements(*of_slots, work.held, work.elements)
            self._filled = True
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
        # The rank whose time ran out first need not be the one whose plugin knows why.
        said = _native.plugin_said_within(self._settings.stall_timeout_s)
        return (*self._picture_lines(), *([f"    {said.removeprefix('; ')}"] if said else ()))

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
        self, watch: GpuWatch, own: _Account, facts: RowFacts, plan: RowPlan
    ) -> GpuRow:
        """Collective: a batch that is not timed, in which the GPU notes its own times."""
        watch.after_row()
        self._use(own, facts, plan)
        iterations = min(plan.batch, _WATCHED_ITERATIONS)
        self._run_batch(own.work, plan, iterations, None)
        self._iteration += iterations
        return watch.row()

    # --- After a batch ---------------------------------------------------------------------------

    def _check(self, account: _Account, count: int) -> dict[str, Any]:
        start = time.monotonic_ns()
        verdict: dict[str, Any] = {"wrong": 0, "guard_wrong": 0}
        work = account.work
        if BufferId.RECV in self._transport.buffers:
            memory = self._transport.buffers[BufferId.RECV]
            of_slots = (0, count, self._iteration, self._settings.seed, work.wanted)
            if work.elements is None:
                verdict = memory.verify(*of_slots)
            else:
                verdict = memory.verify_elements(*of_slots, work.elements)
        account.row.check_ns += time.monotonic_ns() - start
        return verdict

    def _judge(self, account: _Account, chunk_bytes: int) -> None:
        """Counts what was wrong: bytes, or elements, and bytes written behind a slot."""
        row, verdicts, work = account.row, account.verdicts, account.work
        row.wrong = sum(int(v["wrong"]) + int(v["guard_wrong"]) for v in verdicts)
        first = next((v for v in verdicts if "found" in v), None)
        if first is None:
            return
        if work.elements is not None:
            how = "in place" if work.in_place else ""
            row.fault = wrong_element_text(self._world.rank, first, work.type_name, how)
            return
        begins = work.wanted[:, 0]
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
            name = account.name
            self._journal.append_batch(
                facts.index, facts.size_bytes, kind, first, batch.samples, name
            )
