"""The GPU of a rank in a row: its state around the timed batches, its unpacks' own time."""

from __future__ import annotations

from typing import Any

from tcpx_mpi.machine.gpu.health import GpuHealth
from tcpx_mpi.records import GpuRow, GpuState, gpu_row

#: More than a batch that is watched has; each costs two events.
_MOST_LAUNCHES = 1024


class RowWatch:
    """`tcpx_mpi.transport.interface.GpuWatch` over the native engine that unpacks on the GPU."""

    def __init__(self, engine: Any, health: GpuHealth, unpacks: bool = True) -> None:
        self._engine, self._health = engine, health
        #: Whether the GPU unpacks at all, and has times of its own to tell.
        self.unpacks = unpacks
        self._before = self._after = GpuState()

    def before_row(self) -> None:
        """The timed batches are about to begin."""
        self._before = self._health.state()

    def after_row(self) -> None:
        """They are over; the GPU times its unpacks from here on."""
        self._after = self._health.state()
        if self.unpacks:
            self._engine.measure_unpack(_MOST_LAUNCHES)

    def row(self) -> GpuRow:
        """The GPU's readings since `before_row`."""
        if not self.unpacks:
            return gpu_row(self._before, self._after)
        launches = self._engine.unpack_times()
        self._engine.measure_unpack(0)
        if not launches:  # this rank receives nothing, or it is left scattered
            return gpu_row(self._before, self._after)
        return gpu_row(
            self._before,
            self._after,
            unpack_gpu_ns=round(1e3 * sum(microseconds for _, _, microseconds in launches)),
            unpack_bytes=sum(count for _, count, _ in launches),
            unpack_launches=len(launches),
        )
