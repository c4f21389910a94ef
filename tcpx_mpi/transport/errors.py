"""The fault of a batch in words: the error that ends the run and the stall report.

A fault and the flows at that time are records of the native engine
(native/engine/flow_report.h). What went wrong in a session is said by native/library/words.cc.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np

from tcpx_mpi import _native
from tcpx_mpi._native import Fault, FlowReport
from tcpx_mpi.errors import ExitCode, LostRank, PluginFailed, Stalled, TcpxError, WrongBytes
from tcpx_mpi.schedule.elements import ElementType
from tcpx_mpi.units import format_size
from tcpx_mpi.world import interrupted_by

#: Codes by which a plugin says that the other side is gone: system error and remote error.
_PEER_GONE = (2, 6)
#: Flows in a report; with more, only the oldest.
_REPORT_LINES = 32


class StoppedByOthers(TcpxError):
    """This rank made no progress and another rank has called the roll."""

    exit_code = ExitCode.OK


def error_of(
    fault: Fault,
    picture: Sequence[FlowReport],
    where: str,
    places: Sequence[str],
    limits: Mapping[str, float],
) -> TcpxError:
    """The error for an engine's fault.

    `where` names rank, place and row; `places` has host and NIC by rank; `limits` are in seconds.
    """
    kind = fault.kind
    if kind == "interrupted":
        return interrupted_by(fault.code)
    if kind == "stall":
        patience = limits["stall_timeout_s"]
        said = fault.text
        return Stalled(f"{where}: no progress for {patience:g} s; {_oldest(picture, places)}{said}")
    if kind == "timeout":
        return Stalled(f"{where}: the run took longer than -T {limits['timeout_s']:g} s")
    if kind == "stopped":
        return StoppedByOthers(f"{where}: stopped; {_oldest(picture, places)}")
    if kind == "peer":  # of `--against`, in a process of its own
        return baseline_failure(where, fault.code, fault.text)
    if kind == "gpu":
        return PluginFailed(f"{where}: {fault.failed_call}; {_oldest(picture, places)}")
    flow = picture[fault.flow]
    at = f"{_name(flow, places)}, iteration {fault.iteration} of the batch, chunk {fault.chunk}"
    if kind == "hang":
        age_s = fault.age_ns / 1e9
        text = f"plugin call {fault.call} has not returned for {age_s:.1f} s: {at}"
        error = Stalled(f"{where}: {text}{fault.text}")
        error.second_hand = -1 if age_s > limits["stall_timeout_s"] else 0
        return error
    if kind == "size":
        reported, sent = fault.code, fault.bytes
        if reported != sent:
            said = f"the plugin reports {reported} bytes, {format_size(sent)} were sent"
        else:
            said = (
                f"the plugin lists fragments of {format_size(sent)} beyond the end of the message"
            )
        return WrongBytes(f"{where}: {at}: {said}")
    if kind == "socket":  # of a peer: whatever the error, the connection is no more
        code = fault.code
        reason = os.strerror(code) if code else "the other side has closed"
        return LostRank(
            f"{where}: {fault.call}: {reason}: rank {flow.peer} is gone, or its connection is; {at}"
        )
    text = f"{where}: {fault.failed_call}"
    if fault.code in _PEER_GONE:
        text += f": rank {flow.peer} is gone, or its connection is"
        return LostRank(f"{text}; {at}{fault.text}")
    return PluginFailed(f"{text}; {at}{fault.text}")


def baseline_failure(where: str, code: int, text: str) -> TcpxError:
    """The error for a peer that failed; `code` is NCCL's, whose results have a plugin's numbers."""
    kind = LostRank if code in _PEER_GONE else PluginFailed
    return kind(f"{where}: {text}")


def report_lines(
    picture: Sequence[FlowReport], where: str, places: Sequence[str]
) -> tuple[str, ...]:
    """Every unfinished flow of a rank, the oldest request first: the stall report."""
    open_flows = sorted(
        (flow for flow in picture if not flow.finished),
        key=lambda flow: -flow.oldest_age_ns,
    )
    if not open_flows:
        return (f"{where}: this rank had nothing left to do",)
    lines = [f"{where}: {len(open_flows)} of {len(picture)} flows unfinished"]
    lines += [f"    {_describe(flow, places)}" for flow in open_flows[:_REPORT_LINES]]
    if len(open_flows) > _REPORT_LINES:
        lines.append(f"    and {len(open_flows) - _REPORT_LINES} younger ones")
    return tuple(lines)


def wrong_bytes_text(rank: int, place: _native.WrongPlace, chunk_bytes: int, block: int) -> str:
    """The first wrong byte of a check: who, from whom, when, where, what.

    `block` is the offset in the slot where the stretch of that sender begins.
    """
    values = f"expected 0x{place['expected'].hex()}, found 0x{place['found'].hex()}"
    if place["sender"] < 0:
        return (
            f"rank {rank}, iteration {place['iteration']}: written behind the end of a message "
            f"at byte {place['offset']} of the slot, {values}"
        )
    offset = place["offset"] - block
    return (
        f"rank {rank}, peer {place['sender']}, iteration {place['iteration']}, "
        f"chunk {offset // chunk_bytes}, offset {offset}: {values}"
    )


def wrong_element_text(rank: int, place: _native.WrongPlace, type_name: str, how: str = "") -> str:
    """The first wrong element of a check: who, when, which, what; `how`: "in place" or ""."""
    where = f"rank {rank}, iteration {place['iteration']}{', ' if how else ''}{how}"
    if place["element"] is None:
        values = f"expected 0x{place['expected'].hex()}, found 0x{place['found'].hex()}"
        return f"{where}: written behind the end of a slot at byte {place['offset']}, {values}"
    expected, found = (_element_of(each, type_name) for each in (place["expected"], place["found"]))
    peer = f" of rank {place['sender']}" if place["sender"] >= 0 else ""
    values = f"expected {expected}, found {found}"
    return f"{where}, element {place['element']}{peer} ({type_name}): {values}"


def _element_of(raw: bytes, type_name: str) -> str:
    """An element by its value and its bits."""
    value = np.frombuffer(raw, ElementType.of_label(type_name).dtype)[0]
    return f"{value} (0x{int.from_bytes(raw, 'little'):0{2 * len(raw)}x})"


def _oldest(picture: Sequence[FlowReport], places: Sequence[str]) -> str:
    waiting = [flow for flow in picture if not flow.finished]
    posted = [flow for flow in waiting if flow.oldest_age_ns >= 0]
    if posted:
        oldest = max(posted, key=lambda flow: flow.oldest_age_ns)
        return f"{_waiting_for(oldest)}: {_describe(oldest, places)}"
    if waiting:
        return f"nothing posted: {_describe(waiting[0], places)}"
    return "nothing left to do here"


def _waiting_for(flow: FlowReport) -> str:
    """The one that has to do something before the oldest request of a flow is complete."""
    if flow.kind == "copy":
        return "waiting for this rank's own copies"
    if flow.flushing:
        return f"{flow.flushing} receives have arrived and wait for the plugin's flush"
    if arrived := flow.arrived - flow.completed:
        return f"{arrived} receives have arrived and wait for this rank's GPU"
    return f"waiting for rank {flow.peer}"


def _name(flow: FlowReport, places: Sequence[str]) -> str:
    if flow.kind == "copy":
        return f"local copy, channel {flow.channel}"
    way = "send to" if flow.kind == "send" else "receive from"
    peer = f"rank {flow.peer} on {places[flow.peer]}"
    return f"{way} {peer}, lane {flow.lane}, channel {flow.channel}"


def _describe(flow: FlowReport, places: Sequence[str]) -> str:
    used = flow.posted - flow.completed
    text = f"{_name(flow, places)}: window {used}/{flow.window}"
    place = (
        f"iteration {flow.oldest_iteration} of the batch, step {flow.oldest_step}, "
        f"chunk {flow.oldest_chunk}, {format_size(flow.oldest_bytes)}"
    )
    if flow.oldest_age_ns >= 0:
        age_s = flow.oldest_age_ns / 1e9
        text += f", oldest request {place}, posted {age_s:.1f} s ago"
    else:
        text += f", next {place}"
    return f"{text}; {format_size(flow.bytes)} moved in this batch"
