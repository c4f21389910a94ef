"""Stands in for NCCL with a net plugin that unpacks: grouped sends and receives go over it.

As NCCL's device code does, a channel keeps one address of a bounce buffer, that of the connection
that was set up last, and reads the fragments of all its connections from there. A peer is on the
channel that its distance says, of NCCL_MAX_P2P_NCHANNELS. Host pages stand for a GPU's memory. What
NCCL has a call for goes the way of the plain stand-in: in a ring a channel has one peer.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from nccl_cases import GROUPED, Bytes, Case, dtype_of
from nccl_library import LibraryError
from nccl_rounds import Round, rounds_of
from nccl_stand_in import HostMemory, StandInCommunicator, StandInLibrary

sys.path.append(str(Path(__file__).resolve().parents[1] / "softtcpx"))

#: Requests of a connection that are under way, and bytes of one.
_WINDOW, _CHUNK = 8, 128 << 10
_PATIENCE_S = 20.0
_UNPACK, _VERSION = 1, 7


class UnpackingLibrary(StandInLibrary):
    """With the plugin that NCCL would be told to take."""

    def __init__(self) -> None:
        os.environ["TCPX_MPI_SOFTTCPX_LIB"] = os.environ["NCCL_NET_PLUGIN"]
        from net_v7 import Net  # which reads it when it is imported

        self._net = Net().started()
        self._channels = int(os.environ.get("NCCL_MAX_P2P_NCHANNELS", "1"))

    def communicator(self, unique_id: list[int], rank: int, world: int) -> StandInCommunicator:
        return _Communicator(self._net, self._channels, unique_id, rank, world)


class _Communicator(StandInCommunicator):
    def __init__(
        self, net: Any, channels: int, unique_id: list[int], rank: int, world: int
    ) -> None:
        super().__init__(unique_id, rank, world)
        self._channels = channels
        peers = [peer for peer in range(world) if peer != rank]
        listening = {peer: net.listen() for peer in peers}
        told = self._known_to_all({rank: {peer: handle for peer, (_, handle) in listening.items()}})
        self._with = {
            peer: _Connection(net, listening[peer][0], told[peer][rank]) for peer in peers
        }
        _all_of([each.meeting() for each in self._with.values()])

    def launch(
        self, case: Case, source: HostMemory, source_at: int, target: HostMemory, target_at: int
    ) -> None:
        if case.program not in GROUPED:
            return super().launch(case, source, source_at, target, target_at)
        come = target.bytes[target_at:]
        size = dtype_of(case.kind).itemsize
        for each in rounds_of(case, self._rank, self._world):
            self._group(each, come if each.passed_on else source.bytes[source_at:], come, size)

    def _group(self, one: Round, source: Bytes, target: Bytes, size: int) -> None:
        sends, receives = (
            {part.peer: of[part.at * size : (part.at + part.count) * size] for part in parts}
            for of, parts in ((source, one.sends), (target, one.receives))
        )
        if self._rank in receives:
            receives.pop(self._rank)[:] = sends.pop(self._rank)
        bounce_of = {self._channel(peer): self._with[peer].bounce for peer in receives}
        _all_of([
            *(self._with[peer].sending(data) for peer, data in sends.items()),
            *(self._with[peer].receiving(place, bounce_of[self._channel(peer)])
              for peer, place in receives.items()),
        ])  # fmt: skip

    def _channel(self, peer: int) -> int:
        return (peer - self._rank) % self._world % self._channels

    def destroy(self) -> None:
        self._known_to_all({self._rank: None})  # a message that is not taken yet would be lost
        for each in self._with.values():
            each.close()
        super().destroy()


class _Connection:
    """Both ways between this rank and another. What moves is an iterator, a look at it a step."""

    def __init__(self, net: Any, listener: int, handle: bytes) -> None:
        from net_v7 import Connecting
        from unpack_queue import DeviceBlock

        self._net, self._listener = net, listener
        self._connecting = Connecting(net, handle)
        self._block = DeviceBlock(_UNPACK, _VERSION)
        self._received = 0

    def meeting(self) -> Iterator[None]:
        from unpack_queue import Pages, Queue

        self._send = self._recv = None
        place, comm = ctypes.pointer(self._block), ctypes.c_void_p()
        at = ctypes.cast(ctypes.byref(place), ctypes.POINTER(ctypes.c_void_p))
        while None in (self._send, self._recv):
            if self._send is None:
                code, self._send = self._connecting.step()
                _succeeded("connect", code)
            if self._recv is None:
                code = self._net.table.accept(self._listener, ctypes.byref(comm), at)
                _succeeded("accept", code)
                self._recv = comm.value
            yield
        _succeeded("closeListen", self._net.table.close_listen(self._listener))
        self._queue = Queue(self._block)
        self.bounce: int = self._queue.unpack.bounce
        self._out, self._in = Pages(_WINDOW * _CHUNK), Pages(_CHUNK)
        self._out_region = self._out.registered(self._net, self._send)
        self._in_region = self._in.registered(self._net, self._recv)

    def sending(self, data: Bytes) -> Iterator[None]:
        pending: deque[int] = deque()
        for number, at in enumerate(range(0, len(data), _CHUNK)):
            if len(pending) == _WINDOW:
                yield from self._done(pending.popleft())
            chunk = np.ascontiguousarray(data[at : at + _CHUNK])
            slot = self._out.address + number % _WINDOW * _CHUNK
            ctypes.memmove(slot, chunk.ctypes.data, len(chunk))
            request = None
            while request is None:
                code, request = self._net.isend(self._send, slot, len(chunk), self._out_region)
                _succeeded("isend", code)
                yield
            pending.append(request)
        for request in pending:
            yield from self._done(request)

    def receiving(self, place: Bytes, bounce: int) -> Iterator[None]:
        chunks = deque(place[at : at + _CHUNK] for at in range(0, len(place), _CHUNK))
        pending: deque[tuple[int | None, Bytes]] = deque()
        while chunks or pending:
            while chunks and len(pending) < _WINDOW:
                size = len(chunks[0])
                code, request = self._net.irecv(self._recv, self._in.address, size, self._in_region)
                _succeeded("irecv", code)
                pending.append((request, chunks.popleft()))
            request, chunk = pending.popleft()
            yield from self._done(request)
            for each in self._queue.fragments(self._received):
                ctypes.memmove(chunk.ctypes.data + each.target, bounce + each.source, each.length)
            self._received += 1
            _succeeded("irecvConsumed", self._net.consumed(self._recv, request))

    def _done(self, request: int | None) -> Iterator[None]:
        while True:
            code, done = self._net.test(request)
            _succeeded("test", code)
            if done:
                return
            yield

    def close(self) -> None:
        _succeeded("closeSend", self._net.table.close_send(self._send))
        _succeeded("closeRecv", self._net.table.close_recv(self._recv))


def _all_of(parts: list[Iterator[None]]) -> None:
    """Each a step further, in turn, until all have come to their end."""
    end_by = time.monotonic() + _PATIENCE_S
    while parts:
        parts = [part for part in parts if next(part, part) is not part]
        if time.monotonic() > end_by:
            raise LibraryError(f"a group is not complete after {_PATIENCE_S} s")
        os.sched_yield()


def _succeeded(call: str, code: int) -> None:
    if code:
        raise LibraryError(f"{call}: {code}")
