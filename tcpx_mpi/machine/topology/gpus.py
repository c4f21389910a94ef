"""The GPUs of this machine, as NVML tells them, else the CUDA driver; neither has to be there."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

from tcpx_mpi.machine.topology.machine import Gpu
from tcpx_mpi.machine.topology.pci import pci_address

#: The driver brings it, so no package need be installed for it.
NVML = "libnvidia-ml.so.1"
CUDA = "libcuda.so.1"
_NAME_BYTES = 96
#: PCI's vendor and class: NVIDIA's display and 3D controllers.
_NVIDIA, _DISPLAY = "0x10de", "0x03"


class _PciInfo(ctypes.Structure):
    """nvmlPciInfo_t; its last field is the address with a domain of 8 digits."""

    _fields_ = (
        ("busIdLegacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pciDeviceId", ctypes.c_uint),
        ("pciSubSystemId", ctypes.c_uint),
        ("busId", ctypes.c_char * 32),
    )


def find_gpus(visible: str | None, nvml: str = NVML, cuda: str = CUDA) -> list[Gpu]:
    """The GPUs that a process with CUDA_VISIBLE_DEVICES = `visible` (None: not set) has.

    NVML knows no such limit, so it is applied here; the CUDA driver does it itself.
    """
    found = _by_nvml(nvml)
    if found is not None:
        return visible_gpus(found, visible)
    return _by_driver(cuda)


def gpus_on_pci(devices: str = "/sys/bus/pci/devices") -> list[str]:
    """The addresses of this machine's GPUs, with a driver or without, visible or not, in order."""
    found = []
    for device in Path(devices).glob("*"):
        with contextlib.suppress(OSError):
            vendor = (device / "vendor").read_text().strip()
            if vendor == _NVIDIA and (device / "class").read_text().startswith(_DISPLAY):
                found.append(pci_address(device.name))
    return sorted(found)


def visible_gpus(gpus: Sequence[Gpu], visible: str | None) -> list[Gpu]:
    """The GPUs that CUDA takes from CUDA_VISIBLE_DEVICES: numbers or UUIDs, up to the first that is
    none."""
    if visible is None:
        return list(gpus)
    chosen: list[Gpu] = []
    for word in (word.strip() for word in visible.split(",")):
        if word.isdecimal():
            matches = [gpu for gpu in gpus if gpu.index == int(word)]
        else:
            matches = [gpu for gpu in gpus if word and gpu.uuid.startswith(word)]
        if len(matches) != 1 or any(matches[0].pci == gpu.pci for gpu in chosen):
            break
        chosen.append(matches[0])
    return _numbered((gpu.name, gpu.uuid, gpu.pci) for gpu in chosen)


def _by_nvml(file: str) -> list[Gpu] | None:
    """None if NVML cannot tell, or lacks a function by which it would."""
    try:
        library: Any = ctypes.CDLL(file)
        shut_down = library.nvmlShutdown
        if library.nvmlInit_v2() != 0:
            return None
    except (OSError, AttributeError):
        return None
    try:
        count = ctypes.c_uint(0)
        if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return None
        facts = [_nvml_facts(library, index) for index in range(count.value)]
    except AttributeError:
        return None
    finally:
        shut_down()
    # A device that NVML refuses to this process is none of its GPUs.
    return _numbered(fact for fact in facts if fact is not None)


def _nvml_facts(library: Any, index: int) -> tuple[str, str, str] | None:
    device = ctypes.c_void_p()
    info = _PciInfo()
    name, uuid = (ctypes.create_string_buffer(_NAME_BYTES) for _ in range(2))
    codes = [library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device))]
    if codes[0] == 0:
        size = ctypes.c_uint(_NAME_BYTES)
        codes.append(library.nvmlDeviceGetPciInfo_v3(device, ctypes.byref(info)))
        codes.append(library.nvmlDeviceGetName(device, name, size))
        codes.append(library.nvmlDeviceGetUUID(device, uuid, size))
    if any(codes):
        return None
    return name.value.decode(), uuid.value.decode(), info.busId.decode()


def _by_driver(file: str) -> list[Gpu]:
    """None of them where the driver lacks a function: which one, says who would use the GPUs."""
    try:
        library: Any = ctypes.CDLL(file)
        count = ctypes.c_int(0)
        if library.cuInit(0) != 0 or library.cuDeviceGetCount(ctypes.byref(count)) != 0:
            return []
        facts = [_driver_facts(library, index) for index in range(count.value)]
    except (OSError, AttributeError):
        return []
    return _numbered(fact for fact in facts if fact is not None)


def _driver_facts(library: Any, index: int) -> tuple[str, str, str] | None:
    device = ctypes.c_int()
    name, pci = (ctypes.create_string_buffer(_NAME_BYTES) for _ in range(2))
    uuid = (ctypes.c_ubyte * 16)()
    codes = [library.cuDeviceGet(ctypes.byref(device), index)]
    if codes[0] == 0:
        codes.append(library.cuDeviceGetName(name, _NAME_BYTES, device))
        codes.append(library.cuDeviceGetPCIBusId(pci, _NAME_BYTES, device))
        codes.append(library.cuDeviceGetUuid(ctypes.byref(uuid), device))
    if any(codes):
        return None
    return name.value.decode(), f"GPU-{UUID(bytes=bytes(uuid))}", pci.value.decode()


def _numbered(facts: Iterable[tuple[str, str, str]]) -> list[Gpu]:
    return [
        Gpu(index, name, uuid, pci_address(pci)) for index, (name, uuid, pci) in enumerate(facts)
    ]
