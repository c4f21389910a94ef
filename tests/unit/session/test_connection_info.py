"""What one side of a session tells the other: whole, unharmed, of this form, or refused."""

from __future__ import annotations

import dataclasses
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tcpx_mpi.errors import UsageError
from tcpx_mpi.session.connection_info import VERSION, ConnectionInfo, decode

INFO = ConnectionInfo("softtcpx", 512 << 10, 1 << 20, (b"a" * 128, b"b" * 128))


def resealed(body: bytes) -> bytes:
    """A body that was changed on purpose, with the checksum that belongs to it."""
    return body + struct.pack("<I", zlib.crc32(body))


def test_what_is_encoded_is_decoded() -> None:
    assert decode(INFO.encode()) == INFO
    odd = dataclasses.replace(INFO, plugin="Plügin", handles=(bytes(range(128)),))
    assert decode(odd.encode()) == odd


@pytest.mark.parametrize("data", [b"", b"tcpx", b"\0" * 400, b"GET / HTTP/1.1\r\n", b"x" * 1000])
def test_anything_else_is_refused_as_such(data: bytes) -> None:
    with pytest.raises(UsageError, match=r"^not connection info \(\d+ bytes"):
        decode(data)


def test_every_shorter_piece_and_every_longer_one_is_refused() -> None:
    data = INFO.encode()
    for size in range(len(data)):
        with pytest.raises(UsageError, match="connection info"):
            decode(data[:size])
    with pytest.raises(UsageError, match="send all of it, and nothing else"):
        decode(data + b"\0")


def test_every_flipped_bit_is_noticed() -> None:
    data = INFO.encode()
    for byte in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[byte] ^= 1 << bit
            with pytest.raises(UsageError):
                decode(bytes(damaged))


@given(st.binary(max_size=400))
def test_no_bytes_behind_the_magic_do_more_than_be_refused(tail: bytes) -> None:
    with pytest.raises(UsageError):
        decode(b"tcpx-mpi" + tail)


def test_another_version_is_named() -> None:
    body = bytearray(INFO.encode()[:-4])
    struct.pack_into("<H", body, 8, VERSION + 1)
    with pytest.raises(
        UsageError, match=f"version {VERSION + 1}, expected {VERSION}: use the same"
    ):
        decode(resealed(bytes(body)))


@pytest.mark.parametrize(
    ("theirs", "line"),
    [
        (
            dataclasses.replace(INFO, handles=(b"a" * 128,) * 4),
            "the peer's channels (4) is not this side's (2); use one value",
        ),
        (
            dataclasses.replace(INFO, chunk_bytes=4096),
            "the peer's chunk bytes (4096) is not this side's (524288); use one value",
        ),
        (
            dataclasses.replace(INFO, plugin="other"),
            "the peer's plugin (other) is not this side's (softtcpx); use one value",
        ),
        (
            dataclasses.replace(INFO, wire_chunk_bytes=2 << 20),
            "the peer's NCCL_DYNAMIC_CHUNK_SIZE (2097152) is not this side's (1048576); "
            "use one value",
        ),
    ],
)
def test_sides_that_differ_are_told_in_what(theirs: ConnectionInfo, line: str) -> None:
    assert INFO.refusal(theirs) == line
    assert INFO.refusal(INFO) is None
