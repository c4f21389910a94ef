"""Choice of memory for a run: why the memory of this rank's GPU is used, or not."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from tcpx_mpi import _native
from tcpx_mpi.config.settings import Settings
from tcpx_mpi.machine.gpu.driver import how_to_install_cupy, ordinal_of
from tcpx_mpi.machine.placement import Placement
from tcpx_mpi.units import counted

_WHY_CUDA = "every rank has a GPU, and the plugin takes its memory"
#: Peers that read and write the slots with the CPU.
_HOST_BASELINES = ("raw", "mpi")


def decided(settings: Settings, obstacles: Sequence[str]) -> Settings:
    """`--memory auto` made a kind, from what stands in the way on each rank ("" for nothing)."""
    obstacle = next(filter(None, obstacles), "")
    sources = {**settings.sources, "memory": f"auto: {obstacle or _WHY_CUDA}"}
    return dataclasses.replace(settings, memory="host" if obstacle else "cuda", sources=sources)


def obstacle_of_baselines(against: Sequence[str]) -> str:
    """Why runs beside these baselines cannot use a GPU's memory; "" if they can."""
    name = next((each for each in against if each in _HOST_BASELINES), "")
    return name and f"--against {name} moves host memory"


def obstacle_of_nic(plugin: str, properties: Mapping[str, Any]) -> str:
    """Why TCPX, which registers GPU memory by PCI device, cannot on this NIC; "" if it can."""
    if properties["pci_path"]:
        return ""
    return (
        f"plugin {plugin} registers GPU memory with the PCI device of a NIC, and "
        f"{properties['name']} has none: choose a physical NIC (in a pod: hostNetwork)"
    )


def obstacle_to_cuda(
    plugin: str,
    properties: Mapping[str, Any],
    placement: Placement,
    host: str,
    needs_pci: bool = False,
) -> str:
    """Why this rank cannot use a GPU's memory, with what to do; "" if it can.

    `properties` is what the plugin of that name says of the rank's device. TCPX `needs_pci`: it
    crashes if it is given GPU memory on a NIC without a PCI device.
    """
    if not properties["ptr_support"] & _native.PTR_CUDA:
        return (
            f"plugin {plugin} offers no CUDA memory (ptrSupport {properties['ptr_support']}): "
            "use one that does"
        )
    if needs_pci and (obstacle := obstacle_of_nic(plugin, properties)):
        return obstacle
    try:
        devices = _native.cuda_devices()
    except _native.CudaUnavailable as error:
        return _unusable(host, error)
    if placement.gpu < 0:
        return _without_gpu(placement, len(devices), host)
    if ordinal_of(placement.gpu_pci, devices) is None:
        return (
            f"GPU {placement.gpu} [{placement.gpu_pci or 'PCI address unknown'}] of {host} is none "
            "of those that CUDA shows to this process: check CUDA_VISIBLE_DEVICES"
        )
    return _without_cupy(host)


def obstacle_of_host(host: str) -> str:
    """Why no process of this host can use a GPU's memory, whatever its plugin and place; "" if
    one may."""
    try:
        _native.cuda_devices()
    except _native.CudaUnavailable as error:
        return _unusable(host, error)
    return _without_cupy(host)


def _unusable(host: str, error: Exception) -> str:
    return f"{host} has no usable GPU ({error}): start on machines that have one"


def _without_cupy(host: str) -> str:
    if importlib.util.find_spec("cupy") is None:
        return f"CuPy is missing on {host}: {how_to_install_cupy()}"
    return ""


def _without_gpu(placement: Placement, gpus: int, host: str) -> str:
    rank, ranks = placement.local_rank, placement.local_ranks
    if 0 < gpus < ranks:
        return (
            f"local rank {rank} of {host} has no GPU ({counted(ranks, 'rank')}, "
            f"{counted(gpus, 'GPU')}): start fewer ranks, or give --share-gpu (and no --gpu none)"
        )
    return f"local rank {rank} of {host} has no GPU: name one with --gpu, or leave --gpu out"
