"""GPUs as a caller of softtcpx has them: through the driver's own interface, real or fake."""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from net_v7 import PTR_CUDA, REGISTERED, SLOTS, SUCCESS, Net, until
from unpack_queue import PAGE, DeviceBlock, Meta, Queue, Unpack, UnpackPair

#: Names the driver's library to the process of a test body.
DRIVER = "TCPX_MPI_LIBCUDA"
NON_BLOCKING = 1
CAPTURE_MODES = ["global", "thread local", "relaxed"]
#: The usual one.
CHUNK = 524288

inline_and_worker = pytest.mark.parametrize(
    "environ", [{}, {"SOFTTCPX_WORKERS": "1"}], ids=["inline", "worker"]
)
#: What a real driver cannot be asked for: counts, failures, copies that are held back.
only_the_fake_driver = pytest.mark.usefixtures("fake_libcuda")


class Driver:
    """A loaded driver with device 0 current, or none. Calls that fail end the test."""

    def __init__(self, current: int | None = 0) -> None:
        self._library = ctypes.CDLL(os.environ[DRIVER], mode=os.RTLD_NOW | os.RTLD_LOCAL)
        self.fake = hasattr(self._library, "fakecuda_hold")
        self.call("cuInit", 0)
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        self.devices = count.value
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self.make_current(current)

    def call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._library, name)(*arguments)
        assert code == 0, f"{name}: {code}"

    def make_current(self, device: int | None) -> None:
        """On this thread; None: no context is."""
        if device is not None and device not in self._contexts:
            context = ctypes.c_void_p()
            self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self._contexts[device] = context
        self.call("cuCtxSetCurrent", self._contexts[device] if device is not None else None)

    def current(self) -> int | None:
        """The device whose context is current on this thread."""
        context = ctypes.c_void_p()
        self.call("cuCtxGetCurrent", ctypes.byref(context))
        found = [device for device, its in self._contexts.items() if its.value == context.value]
        return found[0] if context.value else None

    @contextmanager
    def capturing(self) -> Iterator[None]:
        """This thread captures an empty graph, in the mode that forbids others the most."""
        stream, graph = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuStreamCreate", ctypes.byref(stream), NON_BLOCKING)
        self.call("cuStreamBeginCapture_v2", stream, CAPTURE_MODES.index("global"))
        yield
        self.call("cuStreamEndCapture", stream, ctypes.byref(graph))

    def capture_mode(self) -> str:
        """This thread's."""
        mode = ctypes.c_int(0)
        exchange = "cuThreadExchangeStreamCaptureMode"
        self.call(exchange, ctypes.byref(mode))
        found = CAPTURE_MODES[mode.value]
        self.call(exchange, ctypes.byref(mode))  # puts it back
        return found

    # Of the fake one only.

    def pinned_bytes(self) -> int:
        """Page-locked host memory of this process."""
        count = self._library.fakecuda_pinned_bytes
        count.restype = ctypes.c_uint64
        return int(count())

    def calls(self, name: str) -> int:
        count = self._library.fakecuda_calls
        count.restype = ctypes.c_uint64
        return int(count(name.encode()))

    def hold(self, held: bool) -> None:
        """While held, no copy moves a byte."""
        self._library.fakecuda_hold(int(held))


class GpuMemory:
    """Memory of one GPU, that the CPU cannot follow the address of."""

    def __init__(self, driver: Driver, content: bytes | int, device: int = 0) -> None:
        body = bytes(content) if isinstance(content, int) else content
        self._driver, self._device = driver, device
        self.size = max(1, -(-len(body) // PAGE)) * PAGE
        pointer = ctypes.c_uint64()
        before = driver.current()
        driver.make_current(device)
        # A page more: the driver aligns to less than one.
        driver.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(self.size + PAGE))
        self.allocation = pointer.value
        self.address = -(-pointer.value // PAGE) * PAGE
        size = ctypes.c_size_t(self.size)
        driver.call(
            "cuMemcpyHtoD_v2", ctypes.c_uint64(self.address), body.ljust(self.size, b"\0"), size
        )
        driver.call("cuCtxSynchronize")  # the copy may return when the bytes are on their way
        driver.make_current(before)

    def content(self, size: int | None = None) -> bytes:
        copy = ctypes.create_string_buffer(self.size)
        before = self._driver.current()
        self._driver.make_current(self._device)
        self._driver.call(
            "cuMemcpyDtoH_v2", copy, ctypes.c_uint64(self.address), ctypes.c_size_t(self.size)
        )
        self._driver.make_current(before)
        return copy.raw[: self.size if size is None else size]

    def register(
        self, net: Any, comm: int, offset: int = 0, size: int | None = None
    ) -> tuple[int, int | None]:
        mhandle = ctypes.c_void_p()
        REGISTERED.append(self)
        code = net.table.reg_mr(
            comm,
            self.address + offset,
            self.size if size is None else size,
            PTR_CUDA,
            ctypes.byref(mhandle),
        )
        return code, mhandle.value

    def registered(self, net: Any, comm: int) -> int:
        code, mhandle = self.register(net, comm)
        assert code == 0, f"regMr: {code}"
        assert mhandle is not None
        return mhandle


class GpuQueue(Queue):
    """What the device block says and the bounce buffer holds, by copies out of the GPU."""

    def __init__(self, block: DeviceBlock, device: int = 0) -> None:
        self._driver = Driver(device)
        self.handle = block.handle
        assert self.handle is not None
        self.unpack = Unpack.from_buffer_copy(self.at(self.handle, ctypes.sizeof(Unpack)))
        self.meta = Meta.from_address(self.unpack.meta)

    def at(self, address: int, size: int) -> bytes:
        copy = ctypes.create_string_buffer(size)
        self._driver.call("cuMemcpyDtoH_v2", copy, ctypes.c_uint64(address), ctypes.c_size_t(size))
        return copy.raw


class GpuPair(UnpackPair):
    """From memory of a GPU into such memory."""

    def __init__(
        self,
        net: Net,
        driver: Driver,
        content: bytes,
        queue: Callable[[DeviceBlock], Queue] = Queue,
    ) -> None:
        super().__init__(net, GpuMemory(driver, content), GpuMemory(driver, len(content)), queue)
        self._content = content

    def exchange(self, sizes: Sequence[int], window: int = SLOTS) -> None:
        """Messages of these sizes, the first of the connection, one behind the other.

        As many as `window` are on their way; every byte is looked at.
        """
        starts = list(itertools.accumulate(sizes, initial=0))
        requests: list[int | None] = []
        sent = seen = 0

        def step() -> bool:
            nonlocal sent, seen
            if len(requests) < len(sizes) and len(requests) - seen < SLOTS:
                k = len(requests)
                requests.append(self.post_receive(starts[k], sizes[k]))
            if sent < len(sizes) and len(self.sends) < window:
                sent += self.post_send(starts[sent], sizes[sent])
            self.sends_done()
            if seen < len(requests) and self.net.test(requests[seen]) == (SUCCESS, True):
                expected = self._content[starts[seen] :][: sizes[seen]]
                assert self.queue.unpacked(seen, sizes[seen]) == expected, f"message {seen}"
                assert self.net.consumed(self.recv, requests[seen]) == SUCCESS
                seen += 1
            return seen == len(sizes) and not self.sends

        until(step, "all messages", seconds=60)
