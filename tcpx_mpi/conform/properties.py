"""The properties of a device as a plugin wrote them, by the layout of the version. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tcpx_mpi import _native

#: The fields in NCCL's spelling, by ours.
NCCL_NAMES = {
    "name": "name", "pci_path": "pciPath", "guid": "guid", "ptr_support": "ptrSupport",
    "reg_is_global": "regIsGlobal", "force_flush": "forceFlush", "speed_mbps": "speed",
    "port": "port", "latency_us": "latency", "max_comms": "maxComms", "max_recvs": "maxRecvs",
    "net_device_type": "netDeviceType", "net_device_version": "netDeviceVersion",
    "v_device": "vProps", "max_p2p_bytes": "maxP2pBytes", "max_coll_bytes": "maxCollBytes",
    "max_multi_request": "maxMultiRequestSize", "rail_id": "railId", "plane_id": "planeId",
}  # fmt: skip
_FORMATS = {
    "name": "Q", "pci_path": "Q", "guid": "Q", "latency_us": "f", "max_p2p_bytes": "Q",
    "max_coll_bytes": "Q", "rail_id": "h", "plane_id": "h",
}  # fmt: skip
#: netDeviceType of TCPX and its like, NCCL's kernels put fragments to their places; and the
#: netDeviceVersion of these kernels: NCCL takes no plugin with another.
UNPACK, UNPACK_VERSION = 1, 7
#: The newest type that there is (2 to 5 are of kernels that send).
_LAST_TYPE = 5
#: The most speed that one could believe, 10 Tb/s: none, or one below 0, is 10 Gb/s to NCCL.
_MAX_MBPS = 10_000_000
#: The most bytes a message that NCCL takes for possible; with more it makes no connection.
_MAX_P2P_BYTES = 1 << 40


@dataclass(frozen=True)
class Properties:
    """Fields that all or newer versions have; 0 in a version that has not."""

    name: int = 0
    pci_path: int = 0
    guid: int = 0
    ptr_support: int = 0
    reg_is_global: int = 0
    force_flush: int = 0
    speed_mbps: int = 0
    port: int = 0
    latency_us: float = 0.0
    max_comms: int = 0
    max_recvs: int = 0
    net_device_type: int = 0
    net_device_version: int = 0
    v_device: tuple[int, ...] = ()
    max_p2p_bytes: int = 0
    max_coll_bytes: int = 0
    max_multi_request: int = 0
    rail_id: int = 0
    plane_id: int = 0

    @property
    def unpacks(self) -> bool:
        """Whether a message is in fragments of a bounce buffer when its receive is done."""
        return self.net_device_type == UNPACK


def decode(abi: int, raw: bytes) -> Properties:
    """The fields, of bytes as getProperties left them."""
    found: dict[str, object] = {}
    for name, offset, size in _native.properties_layout(abi):
        form = f"{size // 4}i" if name == "v_device" else _FORMATS.get(name, "i")
        values = struct.unpack_from(f"={form}", raw, offset)
        found[name] = values if name == "v_device" else values[0]
    return Properties(**found)  # type: ignore[arg-type]  # by the layout's own names


def unwritten(abi: int, writings: Mapping[int, bytes]) -> list[str]:
    """Fields of which a byte is as it was before: as the fill of each writing, by which these go.

    Two writings need not be alike: a plugin may make new strings for each.
    """
    names = []
    for name, offset, size in _native.properties_layout(abi):
        read = size
        if name == "v_device":  # only as many devices as it says are read
            read = 4 + 4 * min(_part_count(raw, offset, size) for raw in writings.values())
        for at in range(offset, offset + read):
            if all(raw[at] == fill for fill, raw in writings.items()):
                names.append(NCCL_NAMES[name])
                break
    return names


def _part_count(raw: bytes, offset: int, size: int) -> int:
    count: int = struct.unpack_from("=i", raw, offset)[0]
    return min(max(count, 0), size // 4 - 1)


def implausible(abi: int, found: Properties, devices: int) -> Iterator[str]:
    """The values that no device can have, one text a field."""
    fields = {name for name, _, _ in _native.properties_layout(abi)}
    if found.name == 0:
        yield "name is NULL"
    if not found.ptr_support & 1 or found.ptr_support & ~7:
        yield f"ptrSupport is {found.ptr_support}"
    if found.speed_mbps > _MAX_MBPS:
        yield f"speed is {found.speed_mbps}"
    if not -1 <= found.port <= 65535:
        yield f"port is {found.port}"
    if not 0 <= found.latency_us < 1e6:
        yield f"latency is {found.latency_us:g}"
    if found.max_comms < 1:
        yield f"maxComms is {found.max_comms}"
    if found.max_recvs < 1:
        yield f"maxRecvs is {found.max_recvs}"
    for name in ("reg_is_global", "force_flush"):
        if getattr(found, name) not in (0, 1):
            yield f"{NCCL_NAMES[name]} is {getattr(found, name)}"
    if not 0 <= found.net_device_type <= _LAST_TYPE:
        yield f"netDeviceType is {found.net_device_type}"
    if found.unpacks and found.net_device_version != UNPACK_VERSION:
        yield f"netDeviceVersion is {found.net_device_version}, where NCCL unpacks {UNPACK_VERSION}"
    if "v_device" in fields:
        count, *parts = found.v_device
        if not 1 <= count <= len(parts):
            yield f"vProps.ndevs is {count}"
        elif any(not 0 <= part < devices for part in parts[:count]):
            yield f"vProps.devs is {parts[:count]} of {devices} devices"
    if "max_p2p_bytes" in fields and not 0 < found.max_p2p_bytes <= _MAX_P2P_BYTES:
        yield f"maxP2pBytes is {found.max_p2p_bytes}"
