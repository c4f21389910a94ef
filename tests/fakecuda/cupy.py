"""The few parts of CuPy that tcpx_mpi uses, over the driver alone: for machines without a GPU.

In a folder of its own with the stand-in for the driver, so that PYTHONPATH and LD_LIBRARY_PATH
can name them together. An allocation ends where it was asked to, so that one that is cut wrongly
is found out by the driver.
"""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import cupy_nccl

__version__ = "0 (a stand-in)"
_BLOCK_BYTES = 512
_OUT_OF_MEMORY = 2
#: Attributes of a device: major and minor.
_CAPABILITY = (75, 76)
_driver: Any = ctypes.CDLL("libcuda.so.1")
_contexts: dict[int, ctypes.c_void_p] = {}


class OutOfMemoryError(MemoryError):
    """The GPU has not so much."""


class Device:
    """A GPU by CUDA's number."""

    def __init__(self, device: int = 0) -> None:
        self.id = device

    @property
    def compute_capability(self) -> str:
        """As CuPy has it: "90" is 9.0."""
        numbers = ctypes.c_int(), ctypes.c_int()
        for number, attribute in zip(numbers, _CAPABILITY, strict=True):
            code = _driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, self.id)
            _check(code)
        return "".join(str(number.value) for number in numbers)

    def use(self) -> None:
        """Make its primary context current on this thread."""
        _check(_driver.cuInit(0))
        if self.id not in _contexts:
            context = ctypes.c_void_p()
            _check(_driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), self.id))
            _contexts[self.id] = context
        _check(_driver.cuCtxSetCurrent(_contexts[self.id]))

    def synchronize(self) -> None:
        """Wait for all work of the GPU that is current."""
        _check(_driver.cuCtxSynchronize())


class _Allocation:
    """Device memory, freed with the last reference to it."""

    def __init__(self, size: int) -> None:
        self.base = ctypes.c_uint64()
        code = _driver.cuMemAlloc_v2(ctypes.byref(self.base), ctypes.c_size_t(size))
        if code == _OUT_OF_MEMORY:
            raise OutOfMemoryError(f"Out of memory allocating {size} bytes")
        _check(code)

    def __del__(self) -> None:
        _driver.cuMemFree_v2(self.base)


class MemoryPointer:
    """A place in device memory."""

    def __init__(self, allocation: _Allocation, offset: int) -> None:
        self._allocation, self._offset = allocation, offset
        self.ptr = int(allocation.base.value) + offset

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self._allocation, self._offset + offset)

    def memset(self, value: int, size: int) -> None:
        """Set bytes; as with a GPU, not done when it returns."""
        _check(
            _driver.cuMemsetD8_v2(
                ctypes.c_uint64(self.ptr), ctypes.c_ubyte(value), ctypes.c_size_t(size)
            )
        )

    def copy_from_host(self, memory: ctypes.c_void_p, size: int) -> None:
        """Overwrite bytes; as with a GPU, not done when it returns."""
        _check(_driver.cuMemcpyHtoD_v2(ctypes.c_uint64(self.ptr), memory, ctypes.c_size_t(size)))

    def copy_to_host(self, memory: ctypes.c_void_p, size: int) -> None:
        """Read bytes; done when it returns."""
        _check(_driver.cuMemcpyDtoH_v2(memory, ctypes.c_uint64(self.ptr), ctypes.c_size_t(size)))


def _alloc(size: int) -> MemoryPointer:
    # As in CuPy it begins on a border of 512 bytes, and here on no larger one.
    return MemoryPointer(_Allocation(size + _BLOCK_BYTES), _BLOCK_BYTES)


def _memory_info() -> tuple[int, int]:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    _check(_driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
    return free.value, total.value


def _check(code: int) -> None:
    if code != 0:
        raise RuntimeError(f"the driver said {code}")


cuda = SimpleNamespace(
    Device=Device,
    alloc=_alloc,
    memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
    runtime=SimpleNamespace(memGetInfo=_memory_info, CUDARuntimeError=cupy_nccl.CUDARuntimeError),
    Stream=cupy_nccl.Stream,
    Event=cupy_nccl.Event,
    get_elapsed_time=cupy_nccl.get_elapsed_time,
)

# As parts of a package are found.
sys.modules["cupy.cuda"] = cuda  # type: ignore[assignment]  # no module, but as good
sys.modules["cupy.cuda.nccl"] = cupy_nccl
