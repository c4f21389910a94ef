"""softtcpx's formats (native/softtcpx/wire.h), written down a second time for peers of our own."""

from __future__ import annotations

import socket
import struct

HELLO_BYTES = 64
CONTROL, DATA, ANSWER = 1, 2, 3


def hello(kind: int, index: int, sockets: int, connection: bytes, proof: bytes) -> bytes:
    """The first bytes on a socket: CONTROL and DATA from the connecting side, ANSWER to it."""
    head = b"stcpxHEL" + struct.pack("<IBBBx", 1, kind, index, sockets)
    return head + connection + proof + bytes(16)


def handle(
    address: tuple[str, int], secret: bytes, answer: bytes,
    sockets: int = 1, threads: int = 0, flags: int = 0,
) -> bytes:  # fmt: skip
    """What listen gives; flags: 1 where sends wait for credits."""
    where = socket.inet_aton(address[0]) + struct.pack(">H", address[1])
    counts = struct.pack("<BBI", sockets, threads, flags)
    return b"stcpxHND" + struct.pack("<I", 1) + where + counts + secret + answer + bytes(8 + 64)


def header(sequence: int, total: int, offset: int, length: int) -> bytes:
    """In front of a piece of a message on a data socket."""
    return b"chnk" + struct.pack("<IQQQ", length, sequence, total, offset) + bytes(32)


def credit(posted: int) -> bytes:
    """On the control socket of a connection whose sends wait: receives posted so far."""
    return b"crdt" + struct.pack("<IQ", 0, posted)


def address_of(handle: bytes) -> tuple[str, int]:
    """Where a handle points: IPv4 address and port, in network order at 12 and 16."""
    return socket.inet_ntoa(handle[12:16]), struct.unpack(">H", handle[16:18])[0]


def secret_of(handle: bytes) -> bytes:
    return handle[24:40]


def answer_of(handle: bytes) -> bytes:
    return handle[40:56]
