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
import numpy as np

__version__ = "0 (a stand-in)"
_BLOCK_BYTES = 512
_OUT_OF_MEMORY = 2
_driver: Any = ctypes.CDLL("libcuda.so.1")
_contexts: dict[int, ctypes.c_void_p] = {}


class OutOfMemoryError(MemoryError):
    """The GPU has not so much."""


class Device:
    """A GPU by CUDA's number."""

    def __init__(self, device: int = 0) -> None:
        self.id = device

    def use(self) -> None:
        """Make its primary context current on this thread."""
        _check(_driver.cuInit(0))
        if self.id not in _contexts:
            context = ctypes.c_void_p()
            _check(_driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), self.id))
            _contexts[self.id] = context
        _check(_driver.cuCtxSetCurrent(_contexts[self.id]))


class MemoryPointer:
    """Device memory, freed with the last reference to it.

    As in CuPy it begins on a border of 512 bytes, and here on no larger one.
    """

    def __init__(self, size: int) -> None:
        found = ctypes.c_uint64()
        code = _driver.cuMemAlloc_v2(ctypes.byref(found), ctypes.c_size_t(size + _BLOCK_BYTES))
        if code == _OUT_OF_MEMORY:
            raise OutOfMemoryError(f"Out of memory allocating {size} bytes")
        _check(code)
        self._base = found
        self.ptr = found.value + _BLOCK_BYTES

    def memset(self, value: int, size: int) -> None:
        """Set bytes; done when it returns."""
        _check(
            _driver.cuMemsetD8_v2(
                ctypes.c_uint64(self.ptr), ctypes.c_ubyte(value), ctypes.c_size_t(size)
            )
        )
        _check(_driver.cuCtxSynchronize())

    def __del__(self) -> None:
        _driver.cuMemFree_v2(self._base)


class ndarray:
    """Bytes on the GPU."""

    def __init__(self, data: Any) -> None:
        self._memory = MemoryPointer(max(len(data), 1))
        self.nbytes = len(data)
        self.set(data)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": (self.nbytes,), "typestr": "|u1", "data": (self._memory.ptr, False),
            "strides": None, "version": 3,
        }  # fmt: skip

    def set(self, data: Any) -> None:
        """Overwrite all of it."""
        _check(
            _driver.cuMemcpyHtoD_v2(
                ctypes.c_uint64(self._memory.ptr), bytes(data), ctypes.c_size_t(self.nbytes)
            )
        )

    def get(self) -> np.ndarray[Any, Any]:
        """A copy of it in host memory."""
        copy = np.empty(self.nbytes, np.uint8)
        _check(
            _driver.cuMemcpyDtoH_v2(
                ctypes.c_void_p(copy.ctypes.data),
                ctypes.c_uint64(self._memory.ptr),
                ctypes.c_size_t(self.nbytes),
            )
        )
        return copy


def asarray(data: Any) -> ndarray:
    """The bytes of an array, on the GPU."""
    return ndarray(np.asarray(data, np.uint8).tobytes())


def _memory_info() -> tuple[int, int]:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    _check(_driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)))
    return free.value, total.value


def _check(code: int) -> None:
    if code != 0:
        raise RuntimeError(f"the driver said {code}")


cuda = SimpleNamespace(
    Device=Device,
    alloc=MemoryPointer,
    memory=SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
    runtime=SimpleNamespace(memGetInfo=_memory_info, CUDARuntimeError=cupy_nccl.CUDARuntimeError),
    Stream=cupy_nccl.Stream,
    Event=cupy_nccl.Event,
    get_elapsed_time=cupy_nccl.get_elapsed_time,
)

# As parts of a package are found.
sys.modules["cupy.cuda"] = cuda  # type: ignore[assignment]
sys.modules["cupy.cuda.nccl"] = cupy_nccl
