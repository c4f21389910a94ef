"""How a GPU fares, by a binding of NVML that answers, refuses, or is not there."""

from __future__ import annotations

import sys
import types

import pytest

from tcpx_mpi.machine.gpu.health import GpuHealth
from tcpx_mpi.records import GpuState
from tcpx_mpi.transport.gpu_watch import RowWatch


class NVMLError(Exception):
    """As the binding's own."""


def nvml(monkeypatch: pytest.MonkeyPatch, **changes: object) -> types.ModuleType:
    """A binding with one GPU at 0000:9a:00.0."""
    module = types.ModuleType("pynvml")

    def handle(pci: bytes) -> str:
        if pci != b"0000:9a:00.0":
            raise NVMLError("Not Found")
        return "the GPU"

    functions = {
        "NVMLError": NVMLError, "NVML_CLOCK_SM": 1, "NVML_CLOCK_MEM": 2, "NVML_TEMPERATURE_GPU": 0,
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: vars(module).update(open=False),
        "nvmlDeviceGetHandleByPciBusId": handle,
        "nvmlSystemGetDriverVersion": lambda: "580.1",
        "nvmlDeviceGetClockInfo": lambda device, kind: {1: 1980, 2: 3201}[kind],
        "nvmlDeviceGetTemperature": lambda device, sensor: 41,
        "nvmlDeviceGetPowerUsage": lambda device: 120_000,
        "nvmlDeviceGetCurrentClocksThrottleReasons": lambda device: 4,
    }  # fmt: skip
    vars(module).update(functions | changes)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return module


def test_what_nvml_says_is_kept_in_its_units(monkeypatch: pytest.MonkeyPatch) -> None:
    module = nvml(monkeypatch)
    health = GpuHealth("0000:9a:00.0")
    assert (health.obstacle, health.driver) == ("", "580.1")
    assert health.state() == GpuState(
        sm_mhz=1980, memory_mhz=3201, temperature_c=41, power_mw=120_000, throttle_reasons=4
    )
    health.close()
    assert vars(module)["open"] is False
    assert health.state() == GpuState()


def test_what_a_gpu_refuses_to_tell_is_unknown_and_the_rest_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(device: str) -> int:
        raise NVMLError("Not Supported")

    nvml(monkeypatch, nvmlDeviceGetPowerUsage=refused)
    state = GpuHealth("0000:9a:00.0").state()
    assert (state.power_mw, state.sm_mhz) == (-1, 1980)


def test_without_the_binding_or_the_gpu_it_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    missing = GpuHealth("0000:9a:00.0")
    assert missing.obstacle == "not read: pip install nvidia-ml-py"
    assert missing.state() == GpuState()
    missing.close()
    nvml(monkeypatch)
    assert GpuHealth("0000:01:00.0").obstacle == "not read: NVML says Not Found"


class Engine:
    """Of a rank whose GPU made two launches in the batch that was watched."""

    def __init__(self, times: list[tuple[int, int, float]]) -> None:
        self.watched: list[int] = []
        self.times = times

    def measure_unpack(self, launches: int) -> None:
        self.watched.append(launches)

    def unpack_times(self) -> list[tuple[int, int, float]]:
        assert self.watched[-1] > 0, "asked for after it was switched off"
        return self.times


def test_a_row_has_the_states_around_it_and_the_sum_of_its_launches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks = iter([345, 1980])
    nvml(monkeypatch, nvmlDeviceGetClockInfo=lambda device, kind: next(clocks) if kind == 1 else 1)
    engine = Engine([(3, 1000, 1.5), (1, 24, 0.5)])
    watch = RowWatch(engine, GpuHealth("0000:9a:00.0"))
    watch.before_row()
    watch.after_row()
    row = watch.row()
    assert (row.sm_mhz_before, row.sm_mhz_after) == (345, 1980)
    assert (row.unpack_gpu_ns, row.unpack_bytes, row.unpack_launches) == (2000, 1024, 2)
    assert engine.watched[-1] == 0, "timed rows pay for events"


def test_a_rank_that_unpacks_nothing_has_no_time_for_it() -> None:
    watch = RowWatch(Engine([]), GpuHealth(""))
    watch.before_row()
    watch.after_row()
    assert watch.row().unpack_gpu_ns == -1
