"""Receives into GPU memory as their caller sees them: device block, queue, bounce pages, pairs."""

from __future__ import annotations

import ctypes
import itertools
import mmap
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from net_v7 import PTR_CUDA, REGISTERED, SLOTS, SUCCESS, Connecting, Memory, Net, until

PAGE = 4096
FRAGMENTS = 2048


class DeviceBlock(ctypes.Structure):
    """ncclNetDeviceHandle_v7_t."""

    _fields_ = [  # noqa: RUF012 (ctypes reads it so)
        ("type", ctypes.c_int),
        ("version", ctypes.c_int),
        ("handle", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("needs_proxy_progress", ctypes.c_int),
    ]


class Unpack(ctypes.Structure):
    """What the handle of an unpacking plugin points to."""

    _fields_ = [  # noqa: RUF012 (ctypes reads it so)
        ("meta", ctypes.c_void_p),
        ("bounce", ctypes.c_void_p),
        ("head", ctypes.c_uint64),
    ]


@dataclass(frozen=True)
class Fragment:
    """Bytes of the bounce buffer from `source` on that belong to `target` on."""

    source: int
    length: int
    target: int


class Entry(ctypes.Structure):
    """loadMeta."""

    _fields_ = [  # noqa: RUF012 (ctypes reads it so)
        ("source", ctypes.c_uint32),
        ("length", ctypes.c_uint32),
        ("target", ctypes.c_uint64),
    ]


class Meta(ctypes.Structure):
    """netUnpackMeta."""

    _fields_ = [  # noqa: RUF012 (ctypes reads it so)
        ("entries", (Entry * FRAGMENTS) * SLOTS),
        ("counts", ctypes.c_uint64 * SLOTS),
    ]


class Queue:
    """The descriptors and the bounce buffer of one receiving connection."""

    def __init__(self, block: DeviceBlock) -> None:
        assert block.handle is not None
        self.unpack = Unpack.from_address(block.handle)
        self.meta = Meta.from_address(self.unpack.meta)

    def count(self, k: int) -> int:
        """The number of fragments of the k-th receive of the connection."""
        return int(self.meta.counts[k % SLOTS])

    def fragments(self, k: int) -> list[Fragment]:
        entries = self.meta.entries[k % SLOTS]
        return [
            Fragment(entries[i].source, entries[i].length, entries[i].target)
            for i in range(self.count(k))
        ]

    def bytes_of(self, fragment: Fragment) -> bytes:
        return self.at(self.unpack.bounce + fragment.source, fragment.length)

    def at(self, address: int, size: int) -> bytes:
        """What is in the bounce buffer there."""
        return ctypes.string_at(address, size)

    def through(self, other: Queue, k: int) -> bytes:
        """The k-th message, by the bounce buffer that another connection names.

        So NCCL's kernels read: a block of threads keeps one such address for all its connections.
        """
        parts = sorted(self.fragments(k), key=lambda fragment: fragment.target)
        return b"".join(self.at(other.unpack.bounce + part.source, part.length) for part in parts)

    def unpacked(self, k: int, size: int) -> bytes:
        """The message, after a look at every rule of its fragments."""
        message = bytearray(size)
        covered = 0
        found = self.fragments(k)
        assert len(found) < FRAGMENTS
        for fragment in found:
            assert 1 <= fragment.length <= PAGE
            last = fragment.source + fragment.length - 1
            assert fragment.source // PAGE == last // PAGE, "a fragment lies in one page"
            assert fragment.target + fragment.length <= size
            message[fragment.target : fragment.target + fragment.length] = self.bytes_of(fragment)
            covered += fragment.length
        spans = sorted((f.target, f.target + f.length) for f in found)
        assert covered == size, "every byte once"
        assert all(a[1] == b[0] for a, b in itertools.pairwise(spans)), "and no byte twice"
        return bytes(message)

    def pages(self, k: int) -> set[int]:
        found = [fragment.source // PAGE for fragment in self.fragments(k)]
        assert len(set(found)) == len(found), "a page of its own for each fragment"
        return set(found)


class Pages:
    """Whole pages that stand for GPU memory."""

    def __init__(self, content: bytes | int) -> None:
        body = bytes(content) if isinstance(content, int) else content
        self.size = max(1, -(-len(body) // PAGE)) * PAGE
        self._map = mmap.mmap(-1, self.size)
        self._map[: len(body)] = body
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))

    def content(self, size: int) -> bytes:
        return self._map[:size]

    def registered(self, net: Any, comm: int) -> int:
        mhandle = ctypes.c_void_p()
        REGISTERED.append(self)
        code = net.table.reg_mr(comm, self.address, self.size, PTR_CUDA, ctypes.byref(mhandle))
        assert code == SUCCESS
        assert mhandle.value is not None
        return mhandle.value


def connected_with_queue(
    net: Net, queue: Callable[[DeviceBlock], Queue] = Queue
) -> tuple[int, int, Queue]:
    """Both ends of a connection whose accepting side unpacks, and its queue."""
    listen_comm, handle = net.listen()
    connecting = Connecting(net, handle)
    block = DeviceBlock(1, 7)
    pointer = ctypes.pointer(block)
    comm = ctypes.c_void_p()
    ends: dict[str, int] = {}

    def step() -> bool:
        if "send" not in ends:
            code, made = connecting.step()
            assert code == SUCCESS
            if made is not None:
                ends["send"] = made
        if "recv" not in ends:
            argument = ctypes.cast(ctypes.byref(pointer), ctypes.POINTER(ctypes.c_void_p))
            assert net.table.accept(listen_comm, ctypes.byref(comm), argument) == SUCCESS
            if comm.value is not None:
                ends["recv"] = comm.value
            else:
                assert block.handle is None, "nothing is filled before there is a connection"
        return len(ends) == 2

    until(step, "a connection")
    assert (block.type, block.version, block.size, block.needs_proxy_progress) == (1, 7, 24, 1)
    assert net.table.close_listen(listen_comm) == SUCCESS
    return ends["send"], ends["recv"], queue(block)


class UnpackPair:
    """A connection whose receiver unpacks, with memory of any kind at each end."""

    def __init__(
        self, net: Net, source: Any, target: Any, queue: Callable[[DeviceBlock], Queue] = Queue
    ) -> None:
        self.net, self.source, self.target = net, source, target
        self.send, self.recv, self.queue = connected_with_queue(net, queue)
        self.send_mhandle = source.registered(net, self.send)
        self.recv_mhandle = target.registered(net, self.recv)
        self.sends: deque[int | None] = deque()

    def post_send(self, offset: int, size: int) -> bool:
        """Whether it was posted: false when the connection is busy."""
        address = self.source.address + offset
        code, request = self.net.isend(self.send, address, size, self.send_mhandle)
        assert code == SUCCESS
        if request is not None:
            self.sends.append(request)
        return request is not None

    def post_receive(self, offset: int, size: int) -> int | None:
        address = self.target.address + offset
        code, request = self.net.irecv(self.recv, address, size, self.recv_mhandle)
        assert code == SUCCESS
        return request

    def sends_done(self) -> bool:
        """Test the oldest send; whether none is left."""
        if self.sends:
            code, done = self.net.test(self.sends[0])
            assert code == SUCCESS, f"test of a send returned {code}"
            if done:
                self.sends.popleft()
        return not self.sends

    def finish(self, *requests: int | None) -> None:
        """Poll until all sends and these receives, oldest first, are done."""
        left = deque(requests)

        def step() -> bool:
            if left:
                code, done = self.net.test(left[0])
                assert code == SUCCESS, f"test of a receive returned {code}"
                if done:
                    left.popleft()
            return self.sends_done() and not left

        until(step, "both sides")

    def move(self, offset: int, size: int) -> int | None:
        request = self.post_receive(offset, size)
        self.post_send(offset, size)
        self.finish(request)
        return request

    def close(self) -> None:
        assert self.net.table.close_send(self.send) == SUCCESS
        assert self.net.table.close_recv(self.recv) == SUCCESS


class Pair(UnpackPair):
    """From host memory into pages that stand for GPU memory."""

    def __init__(self, net: Net, content: bytes) -> None:
        super().__init__(net, Memory(content), Pages(len(content)))
