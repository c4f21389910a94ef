"""The MPI baseline: the same schedule by mpi4py's non-blocking sends and receives on host buffers,
or for a program of nccl-tests MPI's own collective (`mpi_collectives`).

Over TCP alone: `world.start` keeps Open MPI and MPICH from shared memory where this one is asked
for; a library that goes another way all the same is known by its sockets, which carry nothing. The
library's sockets are in this process, so they are given the plugin's congestion control here, once
they are connected. Over which interface they go was decided at the launch (btl_tcp_if_include):
what was decided is in the header, and a warning where it is not the plugin's.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from tcpx_mpi import _native
from tcpx_mpi.baselines import Connection
from tcpx_mpi.baselines.mpi_collectives import CollectiveLoop, lacks, lacks_text
from tcpx_mpi.baselines.python_loop import PythonLoop, cpu_times
from tcpx_mpi.errors import SetupFailed
from tcpx_mpi.machine.congestion import to_ask_for
from tcpx_mpi.records import BaselineInfo, RowFacts
from tcpx_mpi.schedule.table import BufferId, Column, Layout, Op, step_bytes
from tcpx_mpi.transport.interface import RankContext, Transport, Turn
from tcpx_mpi.transport.observed_placement import Kernel
from tcpx_mpi.transport.slots import slot_shape
from tcpx_mpi.workload import Workload
from tcpx_mpi.world import World, library_version
from tcpx_mpi.world.library import load

KIND = "mpi"
#: Receives posted ahead to each peer, as the plugin's receive window.
_AHEAD = 16
#: So close to the agreed start the core is kept.
_SPIN_NS = 20_000
_POLLS_A_LOOK = 64
#: Counts of an MPI call are an int: a longer message goes in pieces.
_MOST_BYTES = 1 << 30


class _Flow:
    """The messages to, or from, one rank on one lane, in order. Slot k has turn k, and so on in
    turn."""

    def __init__(self, op: Op, peer: int, lane: int, turns: int) -> None:
        self.op, self.peer, self.tag = op, peer, lane
        #: By turn: (step, its predecessors, the memory of each of the turn's slots) of every piece
        #: of an iteration.
        self.pieces: list[list[tuple[int, list[int], list[Any]]]] = [[] for _ in range(turns)]

    def rewind(self, first_slot: int, iterations: int) -> None:
        """To the begin of a batch."""
        self._first, self._iterations = first_slot, iterations
        self.iteration = self.piece = self.posted = self.completed = 0
        self._pass_empty()

    def of(self, iteration: int) -> list[tuple[int, list[int], list[Any]]]:
        """The pieces of an iteration of the batch."""
        return self.pieces[(self._first + iteration) % len(self.pieces)]

    def next(self) -> tuple[int, list[int], Any]:
        """Step, predecessors and memory of the next piece."""
        step, preds, memory = self.of(self.iteration)[self.piece]
        return step, preds, memory[(self._first + self.iteration) // len(self.pieces)]

    def took(self) -> None:
        self.posted += 1
        self.piece += 1
        if self.piece == len(self.of(self.iteration)):
            self.piece = 0
            self.iteration += 1
            self._pass_empty()

    def _pass_empty(self) -> None:
        while self.iteration < self._iterations and not self.of(self.iteration):
            self.iteration += 1

    def report(self, idle_ns: int) -> _native.FlowReport:
        """Worked out when it is asked for, and not counted in the loop."""
        pieces = [
            (iteration, step, int(memory[0].size))
            for iteration in range(self._iterations)
            for step, _, memory in self.of(iteration)
        ]
        iteration, step, size = (pieces[self.completed :] or pieces[:1] or [(0, 0, 0)])[0]
        return _native.FlowReport(
            kind="send" if self.op == Op.SEND else "receive",
            peer=self.peer,
            lane=self.tag,
            window=_AHEAD,
            posted=self.posted,
            arrived=self.completed,
            completed=self.completed,
            bytes=sum(bytes_of for _, _, bytes_of in pieces[: self.completed]),
            finished=self.completed == len(pieces),
            oldest_iteration=iteration,
            oldest_step=step,
            oldest_bytes=size,
            oldest_age_ns=idle_ns if self.posted > self.completed else -1,
        )


class _Parts:
    """The parts of an iteration of one turn."""

    def __init__(self) -> None:
        #: Step, predecessors, the memory of both ends by slot; of a pause none, and how long it is.
        self.copies: list[tuple[int, list[int], list[Any], list[Any], int]] = []
        #: Pieces of each step, and of all sends and receives.
        self.of_step: list[int] = []
        self.sends = self.receives = 0


class MpiLoop(PythonLoop):
    """Runs a batch on the calling thread, while it is waited for."""

    def __init__(self, comm: Any, sockets: Any, yields: bool) -> None:
        super().__init__()
        self._comm = comm
        self._sockets = sockets
        self._yields = yields
        self._kernel = Kernel()
        self._flows: list[_Flow] = []
        self._parts: list[_Parts] = []

    def load(self, context: RankContext, layout: Layout, slots: int) -> None:
        """The row to come; `slots` is the longest batch."""
        turns = context.turns or [Turn(context.schedule, layout)]
        flows: dict[tuple[int, int, int], _Flow] = {}
        self._parts = []
        for number, turn in enumerate(turns):
            of_turn = range(number, slots, len(turns))
            self._parts.append(self._load_turn(flows, context, layout, turn, of_turn))
        for flow in flows.values():
            flow.pieces += [[] for _ in range(len(turns) - len(flow.pieces))]
        self._flows = list(flows.values())

    def _load_turn(
        self,
        flows: dict[tuple[int, int, int], _Flow],
        context: RankContext,
        layout: Layout,
        turn: Turn,
        slots: Sequence[int],
    ) -> _Parts:
        """Loads the work of iterations in these slots, which are cut by `layout`."""
        spans, parts, number = step_bytes(*turn), _Parts(), len(self._parts)

        def memory(buffer: int, offset: int, length: int) -> list[Any]:
            whole = context.buffers[BufferId(buffer)].view()
            stride = slot_shape(layout[BufferId(buffer)].total_bytes).stride_bytes
            first = (k * stride + offset for k in slots)
            return [whole[at : at + length] for at in first]

        for step, row in enumerate(turn.schedule.table.tolist()):
            preds = [row[c] for c in (Column.PRED0, Column.PRED1) if row[c] >= 0]
            length = int(spans.length[step])
            source, target = int(spans.src_offset[step]), int(spans.dst_offset[step])
            if row[Column.OP] == Op.COPY:
                here = memory(row[Column.SRC_BUFFER], source, length)
                there = memory(row[Column.DST_BUFFER], target, length)
                parts.copies.append((step, preds, here, there, 0))
                parts.of_step.append(1)
                continue
            if row[Column.OP] == Op.PAUSE:
                pause_ns = row[Column.BLOCKS] * 1000
                parts.copies.append((step, preds, [], [], pause_ns))
                parts.of_step.append(1)
                continue
            sends = row[Column.OP] == Op.SEND
            buffer = row[Column.SRC_BUFFER] if sends else row[Column.DST_BUFFER]
            key = (row[Column.OP], row[Column.PEER], row[Column.LANE])
            flow = flows.setdefault(key, _Flow(Op(key[0]), *key[1:], number + 1))
            flow.pieces += [[] for _ in range(number + 1 - len(flow.pieces))]
            begins = range(0, max(length, 1), _MOST_BYTES)
            for begin in begins:
                at = (source if sends else target) + begin
                part = memory(buffer, at, min(_MOST_BYTES, length - begin))
                flow.pieces[number].append((step, preds, part))
            parts.of_step.append(len(begins))
            if sends:
                parts.sends += len(begins)
            else:
                parts.receives += len(begins)
        return parts

    # --- As a timed loop -------------------------------------------------------------------------

    def start(
        self, first_slot: int, iterations: int, start_ns: int, stall_ns: int, end_by_ns: int
    ) -> None:
        self._begin(_native.now_ns(), stall_ns, end_by_ns)
        self._first, self._iterations, self._start_ns = first_slot, iterations, start_ns
        self._begun = False
        self._pause_ends_ns = 0  # of the one under way; 0: none is
        self._open = 0
        if len(self._parts) > 1:  # of few iterations
            self._ready(first_slot, iterations)
        self._stamps = self._armed | {"start": start_ns, "late": False}
        for flow in self._flows:
            flow.rewind(first_slot, iterations)
        #: (iteration, number of the copy in it) that is next.
        self._next_copy = (0, 0)
        self._requests: list[Any] = []
        self._owners: list[tuple[_Flow, int, int]] = []
        self._cpu_before = cpu_times()

    def arm(self, iterations: int) -> None:
        self._ready(0, iterations)

    def _ready(self, first_slot: int, iterations: int) -> None:
        parts = [self._parts[(first_slot + k) % len(self._parts)] for k in range(iterations)]
        #: By iteration, pieces of each step that are not complete.
        self._left = [bytearray(each.of_step) for each in parts]
        self._steps_left = [len(each.of_step) for each in parts]
        self._sends_left = [each.sends for each in parts]
        self._receives_left = [each.receives for each in parts]
        self._armed = {
            name: np.full(iterations, -1, np.int64) for name in ("end", "send_done", "receive_done")
        }

    def wait(self, seconds: float) -> bool:
        """Drive the batch; see `TimedLoop.wait`."""
        give_up_ns = _native.now_ns() + int(seconds * 1e9)
        if not self._begun and not self._wait_for_start(give_up_ns):
            return False
        polls = 0
        while self._open < self._iterations:
            polls += 1
            moved = self._post()
            moved |= self._test()
            moved |= self._copy()
            if moved:
                self._moved = True
            elif self._yields:
                os.sched_yield()
            if polls % _POLLS_A_LOOK == 0:
                self._look_around()
                if self._fault is not None:
                    break
                if _native.now_ns() > give_up_ns:
                    return False
        before, after = self._cpu_before, cpu_times()
        user, system, thread = (b - a for a, b in zip(before, after, strict=True))
        self._cpu = (user, system, max(user + system - thread, 0))
        return True

    def thread_id(self) -> int:
        return os.getpid()  # MPI is called by the main thread

    def cpus_seen(self) -> list[int]:
        return [self._kernel.thread(os.getpid()).cpu]

    def picture(self) -> list[_native.FlowReport]:
        return [flow.report(self.idle_ns()) for flow in self._flows]

    def sockets(self) -> _native.SocketTotals:
        return _totals(self._sockets)

    # --- Inside ----------------------------------------------------------------------------------

    def _wait_for_start(self, give_up_ns: int) -> bool:
        now = _native.now_ns()
        begins = False  # what is counted of the batch: waiting for others is no part of it
        while now < self._start_ns:
            if now > give_up_ns:
                return False
            if self._start_ns - now > _SPIN_NS:
                os.sched_yield()
            elif not begins:
                self._cpu_before, begins = cpu_times(), True
            now = _native.now_ns()
        if not begins:
            self._cpu_before = cpu_times()
        self._stamps["late"] = self._start_ns != 0 and now - self._start_ns > _SPIN_NS
        self._stamps["start"] = self._start_ns or now
        self._end_iterations(self._stamps["start"])
        self._begun, self._moved = True, False
        self._progress_ns = now
        return True

    def _post(self) -> bool:
        moved = False
        for flow in self._flows:
            receives = flow.op == Op.RECV
            while flow.iteration < self._iterations:
                if receives:
                    if flow.posted - flow.completed >= _AHEAD:
                        break
                # The engine's rule: what sends begins when the iteration before is complete.
                elif flow.iteration > self._open:
                    break
                step, preds, data = flow.next()
                if any(self._left[flow.iteration][pred] for pred in preds):
                    break
                post = self._comm.Irecv if receives else self._comm.Isend
                self._requests.append(post(data, flow.peer, flow.tag))
                self._owners.append((flow, flow.iteration, step))
                flow.took()
                moved = True
        return moved

    def _test(self) -> bool:
        if not self._requests:
            return False
        done = self._requests[0].Testsome(self._requests)
        if not done:
            return False
        now = _native.now_ns()
        for index in done:
            flow, iteration, step = self._owners[index]
            flow.completed += 1
            left = self._sends_left if flow.op == Op.SEND else self._receives_left
            left[iteration] -= 1
            if left[iteration] == 0:
                name = "send_done" if flow.op == Op.SEND else "receive_done"
                self._stamps[name][iteration] = now
            self._finish_piece(step, iteration, now)
        for index in sorted(done, reverse=True):
            del self._requests[index], self._owners[index]
        return True

    def _copy(self) -> bool:
        moved = False
        iteration, number = self._next_copy
        while iteration < self._iterations:
            slot = self._first + iteration
            copies = self._parts[slot % len(self._parts)].copies
            if number == len(copies):
                iteration, number = iteration + 1, 0
                continue
            step, preds, source, target, pause_ns = copies[number]
            if iteration > self._open or any(self._left[iteration][pred] for pred in preds):
                break
            if pause_ns and not self._pause_over(pause_ns):
                break
            if source:
                place = slot // len(self._parts)
                target[place][:] = source[place]
            number += 1
            self._finish_piece(step, iteration, _native.now_ns())
            moved = True
        self._next_copy = (iteration, number)
        return moved

    def _pause_over(self, pause_ns: int) -> bool:
        """Of a pause that may begin, or has begun."""
        now = _native.now_ns()
        if self._pause_ends_ns == 0:
            self._pause_ends_ns = now + pause_ns
        if now < self._pause_ends_ns:
            return False
        self._pause_ends_ns = 0
        return True

    def _finish_piece(self, step: int, iteration: int, now: int) -> None:
        self._left[iteration][step] -= 1
        if self._left[iteration][step] == 0:
            self._steps_left[iteration] -= 1
        self._end_iterations(now)

    def _end_iterations(self, now: int) -> None:
        """Those of which nothing is left."""
        while self._open < self._iterations and self._steps_left[self._open] == 0:
            self._stamps["end"][self._open] = now
            self._open += 1

    def _look_around(self) -> None:
        if self._moved:
            self._progress_ns, self._moved = _native.now_ns(), False
        super()._look_around()


class MpiBaseline:
    """The MPI baseline on one rank."""

    processes = ()
    in_place = False

    def __init__(
        self,
        info: BaselineInfo,
        loop: MpiLoop | CollectiveLoop,
        buffers: dict[BufferId, Any],
        reduces: bool,
    ) -> None:
        self.info = info
        self.timed_loop = loop
        self.buffers = buffers
        self._reduces = reduces

    def has(self, facts: RowFacts) -> bool:
        return not (self._reduces and lacks(facts.type_name, facts.redop))

    def load(
        self, context: RankContext, facts: RowFacts, layout: Layout, longest_batch: int
    ) -> None:
        loop = self.timed_loop
        if isinstance(loop, CollectiveLoop):
            loop.load(context, facts, layout, longest_batch)
        else:
            loop.load(context, layout, longest_batch)

    def close(self) -> None:
        """MPI is closed with the world."""


def prepare(
    world: World, workload: Workload, context: RankContext, connection: Connection
) -> list[Transport]:
    """Collective: meet every neighbour, so that the library connects; set its sockets alike."""
    schedule = context.schedule
    neighbours = {peer for peer, _ in (*schedule.peers_sent, *schedule.peers_received)}
    call = workload.program.mpi
    if call:  # whoever the library's algorithm has this rank talk to
        neighbours = set(workload.origins(world.rank)) - {world.rank}
    comm = world.acquainted(neighbours, workload.settings.connect_timeout_s)
    with world.agree("mpi peer"):
        if call and not world.roll_call.may_be_called_at_once():
            raise SetupFailed(
                f"mpi peer: {library_version()} has no MPI_THREAD_MULTIPLE, which its collectives "
                "need here; leave mpi out of --against"
            )
        sockets = _native.TcpSockets(set(connection.plugin_sockets))
        name = to_ask_for(connection.congestion_control)
        if name and not sockets.set_congestion_control(name):
            raise SetupFailed(f"mpi peer: the kernel refuses congestion control {name}")
    totals = sockets.totals()
    mine = set(filter(None, totals["interfaces"].split(",")))
    # The launcher's daemon of this node is reached by loopback, whatever goes between ranks.
    mine = mine - {"lo"} or mine
    everywhere = world.allgather(sorted(mine), "mpi peer's interfaces")
    info = BaselineInfo(
        name=KIND,
        kind=KIND,
        streams=0,
        two_way=True,
        congestion_control=totals["congestion_control"],
        send_buffer_bytes=0,
        description=_description(workload, totals["count"]),
        interfaces=",".join(sorted({name for names in everywhere for name in names})),
    )
    yields = context.placement.oversubscribed
    loop: MpiLoop | CollectiveLoop = MpiLoop(comm, sockets, yields)
    if call:
        number = workload.numbers[world.rank]
        group = comm.Split(number, world.rank) if workload.settings.groups() else comm
        loop = CollectiveLoop(call, group, load(), functools.partial(_totals, sockets))
    return [MpiBaseline(info, loop, context.buffers, workload.program.reduces)]


def _description(workload: Workload, sockets: int) -> str:
    call = workload.program.mpi
    parts = [f"{library_version()} by mpi4py", *([f"MPI_{call}"] if call else [])]
    parts.append(f"{sockets} TCP sockets on rank 0")
    return ", ".join([*parts, *filter(None, [lacks_text(workload)])])


def _totals(sockets: _native.TcpSockets) -> _native.SocketTotals:
    totals = sockets.totals()
    # These are all that the process has beside the plugin's: none at all carried 0 bytes.
    return totals if totals["count"] else {**totals, "count": 1, "readable": 1}
