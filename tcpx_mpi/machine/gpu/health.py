"""GPU health during rows, by NVML: clocks, temperature, power, throttling.

NVML's Python binding (nvidia-ml-py, in the extras cuda12 and cuda13) need not be there. Asked
between batches only: an answer takes up to a millisecond.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tcpx_mpi.records import GpuState

#: Where the state of a GPU cannot be read, and how to change that.
NOT_READ = "not read: pip install nvidia-ml-py"


class GpuHealth:
    """One GPU, by its PCI address."""

    def __init__(self, pci: str) -> None:
        self._nvml: Any = None
        #: Why nothing can be read; "" if it can.
        self.obstacle = ""
        #: The driver's own version, "" where it is unknown.
        self.driver = ""
        try:
            import pynvml as nvml
        except ImportError:
            self.obstacle = NOT_READ
            return
        try:
            nvml.nvmlInit()
            self._device = nvml.nvmlDeviceGetHandleByPciBusId(pci.encode())
            self.driver = _text(nvml.nvmlSystemGetDriverVersion())
            self._nvml = nvml
        except nvml.NVMLError as error:
            self.obstacle = f"not read: NVML says {error}"

    def state(self) -> GpuState:
        """The GPU's state now; -1 for what cannot be read."""
        nvml = self._nvml
        if nvml is None:
            return GpuState()
        device = self._device
        return GpuState(
            sm_mhz=self._asked(lambda: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM)),
            memory_mhz=self._asked(
                lambda: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_MEM)
            ),
            temperature_c=self._asked(
                lambda: nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU)
            ),
            power_mw=self._asked(lambda: nvml.nvmlDeviceGetPowerUsage(device)),
            throttle_reasons=self._asked(
                lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device)
            ),
        )

    def close(self) -> None:
        """Let NVML go."""
        if self._nvml is not None:
            self._nvml.nvmlShutdown()
            self._nvml = None

    def _asked(self, question: Callable[[], Any]) -> int:
        # A GPU, or a container, may refuse some of these and answer others.
        try:
            return int(question())
        except self._nvml.NVMLError:
            return -1


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
