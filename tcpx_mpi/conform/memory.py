"""Memory of the messages of a clause: of the host, or of this process's GPU."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

import numpy as np

from tcpx_mpi import _native

PAGE = mmap.PAGESIZE
#: After so many bytes, an odd number, a pattern repeats.
_PERIOD = (1 << 20) + 7
_DRIVER = "libcuda.so.1"
_MOST_SAID = 500
#: CUDA's number of the kind of handle.
_DMA_BUF = 1

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class Area:
    """Memory of whole pages, and a number of its first byte."""

    def __init__(self, size: int) -> None:
        self.size = max(-(-size // PAGE), 1) * PAGE
        self._map = mmap.mmap(-1, self.size)
        self._view: Bytes = np.frombuffer(self._map, np.uint8)
        self.address = int(self._view.ctypes.data)

    @property
    def bytes(self) -> Bytes:
        """The bytes at this moment."""
        return self._view

    def put(self, content: Bytes, offset: int = 0) -> None:
        self._view[offset : offset + content.size] = content

    def fill(self, seed: int) -> Area:
        """Bytes that tell by their place and the seed whose they are."""
        places = np.arange(min(self.size, _PERIOD), dtype=np.uint64)
        mixed = (places + np.uint64(seed * 7919 + 1)) * np.uint64(0x9E3779B97F4A7C15)
        self.put(np.resize((mixed >> np.uint64(40)).astype(np.uint8), self.size))
        return self

    def poison(self, value: int = 0xEE) -> Area:
        self.put(np.full(self.size, value, np.uint8))
        return self


def host_bytes(address: int, size: int) -> Bytes | None:
    """The bytes, or None if this process's CPU may not read them, as in memory of a GPU.

    Read by the kernel, which answers where a look of ours would crash. At most 64 KiB.
    """
    read, write = os.pipe()
    with os.fdopen(read, "rb") as source, os.fdopen(write, "wb", buffering=0) as sink:
        try:
            sink.write((ctypes.c_uint8 * size).from_address(address))
        except OSError:
            return None
        return np.frombuffer(source.read(size), np.uint8)


class Gpu:
    """A GPU that CUDA shows, current on the calling thread. By the driver alone.

    Raises _native.CudaUnavailable.
    """

    def __init__(self, ordinal: int = 0) -> None:
        self.facts = _native.cuda_devices()[ordinal]  # says in a line what is missing
        self._driver = ctypes.CDLL(_DRIVER)
        self._context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), ordinal)
        self.make_current()

    def make_current(self) -> None:
        """On this thread: a plugin looks at it when it listens, connects and registers."""
        self._call("cuCtxSetCurrent", self._context)

    def allocate(self, size: int) -> int:
        """The address of so many bytes, at a page's beginning. They live as long as the process."""
        return -(-self.allocation(size + PAGE) // PAGE) * PAGE

    def allocation(self, size: int) -> int:
        """The address of an allocation of so many bytes, for `free`."""
        pointer = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(size))
        return pointer.value

    def free(self, address: int) -> None:
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def exported(self, address: int, size: int) -> int:
        """The descriptor of a dma-buf of these pages."""
        file = ctypes.c_int(-1)
        where = (ctypes.c_uint64(address), ctypes.c_size_t(size), _DMA_BUF, ctypes.c_ulonglong(0))
        self._call("cuMemGetHandleForAddressRange", ctypes.byref(file), *where)
        return file.value

    def copy(self, to: int, source: int, size: int) -> None:
        """Between any two of host and GPU; `wait` afterwards."""
        if size:
            ends = (ctypes.c_uint64(to), ctypes.c_uint64(source))
            self._call("cuMemcpy", *ends, ctypes.c_size_t(size))

    def wait(self) -> None:
        self._call("cuCtxSynchronize")

    def _call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._driver, name)(*arguments):
            raise RuntimeError(f"{name} returned {code}")


class GpuArea(Area):
    """Memory of a GPU; what is there is had by a copy. `address`: it is allocated already."""

    def __init__(self, gpu: Gpu, size: int, address: int = 0) -> None:
        self.size = max(-(-size // PAGE), 1) * PAGE
        self._gpu, self.address = gpu, address or gpu.allocate(self.size)

    @property
    def bytes(self) -> Bytes:
        copy = np.empty(self.size, np.uint8)
        self._gpu.copy(int(copy.ctypes.data), self.address, self.size)
        self._gpu.wait()
        return copy

    def put(self, content: Bytes, offset: int = 0) -> None:
        whole = np.ascontiguousarray(content)
        self._gpu.copy(self.address + offset, int(whole.ctypes.data), whole.size)
        self._gpu.wait()


def why_no_gpu() -> str:
    """The parts that memory of a GPU lacks here, in words; "" if nothing is missing.

    Asked in a process of its own: a process that has asked the driver cannot fork one that uses it.
    """
    read, write = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            _native.cuda_devices()
        except (_native.CudaUnavailable, _native.CudaError) as why:
            os.write(write, str(why).encode()[:_MOST_SAID])
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    os.waitpid(process, 0)
    return " ".join(said.split())
