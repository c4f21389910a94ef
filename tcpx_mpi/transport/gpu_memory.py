"""A rank's GPU, current on its main thread, and buffers in its memory.

CuPy allocates them, so that a program's other arrays and ours share one pool; native code cuts,
fills and checks them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tcpx_mpi import _native
from tcpx_mpi.errors import SetupFailed, UsageError
from tcpx_mpi.machine.gpu.compiler import configure_compiler, nvrtc_version
from tcpx_mpi.machine.gpu.driver import how_to_install_cupy, ordinal_of
from tcpx_mpi.machine.gpu.health import GpuHealth
from tcpx_mpi.machine.placement import Placement
from tcpx_mpi.schedule.table import BufferId
from tcpx_mpi.units import counted, format_size

#: What plugins map a GPU's memory by: pointers and sizes are multiples of it.
PAGE_BYTES = 4096
#: Of a GPU that times its unpacks (kLeadBytes of native/unpack/cuda_unpacker.cc), and of checks.
_FOR_TIMES_BYTES = 40 << 20


class RankGpu:
    """The GPU of a rank's place; it is current on this thread from now on.

    Raises UsageError if CUDA does not show it, or without CuPy.
    """

    def __init__(self, placement: Placement) -> None:
        devices = _native.cuda_devices()
        ordinal = ordinal_of(placement.gpu_pci, devices)
        if ordinal is None:
            raise UsageError(f"GPU [{placement.gpu_pci or 'unknown'}] is none that CUDA shows here")
        self.ordinal = ordinal
        self.name = next(str(each["name"]) for each in devices if each["ordinal"] == ordinal)
        self._sharers = placement.gpu_sharers
        self._cupy = load_cupy()
        configure_compiler()
        self._cupy.cuda.Device(ordinal).use()
        _native.cuda_select(ordinal)
        self.health = GpuHealth(placement.gpu_pci)
        #: What CuPy gave: it must live as long as the slots in it.
        self._allocations: list[Any] = []

    def facts(self) -> dict[str, str]:
        """Versions of what stands between us and the GPU, and who tells its clocks."""
        return {
            "gpu_driver": self.health.driver or "unknown",
            "gpu_driver_cuda": _native.cuda_driver_version(),
            "gpu_nvrtc": nvrtc_version(),
            "gpu_cupy": str(self._cupy.__version__),
            "gpu_clocks": self.health.obstacle or "read by NVML",
        }

    def free_bytes(self) -> int:
        """Free bytes on the GPU, for all ranks that share it."""
        free, _ = self._cupy.cuda.runtime.memGetInfo()
        return int(free)

    def slot_buffers(
        self, sizes: Mapping[BufferId, int], free: int, companions: int = 0
    ) -> dict[BufferId, Any]:
        """Buffers of at least these bytes, in whole pages, zeroed; those of 0 left out.

        `free` is `free_bytes` before any rank that shares the GPU has taken some, and of them each
        has so many companions with buffers of the same sizes. Raises UsageError if that is too
        little for all of them, SetupFailed if memory is refused.
        """
        wanted = {buffer: _pages(size) for buffer, size in sizes.items() if size}
        # One page more for each: CuPy's blocks begin on borders of 512 bytes.
        slots = sum(wanted.values()) + PAGE_BYTES * len(wanted)
        needed = (1 + companions) * slots + _FOR_TIMES_BYTES
        share = free // self._sharers
        if needed > share:
            raise UsageError(
                "the buffers of this rank "
                + (
                    f"and as large ones of {counted(companions, 'companion')} "
                    if companions
                    else ""
                )
                + f"need {format_size(needed)}, free on GPU {self.ordinal} ({self.name}) are "
                f"{format_size(share)} a rank: use a smaller -e or --check-memory"
            )
        buffers = {buffer: self._slots(size) for buffer, size in wanted.items()}
        # Zeroed by the stream of all, which the streams of those who write do not wait for.
        self._cupy.cuda.Device(self.ordinal).synchronize()
        return buffers

    def _slots(self, size: int) -> Any:
        try:
            allocation = self._cupy.cuda.alloc(size + PAGE_BYTES)
        except self._cupy.cuda.memory.OutOfMemoryError as error:
            text = " ".join(str(error).split())
            raise SetupFailed(f"the GPU refused {format_size(size)} of memory: {text}") from None
        allocation.memset(0, size + PAGE_BYTES)
        self._allocations.append(allocation)
        return _native.CudaSlots(_pages(int(allocation.ptr)), size, self.ordinal)


def load_cupy() -> Any:
    """CuPy. Raises UsageError where it is not installed, or not for this machine's CUDA."""
    try:
        import cupy
    except ImportError as error:
        found = " ".join(str(error).split())
        raise UsageError(f"a GPU's memory needs CuPy ({found}): {how_to_install_cupy()}") from None
    return cupy


def _pages(number: int) -> int:
    """The next multiple of a page."""
    return -(-number // PAGE_BYTES) * PAGE_BYTES
