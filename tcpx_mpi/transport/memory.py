"""Buffers of a rank: memory kinds that its plugin takes, the GPU, and how much is free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tcpx_mpi import _native
from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.machine.gpu.choice import obstacle_of_nic
from tcpx_mpi.machine.gpu.driver import ordinal_of
from tcpx_mpi.machine.placement import Placement
from tcpx_mpi.machine.topology import Host
from tcpx_mpi.plugin.find import is_softtcpx, is_tcpx
from tcpx_mpi.schedule.table import BufferId
from tcpx_mpi.transport.load_plugin import LoadedPlugin
from tcpx_mpi.transport.setup_errors import setup_errors
from tcpx_mpi.units import format_size


def require_memory(kind: str, plugin: LoadedPlugin, device: int, asked_by: str = "") -> int:
    """The way that buffers of this kind are registered; raises UsageError if the plugin has no
    such."""
    asked_by = asked_by or f"--memory {kind}"
    if kind == "emulated" and not is_softtcpx(plugin.file.name):
        # TCPX would take such pages for a GPU's, and where its queue is no CPU can read.
        raise UsageError(
            f"{asked_by}: plugin {plugin.file.name} has no receive path of GPUs for host memory, "
            "which softtcpx alone has; use --plugin softtcpx, or --memory cuda"
        )
    pointer = _native.PTR_HOST if kind == "host" else _native.PTR_CUDA
    properties = plugin.nic(device)
    if not properties["ptr_support"] & pointer:
        raise UsageError(
            f"{asked_by}: plugin {plugin.file.name} does not take such buffers (ptrSupport "
            f"{properties['ptr_support']}); use host memory, or a plugin that offers CUDA memory"
        )
    by_pci = kind == "cuda" and is_tcpx(plugin.file.name)
    if by_pci and (obstacle := obstacle_of_nic(plugin.file.name, properties)):
        raise UsageError(f"{asked_by}: {obstacle}; or use host memory")
    return pointer


def require_receives(settings: Settings, plugin: LoadedPlugin, device: int) -> None:
    """Raises UsageError for more receives in one request than the plugin takes."""
    asked, most = settings.multi_recv, plugin.nic(device)["max_recvs"]
    if asked > max(most, 1):
        raise UsageError(
            f"--multi-recv ({asked}) is larger than maxRecvs of {plugin.file.name} ({most}): "
            + (f"use {most} or less" if most > 1 else "leave it out, or use another plugin")
        )
    if asked > 1 and settings.unpack_mode() != "in place":
        raise UsageError(
            f"--multi-recv ({asked}) has no receives in fragments, as {plugin.file.name} makes "
            "them: use host memory, or leave it out"
        )


def setup_gpu(
    kind: str, plugin: LoadedPlugin, placement: Placement, devices: Sequence[Mapping[str, Any]]
) -> int:
    """CUDA's number of the GPU to be current while the plugin listens, connects and registers, for
    buffers that are in no GPU's memory; -1 for none.

    TCPX looks at that then, whatever memory it is given: it would else take GPU 0 for every rank.
    softtcpx keeps to the host where no GPU is current.
    """
    properties = plugin.nic(placement.device)
    looks = (
        kind == "host"
        and properties["device_type"] == _native.DEVICE_UNPACK
        and properties["ptr_support"] & _native.PTR_CUDA
        and not is_softtcpx(plugin.file.name)
    )
    ordinal = ordinal_of(placement.gpu_pci, devices) if looks else None
    return -1 if ordinal is None else ordinal


def visible_gpus() -> Sequence[Mapping[str, Any]]:
    """[] if there is no driver."""
    try:
        return _native.cuda_devices()
    except _native.CudaUnavailable:
        return ()


def slot_buffers(
    sizes: Mapping[BufferId, int], host: Host, placement: Placement, free: int
) -> dict[BufferId, Any]:
    """Buffers of these bytes in host memory, those of 0 left out.

    `free` is the node's, 0 if unknown. Raises UsageError where it is too little for each rank,
    SetupFailed if memory is refused.
    """
    needed = sum(sizes.values())
    share = free // placement.local_ranks
    if free and needed > share:
        raise UsageError(
            f"the buffers of this rank need {format_size(needed)}, available on {host.name} "
            f"are {format_size(share)} a rank: use a smaller -e or --check-memory"
        )
    with setup_errors():
        return {buffer: _native.SlotBuffer(size) for buffer, size in sizes.items() if size}


def companions(settings: Settings) -> int:
    """Processes beside each rank that have its buffers once more: of NCCL, one a preset."""
    return len(settings.nccl_presets) if "nccl" in settings.against else 0
