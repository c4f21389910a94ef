"""The bench of one clause in its process: a plugin, comms, messages."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tcpx_mpi import _native
from tcpx_mpi.conform.memory import PAGE, Area, Bytes, Gpu, GpuArea, host_bytes
from tcpx_mpi.conform.outcome import Broken, NotTried
from tcpx_mpi.conform.properties import UNPACK, UNPACK_VERSION, Properties, decode
from tcpx_mpi.plugin.current_gpu import make_gpu_current
from tcpx_mpi.transport.in_place import need_of_flush

#: Bytes after a handle's own, by which writing beyond it is seen.
_GUARD = 128
_GUARD_BYTE = 0xC3
_SLOTS, _FRAGMENTS, _FRAGMENT_BYTES = 16, 2048, 16
#: What the handle points to: the descriptors' address, the bounce buffer's, and a count.
_UNPACK_BLOCK_BYTES = 24
#: What TCPX and its like carry in one request of GPU memory.
_UNPACK_REQUEST_BYTES = 512 << 10


#: Calls of which the plugin's own words are kept.
_SET_UP = ("init", "devices", "raw_properties", "listen", "connect", "accept", "reg_mr")


#: Of a receive: its address, its bytes, its region.
Part = tuple[int, int, int]


@dataclass
class Pair:
    """Both ends of a connection, and its listener (0: closed)."""

    send: int = 0
    receive: int = 0
    listener: int = 0
    block: Bytes = field(default_factory=lambda: np.zeros(0, np.uint8))
    receives: int = 0


@dataclass(frozen=True)
class Send:
    """A posted send."""

    comm: int
    request: int
    n: int = 1


@dataclass(frozen=True)
class Receive:
    """A posted receive of one message."""

    pair: Pair
    request: int
    target: Area
    offset: int
    size: int
    number: int
    n: int = 1
    #: (address, size, region) of each part, which is flushed where NCCL flushes.
    parts: tuple[Part, ...] = ()

    @property
    def comm(self) -> int:
        return self.pair.receive


class Bench:
    """A plugin in this process, which announces each call before it begins."""

    def __init__(
        self, path: str, abi: int, memory: str, patience_s: float, tell: Callable[[int, str], None]
    ) -> None:
        self.path, self.abi, self.memory, self.patience_s = path, abi, memory, patience_s
        self._tell = tell
        self._told: dict[int, str] = {}  # by thread
        self.stage = ""  # of the clause, said behind the name of each call
        self.pointer_type = 1 if memory == "host" else 2
        self.table: Any = None
        self.devices: dict[int, Properties] = {}  # of which the properties were read
        self.gpu: Gpu | None = None  # current while the plugin is used; none for other memory

    # --- The plugin -----------------------------------------------------------------------------

    def load(self) -> Any:
        """The table, before its init."""
        if self.memory == "cuda" and self.gpu is None:
            self.tell("taking the GPU")
            self.gpu = Gpu()
        self.tell("loading the plugin")
        if self.gpu is None:
            make_gpu_current(self.path, os.environ)
        self.table = _native.Table(self.path, self.abi)
        return self.table

    def use(self, gpu: Gpu) -> None:
        """Messages are in its memory from now on, and it is current on this thread."""
        self.gpu = gpu
        gpu.make_current()

    def start(self) -> Bench:
        """Loads and initialises it, and reads the properties of each device, as NCCL does."""
        self.load()
        self.good("init")
        for device in range(self.good("devices")):
            self.read_properties(device)
        if self.memory != "host" and not self.takes_gpus:
            raise NotTried("its ptrSupport has host memory alone")
        return self

    def read_properties(self, device: int) -> Properties:
        """The properties of a device, which its connections go by from now on."""
        self.devices[device] = decode(self.abi, self.good("raw_properties", device, 0))
        return self.devices[device]

    def tell(self, step: str) -> None:
        """Says what this thread is about to do ("": nothing more), for whoever sees this process
        hang or crash."""
        thread = threading.get_ident()
        if step != self._told.get(thread):
            self._tell(thread, step)
            self._told[thread] = step

    def call(self, name: str, *arguments: Any) -> Any:
        """A call of the table; what it returns, its code first."""
        self.tell(f"{name} {self.stage}".rstrip())
        return getattr(self.table, name)(*arguments)

    def good(self, name: str, *arguments: Any) -> Any:
        """A call that must return 0; what it returns beside."""
        result = self.call(name, *arguments)
        code, *rest = result if isinstance(result, tuple) else (result,)
        if code != 0:
            said = _native.plugin_warned_in_call() if name in _SET_UP else ""
            raise Broken(f"{name} returned {code}{said}")
        return rest[0] if len(rest) == 1 else rest

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Calls a condition again and again. Raises Broken after this clause's patience."""
        give_up = time.monotonic() + self.patience_s
        while not condition():
            if time.monotonic() > give_up:
                raise Broken(f"{what} within {self.patience_s:g} s")
            os.sched_yield()

    def turns(self, step: Callable[[], object], count: int = 50) -> None:
        """A step again and again, long enough for what must not happen to happen."""
        for _ in range(count):
            step()
            os.sched_yield()

    @property
    def properties(self) -> Properties:
        """The properties of the first device, over which messages go."""
        return self.devices[0]

    @property
    def unpacks(self) -> bool:
        return self.properties.unpacks

    @property
    def takes_gpus(self) -> bool:
        """Whether it takes memory of GPUs, by its ptrSupport."""
        return bool(self.properties.ptr_support & 2)

    @property
    def in_place(self) -> bool:
        """Whether it puts what is received into a GPU's memory itself."""
        return self.memory != "host" and not self.unpacks

    @property
    def flushes(self) -> bool:
        """Whether NCCL would flush what is received into this memory."""
        force_flush = self.properties.force_flush
        capability = self.gpu.facts["capability"] if self.gpu is not None else None
        return self.in_place and bool(need_of_flush("", force_flush, os.environ, capability))

    @property
    def gathers(self) -> bool:
        """Whether a message is in fragments when its receive is done."""
        return self.unpacks and self.memory != "host"

    def area(self, size: int) -> Area:
        """Memory of the kind that is tried."""
        return Area(size) if self.gpu is None else GpuArea(self.gpu, size)

    # --- Connections ----------------------------------------------------------------------------

    def listen(self, device: int = 0) -> tuple[int, Bytes]:
        """A listener and its handle, with a guard behind that connect must leave alone."""
        handle, listener = self.good("listen", device)
        if listener == 0:
            raise Broken("listen returned 0 and a NULL comm")
        guarded = np.full(len(handle) + _GUARD, _GUARD_BYTE, np.uint8)
        guarded[: len(handle)] = np.frombuffer(handle, np.uint8)
        return listener, guarded

    def new_block(self, device: int = 0) -> Bytes:
        """The block into which accept of a plugin that unpacks writes its device handle."""
        if not self.devices[device].unpacks:
            return np.zeros(0, np.uint8)
        block = Area(PAGE).bytes
        block[:8].view(np.int32)[:] = (UNPACK, UNPACK_VERSION)
        return block

    def connecting(self, handle: Bytes, device: int = 0) -> int:
        """One call of connect: a comm, or 0 for "not yet"."""
        comm, _ = self.good("connect", device, handle)
        if (handle[-_GUARD:] != _GUARD_BYTE).any():
            raise Broken("connect wrote behind the 128 bytes of the handle")
        return int(comm)

    def accepting(self, pair: Pair) -> int:
        """One call of accept: a comm, or 0 for "not yet"."""
        at = int(pair.block.ctypes.data) if pair.block.size else 0
        comm, _ = self.good("accept", pair.listener, at)
        return int(comm)

    def connect(self, device: int = 0) -> Pair:
        """A connection within this process, both sides polled in turn."""
        listener, handle = self.listen(device)
        pair = Pair(listener=listener, block=self.new_block(device))

        def connected() -> bool:
            pair.send = pair.send or self.connecting(handle, device)
            pair.receive = pair.receive or self.accepting(pair)
            return bool(pair.send and pair.receive)

        self.until(connected, "connect and accept did not both come to a comm")
        return pair

    def close(self, pair: Pair) -> None:
        """Closes what is open of a connection."""
        for name in ("send", "receive", "listener"):
            if comm := getattr(pair, name):
                call = {"send": "close_send", "receive": "close_recv", "listener": "close_listen"}
                self.good(call[name], comm)
                setattr(pair, name, 0)

    def register(self, comm: int, area: Area, size: int | None = None, offset: int = 0) -> int:
        """The mhandle of memory for a comm."""
        count = area.size if size is None else size
        return int(self.good("reg_mr", comm, area.address + offset, count, self.pointer_type))

    # --- Messages -------------------------------------------------------------------------------

    def largest(self, wanted: int) -> int:
        """A message's size, cut to the largest that a request of this memory carries."""
        return min(wanted, _UNPACK_REQUEST_BYTES) if self.gathers else wanted

    def try_send(
        self, pair: Pair, area: Area, size: int, mhandle: int, offset: int = 0, tag: int = 0
    ) -> Send | None:
        """A send; None: busy."""
        at = area.address + offset
        request = self.good("isend", pair.send, at, size, tag, mhandle)
        return Send(pair.send, request) if request else None

    def try_receive(
        self, pair: Pair, area: Area, size: int, mhandle: int, offset: int = 0, tag: int = 0
    ) -> Receive | None:
        """A receive; None: busy."""
        places = ([area.address + offset], [size], [tag], [mhandle])
        request = self.good("irecv", pair.receive, *places)
        if request == 0:
            return None
        pair.receives += 1
        parts = ((area.address + offset, size, mhandle),)
        return Receive(pair, request, area, offset, size, pair.receives - 1, parts=parts)

    def one_more(
        self, pair: Pair, area: Area, size: int, mhandle: int, offset: int = 0
    ) -> Receive | None:
        """A receive; None if none is taken, by whatever answer: the comm may be in error."""
        taken: list[int] = []
        refused: list[int] = []

        def step() -> None:
            if not taken and not refused:
                places = ([area.address + offset], [size], [0], [mhandle])
                code, request = self.call("irecv", pair.receive, *places)
                refused.extend([code] if code else [])
                taken.extend([request] if request and not code else [])

        self.turns(step)
        if not taken:
            return None
        pair.receives += 1
        parts = ((area.address + offset, size, mhandle),)
        return Receive(pair, taken[0], area, offset, size, pair.receives - 1, parts=parts)

    def send(self, *arguments: Any, **more: Any) -> Send:
        """A send, tried until it is taken."""
        made: list[Send] = []

        def step() -> bool:
            found = self.try_send(*arguments, **more)
            made.extend([found] if found else [])
            return bool(made)

        self.until(step, "isend was busy (a NULL request), and took nothing")
        return made[0]

    def receive(self, *arguments: Any, **more: Any) -> Receive:
        """A receive, tried until it is taken."""
        made: list[Receive] = []

        def step() -> bool:
            found = self.try_receive(*arguments, **more)
            made.extend([found] if found else [])
            return bool(made)

        self.until(step, "irecv was busy (a NULL request), and took nothing")
        return made[0]

    def tested(self, posted: Send | Receive) -> list[int] | None:
        """The sizes of a request that is done; None: not yet. Of a receive nothing follows."""
        done, sizes = self.good("test", posted.request, posted.n)
        return list(sizes) if done else None

    def done(self, posted: Send | Receive) -> list[int] | None:
        """The sizes of a request that is done; None: not yet. A receive is in its place then."""
        sizes = self.tested(posted)
        if sizes is not None and isinstance(posted, Receive):
            self._taken(posted, sizes)
        return sizes

    def finish(self, *posted: Send | Receive) -> list[list[int]]:
        """Polls all of them, the oldest of each comm, until each is done; their sizes."""
        sizes: list[list[int] | None] = [None] * len(posted)

        def step() -> bool:
            busy: set[int] = set()
            for index, one in enumerate(posted):
                if sizes[index] is None and one.comm not in busy:
                    sizes[index] = self.done(one)
                    busy.update([one.comm] if sizes[index] is None else [])
            return None not in sizes

        self.until(step, "not every request was done")
        return [found for found in sizes if found is not None]

    def _taken(self, receive: Receive, sizes: list[int]) -> None:
        """Puts a finished receive into its place, and gives its slot back."""
        if self.gathers:
            self._gather(receive)
        # NCCL flushes nothing if test writes no size; that is a clause of its own.
        parts = [
            (at, said if said >= 0 else size, region)
            for (at, size, region), said in zip(receive.parts, sizes, strict=False)
        ]
        if self.flushes and any(size > 0 for _, size, _ in parts):
            self.flush(receive.pair, *parts)
        self.consumed(receive)

    def flush(self, pair: Pair, *parts: Part) -> bool:
        """Makes visible what was put in place, as NCCL does. False: done without a request."""
        addresses, sizes, regions = map(list, zip(*parts, strict=True))
        if not (request := self.good("iflush", pair.receive, addresses, sizes, regions)):
            return False
        self.until(lambda: bool(self.good("test", request, 0)[0]), "iflush did not end")
        return True

    def consumed(self, receive: Receive) -> None:
        """The slot of a receive is given back, where the plugin waits for that."""
        if "irecvConsumed" in self.table.extras():
            self.good("irecv_consumed", receive.pair.receive, receive.n, receive.request)

    def _gather(self, receive: Receive) -> None:
        """Fragments of the bounce buffer to where the message was to be."""
        meta, bounce = self.unpack_block(receive.pair)
        slot = receive.number % _SLOTS
        counts = meta + _SLOTS * _FRAGMENTS * _FRAGMENT_BYTES
        count = int(self._read(counts + 8 * slot, 8).view(np.uint64)[0]) if receive.size else 0
        if count > _FRAGMENTS:
            raise Broken(f"a receive has {count} fragments, more than {_FRAGMENTS}")
        first = meta + slot * _FRAGMENTS * _FRAGMENT_BYTES
        raw = self._read(first, max(count, 1) * _FRAGMENT_BYTES)
        for source, size, to in raw.view([("s", "u4"), ("n", "u4"), ("d", "u8")])[:count]:
            if int(to) + int(size) > receive.size:
                raise Broken("a fragment lies beyond the size of its receive")
            at = receive.target.address + receive.offset + int(to)
            self._copy(at, bounce + int(source), int(size))
        if self.gpu is not None:  # before the plugin has its pages back
            self.gpu.wait()

    def unpack_block(self, pair: Pair) -> tuple[int, int]:
        """The descriptors and the bounce buffer of a receiving comm, as accept wrote their place.

        The block may lie in a GPU's memory, whatever memory the messages are in.
        """
        at = int(pair.block[8:16].view(np.uint64)[0])
        if (found := host_bytes(at, _UNPACK_BLOCK_BYTES)) is None:
            found = self._gpu_bytes(at, _UNPACK_BLOCK_BYTES)
        meta, bounce, _ = found.view(np.uint64)
        return int(meta), int(bounce)

    def _gpu_bytes(self, address: int, size: int) -> Bytes:
        """Bytes of a GPU, by the driver's copy, also for messages in memory of the host."""
        self.tell("reading the device block by CUDA")
        try:
            gpu = self.gpu or Gpu()
        except (_native.CudaUnavailable, _native.CudaError) as why:
            raise Broken(f"the CPU cannot read its device block, nor CUDA: {why}") from None
        found = np.empty(size, np.uint8)
        gpu.copy(int(found.ctypes.data), address, size)
        gpu.wait()
        return found

    def _read(self, address: int, size: int) -> Bytes:
        """The bytes in a GPU's memory or in memory that it shares with the host."""
        found = np.empty(size, np.uint8)
        self._copy(int(found.ctypes.data), address, size)
        if self.gpu is not None:
            self.gpu.wait()
        return found

    def _copy(self, to: int, source: int, size: int) -> None:
        if self.gpu is None:
            ctypes.memmove(to, source, size)
        else:
            self.gpu.copy(to, source, size)

    def expect(self, got: Area, sent: Area, size: int, offset: int = 0, whose: str = "") -> None:
        """Raises Broken unless the bytes are those that were sent."""
        wrong = np.flatnonzero(got.bytes[offset : offset + size] != sent.bytes[:size])
        if wrong.size:
            which = f" of {whose}" if whose else ""
            raise Broken(f"{wrong.size} of {size} bytes{which} are wrong, the first is {wrong[0]}")
