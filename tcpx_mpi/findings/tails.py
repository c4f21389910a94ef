"""Tails: how late the bytes of each sender come, and how even senders share a link.

Of patterns whose senders are told apart for that (`Pattern.tails`), and of requests, by the target
that is asked. An arrival is from the start of
the receiver's iteration until all bytes of a sender were there; those of all receivers are taken
together. Where all send to one rank, goodput is a sender's part of the size over its median
arrival. Nothing is said of rows that came in bursts, whose arrivals would be gaps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tcpx_mpi import patterns
from tcpx_mpi.findings.finding import Finding, Severity
from tcpx_mpi.records import Row, RunHeader
from tcpx_mpi.stats import RowSummary
from tcpx_mpi.stats.bursts import was_there_before
from tcpx_mpi.stats.distribution import Distribution, describe
from tcpx_mpi.units import figure, format_size

#: More senders than these are left to the file: the latest of them are shown.
_MOST_SENDERS = 16


def tails(
    header: RunHeader, rows: Sequence[Row], summaries: Sequence[RowSummary]
) -> Iterator[Finding[str]]:
    """A line for each row: the slowest rank, then each sender, or each target."""
    if header.targets:
        yield from _of_requests(header, rows)
        return
    pattern = patterns.find(header.pattern)
    if pattern is None or not pattern.tails:
        return
    one_link = pattern.tails == "one link"
    for row, summary in zip(rows, summaries, strict=True):
        if not math.isnan(summary.burst_gap_ns):
            continue
        size = format_size(row.size_bytes)
        text = f"{size}, slowest rank of each iteration: {_figures(summary.per_iteration)}"
        yield Finding(Severity.NOTE, "Tail", text)
        by_sender = arrivals_by_sender(row)
        if not by_sender:
            continue
        more = {
            sender: _of_sender(row, sender, by_sender) if one_link else "" for sender in by_sender
        }
        yield _by_rank(f"{size}, by sender", by_sender, more)
        if one_link and row.size_bytes:
            fairness = jain([goodput(row, sender, by_sender) for sender in by_sender])
            shown = "n/a" if math.isnan(fairness) else f"{fairness:.3f}"
            text = f"{size}: {shown} of 1 (Jain's index of the goodput of {len(by_sender)})"
            yield Finding(Severity.NOTE, "Fairness", text)


def _of_requests(header: RunHeader, rows: Sequence[Row]) -> Iterator[Finding[str]]:
    """The post apart from the whole, then each target."""
    for row in rows:
        size = format_size(row.size_bytes)
        if row.receives.any():
            whole, post = (
                describe(np.max(row.samples[phase][row.receives], axis=0).astype(np.float64))
                for phase in ("iteration", "send")
            )
            text = (
                f"{size}, slowest initiator of each iteration: {_figures(whole)}; of that, until "
                f"its posts had returned: {_figures(post)}"
            )
            yield Finding(Severity.NOTE, "Tail", text)
        if by_target := arrivals_by_target(header, row):
            yield _by_rank(f"{size}, by target", by_target)


def arrivals_by_target(header: RunHeader, row: Row) -> dict[int, Distribution]:
    """Target -> the spread of the times of its requests, of all initiators together."""
    found = {}
    for target in header.targets if row.arrivals.size else ():
        # Whatever is written there arrives there, whatever is read from there elsewhere.
        values = np.concatenate([row.arrivals[target].ravel(), row.arrivals[:, target].ravel()])
        values = values[~np.isnan(values)]
        if values.size:
            found[target] = describe(values)
    return found


def _by_rank(
    what: str, spreads: Mapping[int, Distribution], more: Mapping[int, str] | None = None
) -> Finding[str]:
    """The latest ranks, in the order of ranks."""
    latest = sorted(spreads, key=lambda rank: -spreads[rank].p50)[:_MOST_SENDERS]
    parts = [
        f"rank {rank} {_figures(spreads[rank])}{(more or {}).get(rank, '')}"
        for rank in sorted(latest)
    ]
    left = len(spreads) - len(latest)
    text = f"{what}: {'; '.join(parts)}" + (f"; and {left} that came earlier" if left else "")
    return Finding(Severity.NOTE, "Tails", text)


def arrivals_by_sender(row: Row) -> dict[int, Distribution]:
    """Sender -> the spread of its arrivals at all ranks that it sends to."""
    found = {}
    for sender in range(row.arrivals.shape[1] if row.arrivals.size else 0):
        values = row.arrivals[:, sender].ravel()
        values = values[~np.isnan(values)]
        if values.size:
            found[sender] = describe(values)
    return found


def goodput(row: Row, sender: int, by_sender: dict[int, Distribution]) -> float:
    """Bytes a nanosecond; NaN if they were there before they could arrive."""
    late, size_bytes = by_sender[sender].p50, row.size_bytes / len(by_sender)
    return math.nan if was_there_before(late, size_bytes) else size_bytes / late


def jain(values: Sequence[float]) -> float:
    """Jain's index (Jain, Chiu and Hawe 1984): 1 where all have as much, 1/n where one has all."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares > 0 else math.nan


def _of_sender(row: Row, sender: int, by_sender: dict[int, Distribution]) -> str:
    resent = int(row.tcp_retransmits[sender])
    return (
        f" ({figure(goodput(row, sender, by_sender), 3)} GB/s, "
        f"{'unknown' if resent < 0 else resent} retransmits)"
    )


def _figures(of: Distribution) -> str:
    named = (("p50", of.p50), ("p99", of.p99), ("p99.9", of.p99_9))
    return " ".join(f"{name} {figure(ns / 1e3, 4)}" for name, ns in named) + " us"
