"""A machine as text: what hangs where, and how far each GPU is from each NIC."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from tcpx_mpi.cpu_lists import cpu_list_text
from tcpx_mpi.machine.topology.machine import Gpu, Nic, Topology
from tcpx_mpi.machine.topology.pci import bridges_of
from tcpx_mpi.units import format_size

#: A device, and the bridges that it is behind.
_Placed = tuple[list[str], str]


def picture_lines(topology: Topology) -> list[str]:
    """The machine from the NUMA nodes down to the devices, then the distances and the limits."""
    lines = [f"# {line}" for line in topology.about.splitlines()]
    lines.append(
        f"CPUs: {len(topology.cpus)} in {len(topology.cores)} cores, "
        f"NUMA nodes: {len(topology.numa_nodes) or 'unknown'}, GPUs: {len(topology.gpus)}, "
        f"NICs: {len(topology.nics)}"
    )
    for node in topology.numa_nodes:
        memory = format_size(node.memory_bytes) if node.memory_bytes else "memory unknown"
        lines += ["", f"NUMA node {node.number}: CPUs {cpu_list_text(node.cpus)}, {memory}"]
        lines += _devices(topology, node.number)
    if elsewhere := _devices(topology, -1):
        lines += ["", "NUMA node unknown", *elsewhere]
    if topology.gpus and topology.nics:
        lines += ["", *_distances(topology)]
    return [*lines, "", *_limits(topology), *_warnings(topology)]


def aligned(table: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a table whose columns are as wide as they have to be."""
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]


def _devices(topology: Topology, numa_node: int) -> list[str]:
    """The devices of a NUMA node, as a tree of PCI bridges; -1: those of no known node."""
    known = {node.number for node in topology.numa_nodes}
    placed: list[_Placed] = []
    for gpu in topology.gpus:
        number = topology.numa_of(gpu.numa_node)
        if (number if number in known else -1) == numa_node:
            placed.append((bridges_of(gpu.path), _gpu_text(gpu)))
    for nic in topology.nics:
        # A virtual interface is on no node, not even on an only one.
        number = topology.numa_of(nic.numa_node) if nic.path else -1
        if (number if number in known else -1) == numa_node:
            placed.append((bridges_of(nic.path), _nic_text(nic)))
    return list(_tree(sorted(placed, key=lambda each: each[0]), 0, "  "))


def _tree(placed: Sequence[_Placed], depth: int, indent: str) -> Iterator[str]:
    """A line for each place where the way divides, and one for each device."""
    position = 0
    while position < len(placed):
        bridges, text = placed[position]
        if len(bridges) <= depth:
            yield indent + text
            position += 1
            continue
        above = bridges[: depth + 1]
        behind = [each for each in placed[position:] if each[0][: depth + 1] == above]
        shared = os.path.commonprefix([each[0] for each in behind])
        if len(behind) == 1:
            yield indent + " > ".join([*shared[depth:], text])
        else:
            yield indent + " > ".join(shared[depth:])
            yield from _tree(behind, len(shared), indent + "  ")
        position += len(behind)


def _gpu_text(gpu: Gpu) -> str:
    return f"GPU {gpu.index}  {gpu.pci or 'PCI address unknown'}  {gpu.name}"


def _nic_text(nic: Nic) -> str:
    speed = f"{nic.speed_mbps} Mb/s" if nic.speed_mbps > 0 else "speed unknown"
    text = f"{nic.name}  {nic.pci or 'virtual'}  {'up' if nic.up else nic.state}, {speed}"
    text += f", MTU {nic.mtu}" if nic.mtu > 0 else ""
    return text + (f", interrupts on CPUs {cpu_list_text(nic.irq_cpus)}" if nic.irq_cpus else "")


def _distances(topology: Topology) -> list[str]:
    nics = [nic for nic in topology.nics if nic.path] or list(topology.nics)
    table = [["", *(nic.name for nic in nics)]]
    for gpu in topology.gpus:
        far = [str(topology.distance(gpu, nic)[0]) for nic in nics]
        table.append([f"GPU {gpu.index}", *far])
    return aligned(table)


def _limits(topology: Topology) -> list[str]:
    limits = topology.limits
    quota = f"{limits.cpu_quota:g} CPUs" if limits.cpu_quota else "none"
    memory = format_size(limits.memory_bytes) if limits.memory_bytes else "none"
    return [
        f"affinity mask: CPUs {cpu_list_text(limits.affinity) or 'unknown'}",
        f"cgroup: CPUs {cpu_list_text(limits.cpuset) or 'all'}, limit of CPU time {quota}, "
        f"limit of memory {memory}",
    ]


def _warnings(topology: Topology) -> list[str]:
    """The warnings on NICs that state no NUMA node."""
    nowhere = [nic.name for nic in topology.nics if nic.pci and nic.numa_node < 0]
    if not nowhere or len(topology.numa_nodes) < 2:
        return []
    return [
        f"# warning: {', '.join(nowhere)} states no NUMA node, which TCPX reads as node 1: bind "
        "its threads by NCCL_GPUDIRECTTCPX_TX_BINDINGS and RX_BINDINGS, or by a profile"
    ]
