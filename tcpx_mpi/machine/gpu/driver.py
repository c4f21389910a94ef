"""The CUDA driver of this machine: its version, and which GPU has which ordinal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tcpx_mpi import _native
from tcpx_mpi.machine.topology import pci_address


def cuda_major() -> int:
    """The newest CUDA that the driver speaks, as its first number; 0 without a driver."""
    try:
        return int(_native.cuda_driver_version().partition(".")[0])
    except _native.CudaUnavailable:
        return 0


def extra_for(major: int) -> str:
    """The extra of this package with the CuPy that fits a driver of this CUDA."""
    return "cuda13" if major >= 13 else "cuda12"


def how_to_install_cupy() -> str:
    """The command that installs the missing CuPy."""
    return f"pip install 'tcpx-mpi[{extra_for(cuda_major())}]'"


def ordinal_of(pci: str, devices: Sequence[Mapping[str, Any]]) -> int | None:
    """CUDA's number of the GPU at a PCI address; None if CUDA does not show it.

    Only the address is common to all: CUDA numbers the visible GPUs, by speed unless told.
    """
    numbers = [int(each["ordinal"]) for each in devices if pci_address(str(each["pci"])) == pci]
    return numbers[0] if pci and numbers else None
