"""What one side of a session tells the other so that it can connect: a few hundred bytes, checked.

Layout, little-endian: magic, version, channels, bytes a handle, reserved 0, chunk bytes, the
plugin's own chunk bytes, length of its name; the name; a handle a channel; CRC-32 of all before.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from tcpx_mpi.errors import UsageError

VERSION = 2

_MAGIC = b"tcpx-mpi"
_HEADER = struct.Struct("<8sHHHHQQH")
_CHECKSUM = struct.Struct("<I")


@dataclass(frozen=True)
class ConnectionInfo:
    """One side's listeners, `handles[channel]`, and what must be equal on both sides."""

    plugin: str
    chunk_bytes: int
    #: NCCL_DYNAMIC_CHUNK_SIZE of that process: the plugin's chunks on the wire.
    wire_chunk_bytes: int
    handles: tuple[bytes, ...]

    def encode(self) -> bytes:
        """As bytes for the other side; `decode` is the inverse."""
        name = self.plugin.encode()
        header = _HEADER.pack(
            _MAGIC, VERSION, len(self.handles), len(self.handles[0]), 0,
            self.chunk_bytes, self.wire_chunk_bytes, len(name),
        )  # fmt: skip
        body = header + name + b"".join(self.handles)
        return body + _CHECKSUM.pack(zlib.crc32(body))

    def refusal(self, peer: ConnectionInfo) -> str | None:
        """Why a side with this info cannot talk to one with that, in one line; None: it can."""
        pairs = (
            ("channels", len(self.handles), len(peer.handles)),
            ("chunk bytes", self.chunk_bytes, peer.chunk_bytes),
            ("plugin", self.plugin, peer.plugin),
            ("NCCL_DYNAMIC_CHUNK_SIZE", self.wire_chunk_bytes, peer.wire_chunk_bytes),
        )
        for name, ours, theirs in pairs:
            if ours != theirs:
                return f"the peer's {name} ({theirs}) is not this side's ({ours}); use one value"
        return None


def decode(data: bytes) -> ConnectionInfo:
    """The info in these bytes. Raises UsageError where they are none, damaged, or of a later form.

    Nothing in them is trusted before the checksum is right.
    """
    if len(data) < len(_MAGIC) or not data.startswith(_MAGIC):
        raise UsageError(
            f"not connection info ({len(data)} bytes that do not begin with {_MAGIC!r}): "
            "give what the peer's listen() returned"
        )
    if len(data) < _HEADER.size + _CHECKSUM.size:
        raise UsageError(f"connection info is cut off after {len(data)} bytes: send all of it")
    _, version, channels, handle_bytes, _, chunk, wire_chunk, name_bytes = _HEADER.unpack_from(data)
    if version != VERSION:
        raise UsageError(
            f"connection info has version {version}, expected {VERSION}: "
            "use the same tcpx-mpi on both sides"
        )
    expected = _HEADER.size + name_bytes + channels * handle_bytes + _CHECKSUM.size
    if len(data) != expected:
        raise UsageError(
            f"connection info has {len(data)} bytes, expected {expected}: send all of it, "
            "and nothing else"
        )
    body, (checksum,) = data[: -_CHECKSUM.size], _CHECKSUM.unpack(data[-_CHECKSUM.size :])
    if zlib.crc32(body) != checksum:
        raise UsageError("connection info is damaged (its checksum is wrong): send it as bytes")
    handles = body[_HEADER.size + name_bytes :]
    return ConnectionInfo(
        plugin=body[_HEADER.size : _HEADER.size + name_bytes].decode(),
        chunk_bytes=chunk,
        wire_chunk_bytes=wire_chunk,
        handles=tuple(
            handles[start : start + handle_bytes] for start in range(0, len(handles), handle_bytes)
        ),
    )
