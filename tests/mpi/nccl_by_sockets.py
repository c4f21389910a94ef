"""Stands in for NCCL where there is no GPU: host slots, TCP sockets, and a thread for a stream.

A companion imports it by TCPX_MPI_NCCL_BACKEND. Work is queued and runs later, in order, as on a
stream; what is grouped moves together. BY_SOCKETS_FAULT=KIND:RANK:WHEN makes the companion of a
rank go wrong at its WHENth group: see `_Fault`.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import queue
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from tcpx_mpi import _native
from tcpx_mpi.baselines.nccl.backend import Backend, BackendError, Collective, Memory, PointToPoint
from tcpx_mpi.schedule.elements import ReduceOp

FAULT_VARIABLE = "BY_SOCKETS_FAULT"
#: The version of NCCL that it says to be.
VERSION_VARIABLE = "BY_SOCKETS_VERSION"
_HELLO = struct.Struct("<iB")
#: Where a rank listens, and what it moves the memory of.
Place = tuple[tuple[str, int], str]


def open_backend(gpu_pci: str) -> Backend:
    fault = fault_here()
    if fault.kind == "missing":
        raise BackendError("NCCL", -1, "needs what is not here: install it")
    return SocketBackend(fault)


def fault_here() -> _Fault:
    """What is to go wrong in this process, or nothing."""
    return _Fault(os.environ.get(FAULT_VARIABLE, ""))


class _Fault:
    """What goes wrong: "die" (killed), "hang", "error" (NCCL's internal one), "wrong" (a byte),
    "refused" (to connect), "defect" (an exception of its own), "restless" (busy while it waits),
    "missing" (nothing to move bytes by)."""

    def __init__(self, text: str) -> None:
        self.kind, _, rest = text.partition(":")
        self.rank, _, self.when = rest.partition(":")
        self._groups = 0

    def now(self, rank: int, *kinds: str) -> bool:
        return self.kind in kinds and str(rank) == self.rank

    def after_groups(self, rank: int) -> str:
        """The kind, once as many groups as it waits for have been met."""
        self._groups += 1
        return self.kind if self.now(rank, self.kind) and self._groups == int(self.when) else ""


class SocketBackend:
    """A communicator of the ranks' companions."""

    def __init__(self, fault: _Fault) -> None:
        self._fault = fault
        self._rank = -1
        self._slots: list[object] = []
        self._marks: list[int] = []
        self._failure: BackendError | None = None
        self._out: dict[int, socket.socket] = {}
        self._in: dict[int, socket.socket] = {}
        self._queue: queue.Queue[tuple[str, object]] = queue.Queue()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        threading.Thread(target=self._stream, daemon=True).start()

    def facts(self) -> dict[str, str]:
        version = os.environ.get(VERSION_VARIABLE, "22809")
        name = f"sockets of {os.environ['NCCL_NET']}"
        return {"name": name, "model": "none", "version": version, "capability": "90"}

    def unique_id(self) -> tuple[str, int]:
        address: tuple[str, int] = self._listener.getsockname()
        return address

    def connect(self, unique_id: tuple[str, int], rank: int, world: int) -> None:
        self._rank = rank
        if self._fault.now(rank, "refused"):
            raise BackendError("ncclCommInitRank", 5, "invalid usage")
        places = self._agree(unique_id, rank, world)
        if len({gpu for _, gpu in places}) < world:
            raise BackendError("ncclCommInitRank", 5, "duplicate GPU detected")
        for peer in range(world):
            self._out[peer] = socket.create_connection(places[peer][0])
            self._out[peer].sendall(_HELLO.pack(rank, 0))
        while len(self._in) < world:
            accepted, _ = self._listener.accept()
            peer, _ = _HELLO.unpack(_exactly(accepted, _HELLO.size))
            self._in[peer] = accepted
        for each in (*self._out.values(), *self._in.values()):
            each.setblocking(False)
        if self._fault.now(rank, "restless"):
            threading.Thread(target=_spin, daemon=True).start()

    def allocate(self, size: int) -> Memory:
        slots = _native.SlotBuffer(size)
        self._slots.append(slots)
        return Memory(slots, slots.view().ctypes.data)

    def group(self, transfers: Sequence[PointToPoint]) -> None:
        self._queue.put(("group", list(transfers)))

    def collectives(self, calls: Sequence[Collective]) -> None:
        self._queue.put(("collectives", list(calls)))

    def reserve(self, marks: int) -> None:
        self._marks = [-1] * marks

    def record(self, mark: int) -> None:
        self._marks[mark] = -1
        self._queue.put(("mark", mark))

    def reached(self, mark: int) -> bool:
        time.sleep(0)  # two cores and more processes: the thread of the stream needs one
        return self._marks[mark] >= 0

    def ns_between(self, first: int, last: int) -> int:
        return self._marks[last] - self._marks[first]

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        for each in (*self._out.values(), *self._in.values()):
            each.close()

    # --- Where bytes are, where that is not the host

    def gpu(self) -> str:
        """What no two ranks may have alike."""
        return str(os.getpid())

    def opened(self, each: PointToPoint) -> memoryview:
        """The bytes of a transfer, as the host can read and write them while it is under way."""
        return memoryview((ctypes.c_char * each.length).from_address(each.address)).cast("B")

    def closed(self, each: PointToPoint, memory: memoryview) -> None:
        """The transfer is complete."""

    # --- Inside ----------------------------------------------------------------------------------

    def _agree(self, address: tuple[str, int], rank: int, world: int) -> list[Place]:
        """Where every rank listens, and its GPU, by way of rank 0."""
        mine: Place = (self._listener.getsockname(), self.gpu())
        if rank:
            with socket.create_connection(address) as root:
                root.sendall(_HELLO.pack(rank, 1) + _packed(mine))
                return list(_unpacked(root))
        places = {0: mine}
        callers = []
        while len(places) < world:
            caller, _ = self._listener.accept()
            peer, _ = _HELLO.unpack(_exactly(caller, _HELLO.size))
            places[peer] = _unpacked(caller)
            callers.append(caller)
        everywhere = [places[peer] for peer in range(world)]
        for caller in callers:
            caller.sendall(_packed(everywhere))
            caller.close()
        return everywhere

    def _stream(self) -> None:
        while True:
            what, content = self._queue.get()
            if what == "mark":
                self._marks[content] = _native.now_ns()
                continue
            try:
                if what == "group":
                    self._move(content)  # type: ignore[arg-type]  # a list of them
                else:
                    for each in content:  # type: ignore[attr-defined]  # a list of them
                        self._collect(each)
            except OSError as error:
                self._failure = BackendError("ncclGroup", 6, f"remote error: {error}")
                return

    def _move(self, transfers: list[PointToPoint]) -> None:
        wrong = self._goes_wrong()
        memories = [self.opened(each) for each in transfers]
        self._exchange(list(zip(transfers, memories, strict=True)), wrong)
        for each, memory in zip(transfers, memories, strict=True):
            self.closed(each, memory)

    def _collect(self, call: Collective) -> None:
        """Everybody's input goes to everybody, and each rank computes what it is to have."""
        wrong = self._goes_wrong()
        ranks, dtype, redop = len(self._out), call.element.dtype, call.redop
        parts = ranks if call.call == "ncclReduceScatter" else 1
        size = call.elements * call.element.bytes
        with_source = PointToPoint(True, self._rank, call.source, size * parts)
        mine = bytes(self.opened(with_source))
        if redop == ReduceOp.MULSUM:
            mine = (np.frombuffer(mine, dtype) * np.array(call.factor, dtype)).tobytes()
        theirs = [bytearray(len(mine)) for _ in range(ranks)]
        steps = [
            (PointToPoint(True, peer, 0, len(mine)), memoryview(mine)) for peer in range(ranks)
        ]
        steps += [
            (PointToPoint(False, peer, 0, len(mine)), memoryview(memory))
            for peer, memory in enumerate(theirs)
        ]
        self._exchange(steps, wrong=False)
        inputs = [np.frombuffer(memory, dtype) for memory in theirs]
        match call.call:
            case "ncclBroadcast":
                result = inputs[call.root]
            case "ncclAllGather":
                result = np.concatenate(inputs)
            case _:
                assert redop is not None
                result = _reduced(inputs, redop)
        if call.call == "ncclReduceScatter":
            result = result[self._rank * call.elements :][: call.elements]
        if call.call == "ncclReduce" and self._rank != call.root:
            return
        target = PointToPoint(False, self._rank, call.target, result.nbytes)
        memory = self.opened(target)
        memory[:] = result.tobytes()
        if wrong:
            memory[0] ^= 1
        self.closed(target, memory)

    def _goes_wrong(self) -> bool:
        """Meets the fault where it is due; whether a byte is to arrive wrong."""
        match self._fault.after_groups(self._rank):
            case "die":
                print("killed on purpose", file=sys.stderr, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                threading.Event().wait()
            case "error":
                self._failure = BackendError("ncclGroup", 3, "internal error")
                threading.Event().wait()  # as work on a GPU, it just never ends
            case "wrong":
                return True
        return False

    def _exchange(self, left: list[tuple[PointToPoint, memoryview]], wrong: bool) -> None:
        left = [(each, memory) for each, memory in left if len(memory)]
        while left:
            # Of several for one peer the first: they come in the order in which they go.
            firsts = {(each.sends, each.peer): number for number, (each, _) in
                      reversed(list(enumerate(left)))}  # fmt: skip
            for number in sorted(firsts.values(), reverse=True):
                each, memory = left[number]
                moved = self._step(each, memory)
                if wrong and not each.sends and moved:
                    memory[0] ^= 1
                    wrong = False
                if moved == len(memory):
                    del left[number]
                else:
                    left[number] = (each, memory[moved:])
            if left:
                self._wait(left)

    def _step(self, each: PointToPoint, memory: memoryview) -> int:
        end = (self._out if each.sends else self._in)[each.peer]
        try:
            if each.sends:
                return end.send(memory)
            received = end.recv_into(memory)
        except BlockingIOError:
            return 0
        if not received:
            raise ConnectionError("the other side has closed")
        return received

    def _wait(self, left: list[tuple[PointToPoint, memoryview]]) -> None:
        poll = select.poll()
        for each, _ in left:
            end = (self._out if each.sends else self._in)[each.peer]
            poll.register(end, select.POLLOUT if each.sends else select.POLLIN)
        poll.poll()


def _reduced(inputs: list[Any], op: ReduceOp) -> Any:
    """Any order gives these bits, of what ranks put in (`schedule.elements`)."""
    dtype = inputs[0].dtype
    computes = {ReduceOp.PROD: np.multiply, ReduceOp.MIN: np.minimum, ReduceOp.MAX: np.maximum}
    result = inputs[0]
    for each in inputs[1:]:
        result = computes.get(op, np.add)(result, each)
    if op == ReduceOp.AVG:
        result = (result.astype(np.float64) / len(inputs)).astype(dtype)
    return result


def _packed(value: object) -> bytes:
    body = pickle.dumps(value)
    return struct.pack("<I", len(body)) + body


def _unpacked(end: socket.socket) -> Any:
    (length,) = struct.unpack("<I", _exactly(end, 4))
    return pickle.loads(_exactly(end, length))


def _exactly(end: socket.socket, length: int) -> bytes:
    received = b""
    while len(received) < length:
        part = end.recv(length - len(received))
        if not part:
            raise ConnectionError("the other side has closed")
        received += part
    return received


def _spin() -> None:
    while True:
        time.sleep(0)  # gives the core away at once, as a poll of a GPU does
