"""What went wrong with a flow of chunks, put into words: the part that batches and sessions share.

A fault and a picture of a flow are dicts of the native engine (native/engine/flow_report.h).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tcpx_mpi.errors import LostRank, PluginFailed, TcpxError, WrongBytes
from tcpx_mpi.units import format_size

Flow = Mapping[str, Any]

#: Codes by which a plugin says that the other side is gone: system error and remote error.
PEER_GONE = (2, 6)


def call_error(fault: Flow, where: str, peer: str, at: str = "") -> TcpxError:
    """A call of the plugin returned an error; `peer` is who may be gone."""
    code = int(fault["code"])
    text = f"{where}: plugin call {fault['call']} returned {code} ({fault['code_name']})"
    if code in PEER_GONE:
        return LostRank(f"{text}: {peer} is gone, or its connection is{at}{fault['said']}")
    return PluginFailed(f"{text}{at}{fault['said']}")


def size_error(fault: Flow, where: str, reported: str, end: str) -> WrongBytes:
    """A receive has another size than was posted, or the same with fragments beyond its `end`."""
    if int(fault["code"]) != int(fault["bytes"]):
        return WrongBytes(f"{where}: the plugin reports {reported}")
    size = format_size(int(fault["bytes"]))
    return WrongBytes(f"{where}: the plugin lists fragments of {size} beyond {end}")


def gpu_text(fault: Flow) -> str:
    """A call of the CUDA driver returned an error."""
    return (
        f"CUDA driver call {fault['call']} returned {fault['code']} ({fault['code_name']}) while "
        "receives were unpacked"
    )


def oldest_posted(flows: Sequence[Flow]) -> Flow | None:
    """The flow whose oldest request was posted first; None: nothing is posted."""
    posted = [flow for flow in flows if flow["oldest_age_ns"] >= 0]
    return max(posted, key=lambda flow: int(flow["oldest_age_ns"]), default=None)


def arrived_text(flow: Flow, whose: str) -> str:
    """The receives that wait for a GPU and not for the other side; empty: there are none."""
    arrived = int(flow["arrived"]) - int(flow["completed"])
    return f"{arrived} receives have arrived and wait for {whose} GPU" if arrived else ""


def window_text(flow: Flow) -> str:
    """How much of its window a flow uses."""
    return f"window {int(flow['posted']) - int(flow['completed'])}/{flow['window']}"


def age_text(flow: Flow) -> str:
    """How long ago the oldest request of a flow was posted."""
    return f"posted {int(flow['oldest_age_ns']) / 1e9:.1f} s ago"
