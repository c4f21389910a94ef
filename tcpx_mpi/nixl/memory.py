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

    def write(self, values: NDArray[np.uint8], at: int = 0) -> None:
        self._bytes[at : at + values.size] = values

    def read(self, size_bytes: int, at: int = 0) -> NDArray[np.uint8]:
        return self._bytes[at : at + size_bytes]


class GpuMemory:
    """On a GPU, by the driver alone: no package for arrays is needed."""

    kind = "VRAM"

    def __init__(self, size_bytes: int, local_rank: int = 0) -> None:
        from tcpx_mpi import _native

        try:
            gpus = [each["ordinal"] for each in _native.cuda_devices()]
            if not gpus:
                raise SetupFailed("--memory vram: the driver has no GPU here")
            self.device = gpus[local_rank % len(gpus)]
            _native.cuda_select(self.device)
        except (_native.CudaUnavailable, _native.CudaError) as error:
            raise SetupFailed(f"--memory vram: {error}") from None
        self._driver = ctypes.CDLL("libcuda.so.1")
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size_bytes))
        self.address = address.value

    def write(self, values: NDArray[np.uint8], at: int = 0) -> None:
        self._copy(self.address + at, values.ctypes.data, values.size)

    def read(self, size_bytes: int, at: int = 0) -> NDArray[np.uint8]:
        values = np.empty(size_bytes, np.uint8)
        self._copy(values.ctypes.data, self.address + at, size_bytes)
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


def make_memory(kind: str, size_bytes: int, local_rank: int = 0) -> Memory:
    """`kind` is dram or vram, of one GPU after the other by the rank's number on its node. Raises
    SetupFailed."""
    return GpuMemory(size_bytes, local_rank) if kind == "vram" else HostMemory(size_bytes)


def pattern(seed: int | tuple[int, ...], size_bytes: int) -> NDArray[np.uint8]:
    """Bytes that only this seed makes."""
    return np.random.default_rng(seed).integers(0, 256, size_bytes, dtype=np.uint8)


def poison(memory: Memory, extent_bytes: int, at: int = 0) -> None:
    memory.write(np.full(extent_bytes, _POISON, np.uint8), at)


def wrong_bytes(
    memory: Memory, seed: int | tuple[int, ...], blocks: int, block_bytes: int, stride_bytes: int,
    start: int = 0,
) -> tuple[int, int]:  # fmt: skip
    """Wrong bytes in memory that was poisoned and then written in blocks from `start` on: their
    number, those between the blocks included, and the offset of the first (-1: none)."""
    extent = (blocks - 1) * stride_bytes + block_bytes
    expected = np.full(extent, _POISON, np.uint8)
    sent = pattern(seed, extent)
    for block in range(blocks):
        at = block * stride_bytes
        expected[at : at + block_bytes] = sent[at : at + block_bytes]
    differ = np.flatnonzero(memory.read(extent, start) != expected)
    return int(differ.size), int(differ[0]) if differ.size else -1
