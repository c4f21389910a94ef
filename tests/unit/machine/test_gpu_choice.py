"""Which memory a run uses: `--memory auto` and what stands in the way of a GPU's."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tcpx_mpi import _native
from tcpx_mpi.config.settings import Settings, load_settings
from tcpx_mpi.machine.gpu import choice, driver
from tcpx_mpi.machine.gpu.choice import decided, obstacle_to_cuda
from tcpx_mpi.machine.gpu.driver import cuda_major, extra_for, ordinal_of
from tcpx_mpi.machine.placement import Placement

PLACE = Placement(local_rank=1, local_ranks=2, device=0, progress_cpu=-1, oversubscribed=False,
                  gpu=1, gpu_pci="0000:9a:00.0")  # fmt: skip
TAKES_ALL = {
    "ptr_support": _native.PTR_HOST | _native.PTR_CUDA,
    "device_type": _native.DEVICE_UNPACK,
    "name": "eth1",
    "pci_path": "/sys/devices/pci0000:00/0000:00:04.0",
}
#: By speed, as CUDA numbers them: not in the order of their addresses.
DEVICES = [
    {"ordinal": 0, "name": "G", "pci": "00000000:9A:00.0"},
    {"ordinal": 1, "name": "G", "pci": "00000000:1B:00.0"},
]


@pytest.fixture
def with_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "cuda_devices", lambda: DEVICES)
    monkeypatch.setattr(choice.importlib.util, "find_spec", lambda name: object())  # CuPy


def auto() -> Settings:
    return load_settings({"pattern": "pair"}, {})


def obstacle(properties: Any = TAKES_ALL, **changes: Any) -> str:
    return obstacle_to_cuda("p", properties, dataclasses.replace(PLACE, **changes), "hostA")


def test_a_gpu_is_known_by_its_address_not_by_its_number() -> None:
    assert ordinal_of("0000:9a:00.0", DEVICES) == 0
    assert ordinal_of("0000:1b:00.0", DEVICES) == 1
    assert ordinal_of("0000:2c:00.0", DEVICES) is None
    assert ordinal_of("", DEVICES) is None


@pytest.mark.usefixtures("with_gpus")
@pytest.mark.parametrize("device_type", [0, 1, 5])
def test_nothing_stands_in_the_way_of_a_gpu_that_is_there(device_type: int) -> None:
    assert obstacle({**TAKES_ALL, "device_type": device_type}) == ""


@pytest.mark.usefixtures("with_gpus")
def test_tcpx_gets_no_gpu_memory_on_a_nic_without_a_pci_device() -> None:
    """It would crash (SIGSEGV); softtcpx serves GPU memory over any NIC."""
    virtual = {**TAKES_ALL, "name": "lo", "pci_path": ""}
    why = obstacle_to_cuda("GPUDirectTCPX_v7", virtual, PLACE, "hostA", needs_pci=True)
    assert "lo has none" in why
    assert "physical NIC" in why
    assert obstacle_to_cuda("softtcpx_v7", virtual, PLACE, "hostA") == ""
    assert obstacle_to_cuda("GPUDirectTCPX_v7", TAKES_ALL, PLACE, "hostA", needs_pci=True) == ""


@pytest.mark.usefixtures("with_gpus")
@pytest.mark.parametrize(
    ("properties", "changes", "parts"),
    [
        ({**TAKES_ALL, "ptr_support": 1}, {}, ("plugin p offers no CUDA memory", "ptrSupport 1")),
        (TAKES_ALL, {"gpu": -1, "gpu_pci": "", "local_ranks": 4},
         ("local rank 1 of hostA has no GPU (4 ranks, 2 GPUs)", "--share-gpu")),
        (TAKES_ALL, {"gpu": -1, "gpu_pci": ""}, ("local rank 1 of hostA has no GPU", "--gpu")),
        (TAKES_ALL, {"gpu_pci": "0000:2c:00.0"},
         ("GPU 1 [0000:2c:00.0] of hostA", "CUDA_VISIBLE_DEVICES")),
    ],
)  # fmt: skip
def test_each_obstacle_says_what_and_what_to_do(
    properties: dict[str, int], changes: dict[str, Any], parts: tuple[str, ...]
) -> None:
    text = obstacle(properties, **changes)
    assert "\n" not in text
    for part in parts:
        assert part in text


def test_without_a_driver_the_reason_is_the_drivers(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable() -> list[dict[str, Any]]:
        raise _native.CudaUnavailable("no driver here")

    monkeypatch.setattr(_native, "cuda_devices", unavailable)
    assert obstacle().startswith("hostA has no usable GPU (no driver here): ")


@pytest.mark.usefixtures("with_gpus")
def test_a_missing_cupy_is_named_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(choice.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(driver, "cuda_major", lambda: 12)
    assert obstacle() == "CuPy is missing on hostA: pip install 'tcpx-mpi[cuda12]'"
    assert extra_for(13) == "cuda13"


def test_auto_is_a_gpus_memory_only_where_every_rank_has_one() -> None:
    both = decided(auto(), ["", ""])
    assert (both.memory, both.unpack_mode()) == ("cuda", "kernel")
    assert both.sources["memory"].startswith("auto: every rank has a GPU")
    one = decided(auto(), ["", "hostB has no usable GPU"])
    assert (one.memory, one.sources["memory"]) == ("host", "auto: hostB has no usable GPU")


def test_the_drivers_cuda_decides_which_cupy_and_none_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_native, "cuda_driver_version", lambda: "13.0")
    assert cuda_major() == 13

    def unavailable() -> str:
        raise _native.CudaUnavailable("no driver here")

    monkeypatch.setattr(_native, "cuda_driver_version", unavailable)
    assert cuda_major() == 0
