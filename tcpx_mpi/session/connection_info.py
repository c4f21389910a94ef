"""Connection info of a session: what one side sends the other so that it can connect.

The form, and every check of it, is the native library's: native/library/conn_info.h.
"""

from __future__ import annotations

from dataclasses import dataclass

from tcpx_mpi import _native
from tcpx_mpi.session.errors import error_of

VERSION = _native.CONNECTION_INFO_VERSION


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
        return _native.encode_connection_info(*self._fields())

    def refusal(self, peer: ConnectionInfo) -> str | None:
        """Why a side with this info cannot talk to one with that, in one line; None: it can."""
        try:
            _native.require_equal_info(self._fields(), peer._fields())
        except _native.SessionError as error:
            return str(error.args[1])
        return None

    def _fields(self) -> tuple[bytes, int, int, list[bytes]]:
        return self.plugin.encode(), self.chunk_bytes, self.wire_chunk_bytes, list(self.handles)


def decode(data: bytes) -> ConnectionInfo:
    """The info in these bytes. Raises UsageError where they are none, or are damaged."""
    try:
        plugin, chunk_bytes, wire_chunk_bytes, handles = _native.decode_connection_info(data)
    except _native.SessionError as error:
        raise error_of(*error.args) from None
    return ConnectionInfo(plugin.decode(), chunk_bytes, wire_chunk_bytes, tuple(handles))
