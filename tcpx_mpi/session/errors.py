"""What went wrong with a session, put into words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tcpx_mpi.errors import LostRank, PluginFailed, TcpxError, WrongBytes
from tcpx_mpi.transport.errors import PEER_GONE
from tcpx_mpi.units import format_size


def error_of(fault: Mapping[str, Any]) -> TcpxError:
    """What has ended all transfers of a session."""
    code = int(fault["code"])
    if fault["kind"] == "gpu":
        return PluginFailed(
            f"CUDA driver call {fault['call']} returned {code} ({fault['code_name']}) while "
            "receives were unpacked"
        )
    where = (
        f"transfer {fault['transfer']}: {fault['direction']} message {fault['message']}, "
        f"channel {fault['channel']}, chunk {fault['chunk']} ({format_size(int(fault['bytes']))})"
    )
    if fault["kind"] == "size":
        said = (
            f"the plugin reports {format_size(code)}: the peer's message has another size"
            if code != int(fault["bytes"])
            else f"the plugin lists fragments of {format_size(code)} beyond its end"
        )
        return WrongBytes(f"{where}: {said}")
    text = f"{where}: plugin call {fault['call']} returned {code} ({fault['code_name']})"
    if code in PEER_GONE:
        return LostRank(f"{text}: the peer is gone, or its connection is{fault['said']}")
    return PluginFailed(f"{text}{fault['said']}")


def stall_text(number: int, patience_s: float, picture: list[dict[str, Any]]) -> str:
    """What a wait for transfer `number` waited for in vain, from the picture of all comms."""
    text = f"transfer {number}: no progress for {patience_s:g} s"
    mine = [p for p in picture if p["oldest_transfer"] == number] or picture
    posted = [p for p in mine if p["oldest_age_ns"] >= 0]
    if not posted:
        return f"{text}; nothing is posted, the plugin takes no request"
    p = max(posted, key=lambda p: int(p["oldest_age_ns"]))
    if arrived := int(p["arrived"]) - int(p["finished"]):
        text += f"; {arrived} receives have arrived and wait for this session's GPU"
    return (
        f"{text}; {p['kind']}, channel {p['channel']}: window {p['posted'] - p['finished']}"
        f"/{p['window']}, oldest: transfer {p['oldest_transfer']}, message {p['oldest_message']}, "
        f"chunk {p['oldest_chunk']}, {format_size(int(p['oldest_bytes']))}, "
        f"posted {int(p['oldest_age_ns']) / 1e9:.1f} s ago; {format_size(int(p['bytes']))} moved"
    )
