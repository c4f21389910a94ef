"""The memory that an agent moves, in DRAM or on a GPU: filled with bytes of a seed, and judged."""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.errors import SetupFailed

#: What a destination has before a block, so that bytes that do not come are seen.
_POISON = 0xEE


class HostMemory:
    """In DRAM."""

    kind = "DRAM"
    device = 0

    def __init__(self, size_bytes: int) -> None:
        self._bytes = np.zeros(size_bytes, np.uint8)
        self.address = int(self._bytes.ctypes.data)

    def write(self, values: NDArray[np.uint8]) -> None:
        self._bytes[: values.size] = values

    def read(self, size_bytes: int) -> NDArray[np.uint8]:
        return self._bytes[:size_bytes]


class GpuMemory:
    """On a GPU, by the driver alone: no package for arrays is needed."""

    kind = "VRAM"

    def __init__(self, size_bytes: int, gpu: int = 0) -> None:
        from tcpx_mpi import _native

        self.device = gpu
        try:
            _native.cuda_select(gpu)
        except (_native.CudaUnavailable, _native.CudaError) as error:
            raise SetupFailed(f"--memory vram: {error}") from None
        self._driver = ctypes.CDLL("libcuda.so.1")
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size_bytes))
        self.address = address.value

    def write(self, values: NDArray[np.uint8]) -> None:
        self._copy(self.address, values.ctypes.data, values.size)

    def read(self, size_bytes: int) -> NDArray[np.uint8]:
        values = np.empty(size_bytes, np.uint8)
        self._copy(values.ctypes.data, self.address, size_bytes)
        return values

    def _copy(self, to: int, source: int, size_bytes: int) -> None:
        places = (ctypes.c_uint64(to), ctypes.c_uint64(source), ctypes.c_size_t(size_bytes))
        self._call("cuMemcpy", *places)
        self._call("cuCtxSynchronize")

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._driver, name)(*arguments)
        if code != 0:
            raise SetupFailed(f"--memory vram: {name} returned {code}")


Memory = HostMemory | GpuMemory


def make_memory(kind: str, size_bytes: int) -> Memory:
    """`kind` is dram or vram. Raises SetupFailed."""
    return GpuMemory(size_bytes) if kind == "vram" else HostMemory(size_bytes)


def pattern(seed: int, size_bytes: int) -> NDArray[np.uint8]:
    """Bytes that only this seed makes."""
    return np.random.default_rng(seed).integers(0, 256, size_bytes, dtype=np.uint8)


def poison(memory: Memory, extent_bytes: int) -> None:
    memory.write(np.full(extent_bytes, _POISON, np.uint8))


def wrong_bytes(
    memory: Memory, seed: int, blocks: int, block_bytes: int, stride_bytes: int
) -> tuple[int, int]:
    """Wrong bytes in memory that was poisoned and then written in blocks: their number, those
    between the blocks included, and the offset of the first (-1: none)."""
    extent = (blocks - 1) * stride_bytes + block_bytes
    expected = np.full(extent, _POISON, np.uint8)
    sent = pattern(seed, extent)
    for block in range(blocks):
        at = block * stride_bytes
        expected[at : at + block_bytes] = sent[at : at + block_bytes]
    differ = np.flatnonzero(memory.read(extent) != expected)
    return int(differ.size), int(differ[0]) if differ.size else -1
