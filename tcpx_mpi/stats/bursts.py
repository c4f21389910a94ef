"""Percentiles of iterations that arrived in bursts, which would be those of gaps."""

from __future__ import annotations

import dataclasses
import math

from tcpx_mpi.records import RunHeader
from tcpx_mpi.stats.row_summary import RowSummary

#: Nothing arrives in less than this on its own, and not at such a rate: it was there before.
_AT_ONCE_NS = 1e3
_FASTEST_BYTES_A_NS = 100.0


def was_there_before(took_ns: float, size_bytes: float) -> bool:
    """Whether that is too short a time for so many bytes to arrive in."""
    return took_ns < _AT_ONCE_NS + size_bytes / _FASTEST_BYTES_A_NS


def without_gaps(header: RunHeader, summary: RowSummary) -> RowSummary:
    """The row, and the row in place, without percentiles where most iterations were complete with
    the one before.

    Then they are those of gaps between looks, and say nothing about what a message takes. The
    median gap stays in `burst_gap_ns`, for the reason.
    """
    if summary.in_place is not None:
        summary = dataclasses.replace(summary, in_place=without_gaps(header, summary.in_place))
    median_ns = summary.per_iteration.p50
    at_once = was_there_before(median_ns, summary.size_bytes)
    if not (header.back_to_back and at_once and 4 * median_ns < summary.time_ns):
        return summary
    nan = math.nan
    spread = dataclasses.replace(
        summary.per_iteration, p50=nan, p50_low=nan, p50_high=nan, p95=nan, p99=nan, p99_9=nan
    )
    return dataclasses.replace(summary, per_iteration=spread, burst_gap_ns=median_ns)
