"""One batch of a row on one rank: poison, fill, start together, run, check."""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Iterator, Sequence

from tcpx_mpi import _native
from tcpx_mpi.config.settings import Settings
from tcpx_mpi.records import RankRow, RowFacts
from tcpx_mpi.run.common_clock import CommonClock
from tcpx_mpi.schedule.table import BufferId
from tcpx_mpi.transport.errors import error_of, report_lines
from tcpx_mpi.transport.interface import RankContext, Transport, Turn
from tcpx_mpi.transport.observed_placement import PlacementObserver
from tcpx_mpi.transport.samples import Batch, add_network, batch_of, joined_batch
from tcpx_mpi.transport.slots import GUARD_BYTES, RowPlan, slot_shape
from tcpx_mpi.workload.row_work import RowWork
from tcpx_mpi.world import World, interrupted_by
from tcpx_mpi.world.patience import memory_patience_s

#: An agreed start is this far ahead of a rank's clock at first: time to leave the collective and
#: wake the progress thread. A rank that comes late all the same doubles its lead from then on.
_FIRST_LEAD_NS = 500_000
_LONGEST_LEAD_NS = 8_000_000
#: A loop that is to end and has not looked around for so long is in a call that does not return.
_STUCK_NS = 500_000_000
#: The name of the plugin's own part in a row.
PLUGIN = ""


def name_of(transport: Transport) -> str:
    """The key of a transport's samples in a row."""
    return transport.info.name if transport.info is not None else PLUGIN


class BatchRunner:
    """Runs batches on this rank; the counters of payload iterations never repeat in a run."""

    def __init__(
        self,
        world: World,
        settings: Settings,
        context: RankContext,
        transport: Transport,
        clock: CommonClock,
        end_by_ns: int,
    ) -> None:
        self._world = world
        self._settings = settings
        self._context = context
        self._transport = transport  # whose batch is, or was, the last one
        self._clock = clock
        self._end_by_ns = end_by_ns
        self._lead_ns = _FIRST_LEAD_NS
        #: The first iteration of the next batch.
        self.iteration = 0
        #: This rank and its row, as messages name them.
        self.where = ""
        #: What the buffers are cut for, by whom it is loaded, and whether its payload is there.
        self._work: RowWork | None = None
        self._loaded: list[Transport] = []
        self._filled = False
        #: Of the batch: one for all of its slots, or one each.
        self._turns: Sequence[RowWork] = ()

    def begin_row(self) -> None:
        """The buffers are cut anew, even for the work that they are cut for."""
        self._work = None

    def use(
        self,
        transport: Transport,
        work: RowWork,
        facts: RowFacts,
        plan: RowPlan,
        turns: Sequence[RowWork],
    ) -> None:
        """The buffers cut for what a row does, and a transport ready for it; `turns`: of the
        batch to come (`RowWork.of_batch`)."""
        self._transport, self._turns = transport, turns
        if self._work is not work:
            self._work, self._loaded, self._filled = work, [], False
        if transport in self._loaded and work.turn is None:
            return
        for buffer, memory in transport.buffers.items():
            shape = slot_shape(work.layout[buffer].total_bytes)
            memory.cut(shape.used_bytes, GUARD_BYTES, shape.stride_bytes, plan.slots)
        context = dataclasses.replace(
            self._context,
            schedule=work.schedule,
            arithmetic=work.arithmetic,
            turns=[Turn(each.schedule, each.layout) for each in turns] if work.turn else (),
            longest_message=lambda: work.longest_bytes,
        )
        transport.load(context, facts, work.layout, plan.batch)
        self._loaded.append(transport)
        self._filled = False

    def run(
        self,
        work: RowWork,
        plan: RowPlan,
        count: int,
        kept: tuple[RankRow, PlacementObserver] | None,
    ) -> Batch:
        """Collective. `kept`: who learns what the batch cost; None for warm-ups."""
        prepare_ns = self._prepare(work, plan)
        patience = self.patience_s
        before = self._transport.timed_loop.sockets()
        if kept is not None:
            kept[1].before()
        lanes = work.pattern.loaded.timed_lanes if work.pattern.loaded is not None else None
        if self._settings.blocking:
            after_ns = self._stagger_ns(work)
            parts = [self._run_loop(slot, 1, patience, lanes, after_ns) for slot in range(count)]
        else:
            parts = [self._run_loop(0, count, patience, lanes)]
        # Pairs of ranks go on by themselves, and one may take many times as long as another.
        self._world.barrier("end of a batch", patience, while_alive=True)
        after = self._transport.timed_loop.sockets()
        if kept is not None:
            row, observer = kept
            observer.after(after)
            row.prepare_ns += prepare_ns
            row.cpu_user_ns += sum(part[1][0] for part in parts)
            row.cpu_system_ns += sum(part[1][1] for part in parts)
            row.cpu_others_ns += sum(part[1][2] for part in parts)
            add_network(row, before, after)
        return joined_batch([part[0] for part in parts])

    def _stagger_ns(self, work: RowWork) -> int:
        """The time from the agreed instant to the start of this rank."""
        if work.pattern.place is None or not self._settings.stagger_s:
            return 0
        place = work.pattern.place(self._world.rank, self._world.size)
        return int(place * self._settings.stagger_s * 1e9)

    def _prepare(self, work: RowWork, plan: RowPlan) -> int:
        """Poison the receive slots and put the payload into its own, all of them; returns ns."""
        start = time.monotonic_ns()
        buffers, seed = self._transport.buffers, self._settings.seed
        # In place an iteration overwrites its payload, so the next one would compute with results.
        if self._settings.checks() or not self._filled or work.in_place:
            payload = work.payload_buffer
            for each, first, count in self._stretches(plan.slots):
                of_slots = (first, count, self.iteration + first, seed)
                if BufferId.RECV in buffers:
                    memory = buffers[BufferId.RECV]
                    if each.elements is None:
                        memory.poison(*of_slots, each.wanted)
                    else:
                        memory.poison_elements(*of_slots, each.wanted, each.elements)
                if payload in buffers:
                    if each.elements is None:
                        buffers[payload].fill(*of_slots, each.held)
                    else:
                        buffers[payload].fill_elements(*of_slots, each.held, each.elements)
            self._filled = True
        return time.monotonic_ns() - start

    def _stretches(self, slots: int) -> Iterator[tuple[RowWork, int, int]]:
        """The stretches of the first so many slots: first slot and number of each."""
        if len(self._turns) == 1:
            yield self._turns[0], 0, slots
            return
        for slot, each in enumerate(self._turns[:slots]):
            yield each, slot, 1

    def _run_loop(
        self, first_slot: int, count: int, patience_s: float,
        timed_lanes: tuple[int, int] | None, after_ns: int = 0,
    ) -> tuple[Batch, tuple[int, int, int]]:  # fmt: skip
        """Collective: start together, or so long after the common instant; wait for the loop; what
        it stamped and its CPU time."""
        loop = self._transport.timed_loop
        loop.arm(count)
        start_ns = self._clock.agreed_start(self._lead_ns, "start of a batch", patience_s)
        start_ns += after_ns
        stall_ns = int(self._settings.stall_timeout_s * 1e9)
        if 0 < self._end_by_ns < _native.now_ns():  # a short batch does not look at the clock
            limits = {"timeout_s": self._settings.timeout_s, "stall_timeout_s": 0.0}
            raise error_of(_native.Fault("timeout"), (), self.place(), self._world.places, limits)
        loop.start(first_slot, count, start_ns, stall_ns, self._end_by_ns)
        while not loop.wait(0.25):
            self._show_progress()
            # Of MPI no more than this while the plugin moves anything, and in long batches only.
            told_to_stop = bool(_native.stop_signal())
            if alarmed := self._world.roll_call.alarmed():
                loop.request_stop()
            elif loop.idle_ns() < stall_ns:
                self._world.roll_call.answer_inquiries()
            if loop.stuck_ns() > (_STUCK_NS if alarmed or told_to_stop else stall_ns):
                loop.give_up()
                break
        self._show_progress()  # asked for in the last moments of a batch, or of a short one
        self._raise_fault()
        batch = batch_of(loop.stamps(count), timed_lanes)
        if batch.late:
            self._lead_ns = min(2 * self._lead_ns, _LONGEST_LEAD_NS)
        return batch, loop.cpu_time()

    def _show_progress(self) -> None:
        """Prints the picture that SIGUSR1 asked the engine for, if it has taken one."""
        if self._transport.timed_loop.take_picture_ready():
            lines = self._picture_lines()
            print("\n".join(lines), file=sys.stderr)

    def _raise_fault(self) -> None:
        fault = self._transport.timed_loop.fault()
        if fault is not None and not (fault.kind == "hang" and _native.stop_signal()):
            limits = {
                "stall_timeout_s": self._settings.stall_timeout_s,
                "timeout_s": self._settings.timeout_s,
            }
            picture = self._transport.timed_loop.picture()
            raise error_of(fault, picture, self.place(), self._world.places, limits)
        if signal_number := _native.stop_signal():
            raise interrupted_by(signal_number)

    def check(self, kept: RankRow | None, count: int) -> _native.Verdict:
        """The verdict on what the last batch received, `count` iterations of it; `kept` gets
        what that cost; it is None in a warm-up."""
        start = time.monotonic_ns()
        verdict: _native.Verdict = {"wrong": 0, "guard_wrong": 0, "first": None}
        if BufferId.RECV in self._transport.buffers:
            memory = self._transport.buffers[BufferId.RECV]
            for each, first, slots in self._stretches(count):
                of_slots = (
                    first, slots, self.iteration + first, self._settings.seed, each.wanted,
                )  # fmt: skip
                if each.elements is None:
                    found = memory.verify(*of_slots)
                else:
                    found = memory.verify_elements(*of_slots, each.elements)
                verdict = {
                    "wrong": verdict["wrong"] + found["wrong"],
                    "guard_wrong": verdict["guard_wrong"] + found["guard_wrong"],
                    "first": verdict["first"] or found["first"],
                }
        if kept is not None:
            kept.check_ns += time.monotonic_ns() - start
        return verdict

    def report(self) -> tuple[str, ...]:
        """The state of every unfinished flow of this rank, or that no batch was under way."""
        if self._transport.timed_loop.fault() is None:
            return (f"{self.where}: between two batches, with nothing posted",)
        # The rank whose time ran out first need not be the one whose plugin knows why.
        said = _native.plugin_warned_within(self._settings.stall_timeout_s)
        return (*self._picture_lines(), *([f"    {said.removeprefix('; ')}"] if said else ()))

    def _picture_lines(self) -> tuple[str, ...]:
        picture = self._transport.timed_loop.picture()
        return report_lines(picture, self.place(), self._world.places)

    def place(self) -> str:
        """The place of this rank, and the baseline that was at work if it was not the plugin."""
        name = name_of(self._transport)
        return self.where + (f", peer {name}" if name != PLUGIN else "")

    @property
    def patience_s(self) -> float:
        """The time that a rank may be late for a collective after it has poisoned or checked its
        slots."""
        memory: int = sum(buffer.bytes for buffer in self._context.buffers.values())
        most = max(memory, self._context.most_memory_bytes)
        return self._settings.stall_timeout_s + memory_patience_s(most)
