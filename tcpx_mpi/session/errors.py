"""What went wrong with a session, put into words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tcpx_mpi.errors import PluginFailed, TcpxError
from tcpx_mpi.transport.flow_errors import (
    age_text,
    arrived_text,
    call_error,
    gpu_text,
    oldest_posted,
    size_error,
    window_text,
)
from tcpx_mpi.units import format_size


def error_of(fault: Mapping[str, Any]) -> TcpxError:
    """What has ended all transfers of a session."""
    if fault["kind"] == "gpu":
        return PluginFailed(gpu_text(fault))
    where = (
        f"transfer {fault['transfer']}: {fault['direction']} message {fault['message']}, "
        f"channel {fault['channel']}, chunk {fault['chunk']} ({format_size(int(fault['bytes']))})"
    )
    if fault["kind"] == "size":
        reported = f"{format_size(int(fault['code']))}: the peer's message has another size"
        return size_error(fault, where, reported, "its end")
    return call_error(fault, where, "the peer")


def stall_text(number: int, patience_s: float, picture: list[dict[str, Any]]) -> str:
    """What a wait for transfer `number` waited for in vain, from the picture of all comms."""
    text = f"transfer {number}: no progress for {patience_s:g} s"
    oldest = oldest_posted([p for p in picture if p["oldest_transfer"] == number] or picture)
    if oldest is None:
        return f"{text}; nothing is posted, the plugin takes no request"
    if arrived := arrived_text(oldest, "this session's"):
        text += f"; {arrived}"
    return (
        f"{text}; {oldest['kind']}, channel {oldest['channel']}: {window_text(oldest)}, oldest: "
        f"transfer {oldest['oldest_transfer']}, message {oldest['oldest_message']}, "
        f"chunk {oldest['oldest_chunk']}, {format_size(int(oldest['oldest_bytes']))}, "
        f"{age_text(oldest)}; {format_size(int(oldest['bytes']))} moved"
    )
