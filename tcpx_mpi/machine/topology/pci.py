"""PCI addresses and paths: one spelling, and how far apart two devices are."""

from __future__ import annotations

import enum
import re

_ADDRESS = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.([0-7]))?")
_HOST_BRIDGE = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")


class Distance(enum.IntEnum):
    """The distance of a GPU from a NIC, the nearest first."""

    SAME_SWITCH = 0
    SAME_ROOT = 1
    SAME_NUMA = 2
    ACROSS = 3
    UNKNOWN = 4

    def __str__(self) -> str:
        return self.name.lower().replace("_", " ")


def pci_address(text: str) -> str:
    """An address as sysfs spells it, 0000:04:00.0; "" for text that is none.

    NVML writes the domain with 8 digits and CUDA letters in upper case.
    """
    found = _ADDRESS.fullmatch(text.strip().lower())
    if found is None:
        return ""
    domain, bus, device, function = found.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}.{function or '0'}"


def pci_function(path: str) -> str:
    """The part of a sysfs path down to its last PCI function; "" without one.

    What lies below, such as a virtio device, is no place on the bus.
    """
    parts = path.split("/")
    while parts and not (_ADDRESS.fullmatch(parts[-1]) and "." in parts[-1]):
        parts.pop()
    return "/".join(parts)


def distance(path: str, numa_node: int, other: str, other_numa_node: int) -> tuple[Distance, int]:
    """Distance of two devices by their sysfs paths and NUMA nodes (-1: unknown), and the number of
    PCI bridges that they share, which tells a near switch from a far one."""
    bridges, others = bridges_of(path), bridges_of(other)
    common = 0
    for mine, theirs in zip(bridges, others, strict=False):
        if mine != theirs:
            break
        common += 1
    if common > 1:
        return Distance.SAME_SWITCH, common
    if common == 1:
        return Distance.SAME_ROOT, common
    if numa_node >= 0 and other_numa_node >= 0:
        same = numa_node == other_numa_node
        return (Distance.SAME_NUMA if same else Distance.ACROSS), 0
    return Distance.UNKNOWN, 0


def bridges_of(path: str) -> list[str]:
    """The bridges above a device, from its host bridge down: pci0000:00, then PCI bridges."""
    parts = pci_function(path).split("/")
    for index, part in enumerate(parts):
        if _HOST_BRIDGE.fullmatch(part):
            return parts[index:-1]
    return []
