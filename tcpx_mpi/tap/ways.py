"""Figures of a job: from each rank to each, and of each NIC. Pure.

The time from the first post to the last end of a way's sends is the caller's (NCCL's) while nothing
is posted; the receiver's while a message that is under way has no receive; else the plugin's, with
the network below it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.arrays import Int64s
from tcpx_mpi.tap.file import SEND, TapFile
from tcpx_mpi.tap.joined import NONE, REQUEST, Job

#: Bandwidth over time is of so many equal parts of a way's span.
_PARTS = 20


@dataclass(frozen=True)
class Way:
    """From one process to another, all connections between two NICs together."""

    sender: str
    receiver: str
    sender_nic: str
    receiver_nic: str
    comms: int
    messages: int
    not_done: int
    bytes: int
    #: By power of two: messages below it.
    sizes: dict[int, int]
    span_ns: int
    #: Nothing was under way: how often, and the longest.
    gaps: int
    longest_gap_ns: int
    #: Messages under way: the mean while there were any, and the most.
    depth: float
    most: int
    post_to_done_us: tuple[float, float, float]  # p50, p99, max
    #: Shares of the span, together 1.
    caller: float
    receiver_late: float
    plugin: float
    #: By how much the receive was posted after its send, and the send after its receive: p50.
    receive_after_send_us: float
    send_after_receive_us: float
    #: bytes/ns = GB/s, over the span, and in each part of it.
    gb_per_s: float
    over_time: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Nic:
    """A NIC of a process, in one direction."""

    process: str
    nic: str
    sends: bool
    comms: int
    messages: int
    bytes: int
    span_ns: int
    gb_per_s: float
    depth: float
    plugin_us: float  # within the plugin's calls a request, the mean
    polls: float  # a request


@dataclass(frozen=True)
class Summary:
    """All of it."""

    ways: Sequence[Way]
    nics: Sequence[Nic]


def summarise(job: Job) -> Summary:
    return Summary(list(_ways(job)), list(_nics(job)))


def _nic(file: TapFile, device: int) -> str:
    return file.devices.get(device, f"device {device}")


def _ways(job: Job) -> Iterator[Way]:
    groups: dict[tuple[str, str, str, str], list[int]] = {}
    for number, link in enumerate(job.links):
        key = tuple(
            text
            for file, comm in ((link.sender, link.send_comm), (link.receiver, link.receive_comm))
            for text in (
                (job.name(file), _nic(job.files[file], comm.device)) if comm else ("?", "?")
            )
        )
        groups.setdefault((key[0], key[2], key[1], key[3]), []).append(number)
    for ends, links in sorted(groups.items(), key=lambda group: _by_number(group[0])):
        sent, received = [], []
        for number in links:
            one, other = matched(job, number)
            sent.append(one)
            received.append(other)
        messages, receives = np.concatenate(sent), np.concatenate(received)
        if len(messages):
            yield _way(ends, len(links), messages, receives)


def _by_number(ends: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    return tuple((len(end), end) for end in ends)


def matched(job: Job, link: int) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """The messages of a connection as its sender has them, and as its receiver has; the same
    number of both, in order. Of a message that an end has no record of, a row of zeros.

    Message n of an end is the n-th of the other; where receives are grouped, of its tag.
    """
    found = job.links[link]
    sent = job.of(found.sender, found.send_comm)
    received = job.of(found.receiver, found.receive_comm)
    if not (received["parts"] > 1).any():
        places = np.union1d(sent["request"], received["request"])
        ends = (np.searchsorted(places, each["request"]) for each in (sent, received))
    else:
        sent = sent[np.argsort(sent["tag"], kind="stable")]
        received = received[np.argsort(received["tag"], kind="stable")]
        places = np.arange(max(len(sent), len(received)))
        ends = (np.arange(len(each)) for each in (sent, received))
    placed = []
    for requests, at in zip((sent, received), ends, strict=True):
        rows = np.zeros(len(places), REQUEST)
        rows[at] = requests
        placed.append(rows)
    return placed[0], placed[1]


def _way(
    ends: tuple[str, str, str, str],
    comms: int,
    sent: NDArray[np.void],
    received: NDArray[np.void],
) -> Way:
    # Of a way whose sender's file is not there, what the receiver has of it.
    both = (sent["kind"] != 0) & (received["kind"] != 0)
    here = np.where(sent["kind"] != 0, sent, received)
    done = here[here["done_ns"] != NONE]
    begin, end = here["posted_ns"], _ends(here)
    first, last = int(begin.min()), int(end.max())
    span = max(last - first, 1)
    busy, gaps = _union(begin, end)
    late = both & (received["posted_ns"] > sent["posted_ns"])
    late_end = np.minimum(received["posted_ns"], np.where(here["kind"] == SEND, end, 0))
    waits, _ = _union(begin[late], np.maximum(late_end[late], begin[late]))
    took_us = (done["done_ns"] - done["posted_ns"]) / 1e3
    after = (received["posted_ns"] - sent["posted_ns"])[both] / 1e3
    total = int(here["bytes"].sum())
    return Way(
        *ends,
        comms=comms,
        messages=len(here),
        not_done=len(here) - len(done),
        bytes=total,
        sizes=_sizes(here["bytes"]),
        span_ns=span,
        gaps=len(gaps),
        longest_gap_ns=int(gaps.max(initial=0)),
        depth=float((end - begin).sum() / max(busy, 1)),
        most=_most(begin, end),
        post_to_done_us=_percentiles(took_us),
        caller=1 - busy / span,
        receiver_late=waits / span,
        plugin=(busy - waits) / span,
        receive_after_send_us=_middle(after[after > 0]),
        send_after_receive_us=_middle(-after[after < 0]),
        gb_per_s=total / span,
        over_time=_over_time(done, first, span),
    )


def _ends(requests: NDArray[np.void]) -> Int64s:
    """When each was done; what never was, was under way until the last of the others."""
    last = max(int(requests["done_ns"].max()), int(requests["posted_ns"].max()))
    ends: Int64s = np.where(requests["done_ns"] == NONE, last, requests["done_ns"])
    np.maximum(ends, requests["posted_ns"], out=ends)
    return ends


def _union(begin: Int64s, end: Int64s) -> tuple[int, Int64s]:
    """The length that some spans cover together, and the lengths of the gaps between them."""
    if not len(begin):
        return 0, np.zeros(0, np.int64)
    order = np.argsort(begin, kind="stable")
    begin, until = begin[order], np.maximum.accumulate(end[order])
    gaps = begin[1:] - until[:-1]
    gaps = gaps[gaps > 0]
    return int(until[-1] - begin[0] - gaps.sum()), gaps


def _most(begin: Int64s, end: Int64s) -> int:
    """The most spans at an instant; one that ends there has ended."""
    times = np.concatenate([end, begin])
    steps = np.repeat(np.array([-1, 1]), len(begin))
    return int(np.cumsum(steps[np.argsort(times, kind="stable")]).max(initial=0))


def _sizes(sizes: NDArray[np.uint64]) -> dict[int, int]:
    powers = np.where(sizes > 0, np.floor(np.log2(np.maximum(sizes, 1).astype(float))) + 1, 0)
    found, counts = np.unique(powers.astype(int), return_counts=True)
    return {1 << power: count for power, count in zip(found.tolist(), counts.tolist(), strict=True)}


def _percentiles(values: NDArray[np.float64]) -> tuple[float, float, float]:
    if not len(values):
        return (np.nan, np.nan, np.nan)
    p50, p99 = np.percentile(values, [50, 99])
    return float(p50), float(p99), float(values.max())


def _middle(values: NDArray[np.float64]) -> float:
    return float(np.median(values)) if len(values) else 0.0


def _over_time(done: NDArray[np.void], first: int, span: int) -> list[float]:
    part = np.clip((done["done_ns"] - first) * _PARTS // span, 0, _PARTS - 1)
    moved = np.bincount(part, weights=done["bytes"], minlength=_PARTS)
    return [float(each) for each in moved / (span / _PARTS)]


def _nics(job: Job) -> Iterator[Nic]:
    for number, file in enumerate(job.files):
        groups: dict[tuple[int, bool], list[NDArray[np.void]]] = {}
        for comm in file.comms.values():
            groups.setdefault((comm.device, comm.sends), []).append(job.of(number, comm))
        for (device, sends), parts in sorted(groups.items(), key=lambda group: group[0]):
            requests = np.concatenate(parts)
            if not len(requests):
                continue
            begin, end = requests["posted_ns"], _ends(requests)
            span = max(int(end.max() - begin.min()), 1)
            busy, _ = _union(begin, end)
            total = int(requests["bytes"].sum())
            yield Nic(
                process=job.name(number),
                nic=_nic(file, device),
                sends=sends,
                comms=len(parts),
                messages=len(requests),
                bytes=total,
                span_ns=span,
                gb_per_s=total / span,
                depth=float((end - begin).sum() / max(busy, 1)),
                plugin_us=float(requests["plugin_ns"].mean() / 1e3),
                polls=float(requests["polls"].mean()),
            )
