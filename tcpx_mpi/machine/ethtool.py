"""The driver of a network interface and its settings, by the kernel's ethtool.

Most is asked by ioctl; whether a NIC parts headers from data has an answer by netlink alone.
"""

from __future__ import annotations

import ctypes
import fcntl
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_SIOCETHTOOL = 0x8946
#: struct ifreq: a name, and here the address of what is asked.
_IFREQ = struct.Struct("@16sP16x")
_GDRVINFO, _GRINGPARAM, _GSTRINGS, _GFLAGS, _GPFLAGS = 0x03, 0x10, 0x1B, 0x25, 0x27
#: ethtool_drvinfo: command, driver, version, firmware, place, reserved, flags of its own, counts.
_DRIVER = struct.Struct("=I32s32s32s76xI16x")
#: ethtool_ringparam: command, the most of four rings (rx, mini, jumbo, tx), what these have.
_RINGS = struct.Struct("=20xI8xI")
_VALUE = struct.Struct("=II")
_STRINGS = struct.Struct("=III")
_STRING_BYTES = 32
_OF_PRIVATE_FLAGS = 2
#: More than any driver has.
_MOST_FLAGS = 32
_OFFLOADS = {"GRO": 0x2B, "GSO": 0x23, "TSO": 0x1E}
_LRO = 1 << 15

# Generic netlink: who answers for ethtool, and of whose rings is asked.
_GENERIC, _CONTROL = 16, 16
_GET_FAMILY, _FAMILY_ID, _FAMILY_NAME = 3, 1, 2
_RINGS_GET, _RINGS_HEADER, _HEADER_NAME, _TCP_DATA_SPLIT = 15, 1, 2, 11
_NESTED, _TYPE = 0x8000, 0x3FFF
_REQUEST = 1
_ERROR = 2
_SPLIT = {1: "off", 2: "on"}
_PATIENCE_S = 1.0


@dataclass(frozen=True)
class Driver:
    """The driver of one interface; "" if the driver, or this kernel, does not say."""

    driver: str = ""
    firmware: str = ""
    #: "rx 1024, tx 1024", in descriptors.
    rings: str = ""
    #: Those of GRO, GSO, TSO and LRO that are on; "none".
    offloads: str = ""
    #: Whether a NIC parts headers from data: on, off.
    header_split: str = ""
    #: Flags of the driver's own that are on.
    private_flags: str = ""


def read_driver(interface: str) -> Driver:
    """Asks the kernel; nothing of it needs a right."""
    name = interface.encode()
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            answer = _ask(asked, name, _GDRVINFO, _DRIVER.size)
            about = _DRIVER.unpack(answer) if answer else ()
            return Driver(
                driver=_text(about[1]) if about else "",
                firmware=_firmware(_text(about[3])) if about else "",
                rings=_rings(asked, name),
                offloads=_offloads(asked, name),
                header_split=_header_split(name),
                private_flags=_flags(asked, name, about[4]) if about else "",
            )
    except OSError:  # no socket at all
        return Driver()


def _ask(asked: socket.socket, interface: bytes, command: int, size: int, *words: int) -> bytes:
    """The kernel's answer over a command and words that it reads; nothing if it refuses."""
    data = ctypes.create_string_buffer(size)
    struct.pack_into(f"={1 + len(words)}I", data, 0, command, *words)
    request = _IFREQ.pack(interface, ctypes.addressof(data))
    try:
        fcntl.ioctl(asked.fileno(), _SIOCETHTOOL, request)
    except OSError:
        return b""
    return data.raw


def _text(raw: bytes) -> str:
    return raw.partition(b"\0")[0].decode(errors="replace").strip()


def _firmware(text: str) -> str:
    return "" if text == "N/A" else text


def _rings(asked: socket.socket, interface: bytes) -> str:
    found = _ask(asked, interface, _GRINGPARAM, _RINGS.size)
    if not found:
        return ""
    receive, send = _RINGS.unpack(found)
    return f"rx {receive}, tx {send}"


def _offloads(asked: socket.socket, interface: bytes) -> str:
    found = {name: _value(asked, interface, command) for name, command in _OFFLOADS.items()}
    flags = _value(asked, interface, _GFLAGS)
    found["LRO"] = None if flags is None else flags & _LRO
    if all(value is None for value in found.values()):
        return ""
    return ", ".join(name for name, value in found.items() if value) or "none"


def _flags(asked: socket.socket, interface: bytes, count: int) -> str:
    """Private flags: a driver's switches that the kernel has no name for."""
    count = min(count, _MOST_FLAGS)
    values = _value(asked, interface, _GPFLAGS) if count else None
    if not values:
        return ""
    size = _STRINGS.size + count * _STRING_BYTES
    found = _ask(asked, interface, _GSTRINGS, size, _OF_PRIVATE_FLAGS, count)
    names = [
        _text(found[at : at + _STRING_BYTES])
        for at in range(_STRINGS.size, len(found), _STRING_BYTES)
    ]
    return ", ".join(name for bit, name in enumerate(names) if values >> bit & 1)


def _value(asked: socket.socket, interface: bytes, command: int) -> int | None:
    found = _ask(asked, interface, command, _VALUE.size)
    return int(_VALUE.unpack(found)[1]) if found else None


# --- Netlink --------------------------------------------------------------------------------------


def _header_split(interface: bytes) -> str:
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _GENERIC) as asked:
            asked.settimeout(_PATIENCE_S)
            wanted = _attribute(_FAMILY_NAME, b"ethtool\0")
            family = _call(asked, _CONTROL, _GET_FAMILY, wanted).get(_FAMILY_ID, b"")
            if len(family) != 2:
                return ""
            whose = _attribute(_HEADER_NAME, interface + b"\0")
            header = _attribute(_RINGS_HEADER | _NESTED, whose)
            (number,) = struct.unpack("=H", family)
            split = _call(asked, number, _RINGS_GET, header).get(_TCP_DATA_SPLIT, b"")
            return _SPLIT.get(split[0], "") if split else ""
    except OSError:
        return ""


def _attribute(kind: int, value: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def _call(asked: socket.socket, family: int, command: int, attributes: bytes) -> dict[int, bytes]:
    """The attributes of the one answer; none where it is an error."""
    body = struct.pack("=BBxx", command, 1) + attributes
    asked.send(struct.pack("=IHHII", 16 + len(body), family, _REQUEST, 1, 0) + body)
    answer = asked.recv(1 << 16)
    if len(answer) < 20 or struct.unpack_from("=H", answer, 4)[0] == _ERROR:
        return {}
    return dict(attributes_of(answer[20:]))


def attributes_of(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """The attributes of a netlink message: type, value."""
    at = 0
    while at + 4 <= len(raw):
        length, kind = struct.unpack_from("=HH", raw, at)
        if length < 4:
            return
        yield kind & _TYPE, raw[at + 4 : at + length]
        at += length + -length % 4
