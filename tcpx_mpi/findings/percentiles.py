"""Findings on percentiles that mislead: of bursts, and of ranks that take turns in being late."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from tcpx_mpi.findings.finding import Finding, Severity
from tcpx_mpi.findings.row_names import row_names
from tcpx_mpi.records import RunHeader
from tcpx_mpi.stats import RowSummary

#: From here on a median of the slowest rank differs from the time, a mean over ranks.
_FAR_ABOVE = 1.5


def percentiles(header: RunHeader, summaries: Sequence[RowSummary]) -> Iterator[Finding[str]]:
    """The findings that a reader of percentiles must know."""
    named = list(zip(row_names(summaries), summaries, strict=True))
    bursts = [
        f"{name}{label} (a gap of {side.burst_gap_ns / 1e3:.2g} us)"
        for name, s in named
        for side, label in ((s, ""), (s.in_place, " in place"))
        if side is not None and not math.isnan(side.burst_gap_ns)
    ]
    if bursts:
        text = (
            f"at {', '.join(bursts)} most iterations came with the one before: senders run ahead, "
            "and percentiles, n/a there, would be of gaps; `time` is right, use more -n"
        )
        if not header.is_open_loop:
            text += ", or -z 1 for each by itself"
        yield Finding(Severity.NOTE, "Bursts", text)
    swings = [  # beside any other time than the mean over ranks it would be no news
        f"{name} ({s.per_iteration.p50 / s.time_ns:.2g} x)"
        for name, s in named
        if header.plan.average == 1
        and s.time_ns > 0
        and s.per_iteration.p50 > _FAR_ABOVE * s.time_ns
    ]
    if swings:
        text = (
            f"at {', '.join(swings)} `p50` is above `time`: `p50` is of the slowest rank of each "
            "iteration, and another rank is that from one iteration to the next; `time` is the "
            "mean over all of them"
        )
        yield Finding(Severity.NOTE, "Swings", text)
