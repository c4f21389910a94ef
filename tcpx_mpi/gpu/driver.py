"""What the driver is, asked of the library itself, so that it can be told even where it fails."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from tcpx_mpi.topology import CUDA, pci_address


def cuda_version(library: str = CUDA) -> int:
    """The newest CUDA that the driver speaks, 1000 * major + 10 * minor; 0 without a driver."""
    version = ctypes.c_int(0)
    try:
        ctypes.CDLL(library).cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return 0
    return version.value


def version_text(version: int) -> str:
    """13.0 of 13000."""
    return f"{version // 1000}.{version % 1000 // 10}"


def how_to_install_cupy(driver_cuda: int) -> str:
    """The extra that fits a driver of this CUDA version."""
    extra = "cuda13" if driver_cuda >= 13000 else "cuda12"
    return f"pip install 'tcpx-mpi[{extra}]'"


def ordinal_of(pci: str, devices: Sequence[Mapping[str, Any]]) -> int | None:
    """CUDA's number of the GPU at a PCI address; None where CUDA does not show it.

    Only the address is common to all: CUDA numbers the visible GPUs, by speed unless told.
    """
    numbers = [int(each["ordinal"]) for each in devices if pci_address(str(each["pci"])) == pci]
    return numbers[0] if pci and numbers else None
