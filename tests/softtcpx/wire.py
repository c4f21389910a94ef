"""softtcpx's formats (its handshake/wire.h), written down a second time for peers of our own.

The keyed hash is Python's own, so that a proof is right only where both sides keep to RFC 7693.
"""

from __future__ import annotations

import hashlib
import socket
import struct
from collections.abc import Mapping

VERSION = 3
GREETING_BYTES = 64
HELLO, CHALLENGE, PROOF, ANSWER = 1, 2, 3, 4
MOST_GREETERS = 17  # a control socket and 16 data sockets
TOKEN_BYTES = 16
NO_TOKEN = bytes(TOKEN_BYTES)


def greeting(
    kind: int, number: int, sockets: int, attempt: bytes, token: bytes = NO_TOKEN
) -> bytes:
    """A word of the handshake on the control socket (number 0) or a data socket (from 1)."""
    head = b"stcpxHEL" + struct.pack("<IBBBx", VERSION, kind, number, sockets)
    return head + attempt + token + bytes(16)


def attempt_of(greeting: bytes) -> bytes:
    return greeting[16:32]


def token_of(greeting: bytes) -> bytes:
    return greeting[32:48]


def prove(
    handle: bytes, kind: int, number: int, attempt: bytes, challenges: Mapping[int, bytes]
) -> bytes:
    """The greeting that proves, over these challenges by socket, that its sender has the handle."""
    sockets, threads, flags = struct.unpack("<BBI", handle[18:24])
    claim = struct.pack("<IBBBBI", VERSION, kind, number, sockets, threads, flags) + attempt
    claim += b"".join(challenges.get(each, NO_TOKEN) for each in range(MOST_GREETERS))
    token = hashlib.blake2s(claim, digest_size=TOKEN_BYTES, key=secret_of(handle)).digest()
    return greeting(kind, number, sockets, attempt, token)


def proof(handle: bytes, number: int, attempt: bytes, challenge: bytes) -> bytes:
    """The connecting side's, for one socket."""
    return prove(handle, PROOF, number, attempt, {number: challenge})


def answer(handle: bytes, attempt: bytes, challenges: Mapping[int, bytes]) -> bytes:
    """The listening side's, for all sockets."""
    return prove(handle, ANSWER, 0, attempt, challenges)


def handle(
    address: tuple[str, int], secret: bytes, sockets: int = 1, threads: int = 0, flags: int = 0
) -> bytes:
    """What listen gives; flags: 1 where sends wait for credits."""
    where = socket.inet_aton(address[0]) + struct.pack(">H", address[1])
    counts = struct.pack("<BBI", sockets, threads, flags)
    return b"stcpxHND" + struct.pack("<I", VERSION) + where + counts + secret + bytes(8 + 80)


def header(sequence: int, total: int, offset: int, length: int, flags: int = 0) -> bytes:
    """In front of a piece of a message on a data socket; flags: 1 where it is lent."""
    return b"chnk" + struct.pack("<IQQQI", length, sequence, total, offset, flags) + bytes(28)


def credit(posted: int) -> bytes:
    """On the control socket of a connection whose sends wait: receives posted so far."""
    return b"crdt" + struct.pack("<IQ", 0, posted)


def returned(number: int, pieces: int) -> bytes:
    """On the control socket: lent pieces read so far from this data socket, the first is 0."""
    return b"rtrn" + struct.pack("<IQ", number, pieces)


def address_of(handle: bytes) -> tuple[str, int]:
    """Where a handle points: IPv4 address and port, in network order at 12 and 16."""
    return socket.inet_ntoa(handle[12:16]), struct.unpack(">H", handle[16:18])[0]


def elsewhere(handle: bytes, port: int) -> bytes:
    """The handle, but that it points to another port."""
    return handle[:16] + struct.pack(">H", port) + handle[18:]


def secret_of(handle: bytes) -> bytes:
    return handle[24:40]
