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
from tcpx_mpi.transport.interface import RankContext, Transport
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
    """The messages to, or from, one rank on one lane, in order."""

    def __init__(self, op: Op, peer: int, lane: int) -> None:
        self.op, self.peer, self.tag = op, peer, lane
        #: (step, its predecessors, the memory of each slot) of every piece of an iteration.
        self.pieces: list[tuple[int, list[int], list[Any]]] = []
        self.iteration = self.piece = self.posted = self.completed = 0

    def bytes_completed(self) -> int:
        """In this batch; worked out for a report, not counted in the loop."""
        sizes = [int(memory[0].size) for _, _, memory in self.pieces]
        iterations, more = divmod(self.completed, len(sizes))
        return iterations * sum(sizes) + sum(sizes[:more])


class MpiLoop(PythonLoop):
    """Runs a batch on the calling thread, while it is waited for."""

    def __init__(self, comm: Any, sockets: Any, yields: bool) -> None:
        super().__init__()
        self._comm = comm
        self._sockets = sockets
        self._yields = yields
        self._kernel = Kernel()
        self._flows: list[_Flow] = []
        self._copies: list[tuple[int, list[int], list[Any], list[Any]]] = []
        self._pieces_of_step: list[int] = []

    def load(self, context: RankContext, layout: Layout, slots: int) -> None:
        """The row to come; `slots` is the longest batch."""
        table, spans = context.schedule.table, step_bytes(context.schedule, layout)
        flows: dict[tuple[int, int, int], _Flow] = {}
        self._copies, self._pieces_of_step = [], []

        def memory(buffer: int, offset: int, length: int) -> list[Any]:
            whole = context.buffers[BufferId(buffer)].view()
            stride = slot_shape(layout[BufferId(buffer)].total_bytes).stride_bytes
            first = (k * stride + offset for k in range(slots))
            return [whole[at : at + length] for at in first]

        for step, row in enumerate(table.tolist()):
            preds = [row[c] for c in (Column.PRED0, Column.PRED1) if row[c] >= 0]
            length = int(spans.length[step])
            source, target = int(spans.src_offset[step]), int(spans.dst_offset[step])
            if row[Column.OP] == Op.COPY:
                here = memory(row[Column.SRC_BUFFER], source, length)
                there = memory(row[Column.DST_BUFFER], target, length)
                self._copies.append((step, preds, here, there))
                self._pieces_of_step.append(1)
                continue
            sends = row[Column.OP] == Op.SEND
            buffer = row[Column.SRC_BUFFER] if sends else row[Column.DST_BUFFER]
            key = (row[Column.OP], row[Column.PEER], row[Column.LANE])
            flow = flows.setdefault(key, _Flow(Op(key[0]), *key[1:]))
            begins = range(0, max(length, 1), _MOST_BYTES)
            for begin in begins:
                at = (source if sends else target) + begin
                part = memory(buffer, at, min(_MOST_BYTES, length - begin))
                flow.pieces.append((step, preds, part))
            self._pieces_of_step.append(len(begins))
        self._flows = list(flows.values())

    # --- As a timed loop -------------------------------------------------------------------------

    def start(
        self, first_slot: int, iterations: int, start_ns: int, stall_ns: int, end_by_ns: int
    ) -> None:
        self._begin(_native.now_ns(), stall_ns, end_by_ns)
        self._first, self._iterations, self._start_ns = first_slot, iterations, start_ns
        self._begun = False
        self._open = 0
        self._stamps = self._armed | {"start": start_ns, "late": False}
        for flow in self._flows:
            flow.iteration = flow.piece = flow.posted = flow.completed = 0
        self._copies_done = 0
        self._requests: list[Any] = []
        self._owners: list[tuple[_Flow, int, int]] = []
        self._cpu_before = cpu_times()

    def arm(self, iterations: int) -> None:
        steps = len(self._pieces_of_step)
        #: Pieces of each step that are not complete, by iteration.
        self._left = [bytearray([n] * iterations) for n in self._pieces_of_step]
        self._steps_left = [steps] * iterations
        self._sends_left = [sum(1 for f in self._flows if f.op == Op.SEND for _ in f.pieces)] * (
            iterations
        )
        self._receives_left = [
            sum(1 for f in self._flows if f.op == Op.RECV for _ in f.pieces)
        ] * iterations
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
        return [
            _native.FlowReport(
                kind="send" if flow.op == Op.SEND else "receive",
                peer=flow.peer,
                lane=flow.tag,
                window=_AHEAD,
                posted=flow.posted,
                arrived=flow.completed,
                completed=flow.completed,
                bytes=flow.bytes_completed(),
                finished=flow.completed == self._iterations * len(flow.pieces),
                oldest_iteration=flow.completed // max(len(flow.pieces), 1),
                oldest_step=flow.pieces[flow.completed % len(flow.pieces)][0],
                oldest_bytes=flow.pieces[flow.completed % len(flow.pieces)][2][0].size,
                oldest_age_ns=self.idle_ns() if flow.posted > flow.completed else -1,
            )
            for flow in self._flows
        ]

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
        if not self._pieces_of_step:
            self._stamps["end"][:] = self._stamps["start"]
            self._open = self._iterations
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
                step, preds, memory = flow.pieces[flow.piece]
                if any(self._left[pred][flow.iteration] for pred in preds):
                    break
                data = memory[self._first + flow.iteration]
                post = self._comm.Irecv if receives else self._comm.Isend
                self._requests.append(post(data, flow.peer, flow.tag))
                self._owners.append((flow, flow.iteration, step))
                flow.posted += 1
                flow.piece += 1
                if flow.piece == len(flow.pieces):
                    flow.piece = 0
                    flow.iteration += 1
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
        while self._copies and self._copies_done < self._iterations * len(self._copies):
            iteration, number = divmod(self._copies_done, len(self._copies))
            step, preds, source, target = self._copies[number]
            if iteration > self._open or any(self._left[pred][iteration] for pred in preds):
                break
            slot = self._first + iteration
            target[slot][:] = source[slot]
            self._copies_done += 1
            self._finish_piece(step, iteration, _native.now_ns())
            moved = True
        return moved

    def _finish_piece(self, step: int, iteration: int, now: int) -> None:
        self._left[step][iteration] -= 1
        if self._left[step][iteration] == 0:
            self._steps_left[iteration] -= 1
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
