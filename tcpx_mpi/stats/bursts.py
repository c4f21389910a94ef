"""Percentiles of iterations that arrived in bursts, which would be those of gaps."""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np

from tcpx_mpi.arrays import Int64s
from tcpx_mpi.records import IN_PLACE, Row, RunHeader, SideKey, mapped_arrays
from tcpx_mpi.stats.row_summary import RowSummary

#: Nothing arrives in less than this on its own, and not at such a rate: it was there before.
_AT_ONCE_NS = 1e3
_FASTEST_BYTES_A_NS = 100.0


def was_there_before(took_ns: float, size_bytes: float) -> bool:
    """Whether that is too short a time for so many bytes to arrive in."""
    return took_ns < _AT_ONCE_NS + size_bytes / _FASTEST_BYTES_A_NS


def sent_ahead(header: RunHeader, row: Row) -> bool:
    """Whether most iterations were sent, by all that send, before those who receive them began.

    Then a receiver was late, and what it took from there on is not what a message takes. False
    too where that is unknown: of ranks whose clocks were not compared.
    """
    clocks = [max(info.clock, 0) for info in header.ranks]
    senders = np.flatnonzero(row.payload_bytes_sent > 0).tolist()
    receiving = np.flatnonzero(row.receives).tolist()
    one_clock = row.clock is not None or len({clocks[r] for r in (*senders, *receiving)}) == 1
    if not (header.back_to_back and one_clock and senders and receiving and "send" in row.samples):
        return False
    started, took = row.samples["start"], row.samples["send"]

    def common(rank: int, times: Int64s) -> Int64s:
        return times if row.clock is None else row.clock.tree.to_common(clocks[rank], times)

    ahead = 0
    for part in mapped_arrays.pieces(row.iterations):
        sent = functools.reduce(
            np.maximum, (common(rank, started[rank][part] + took[rank][part]) for rank in senders)
        )
        ahead += sum(int((sent <= common(r, started[r][part])).sum()) for r in receiving)
    return 2 * ahead > len(receiving) * row.iterations


def without_gaps(header: RunHeader, row: Row, summary: RowSummary) -> RowSummary:
    """The row, and the row in place, without percentiles where most iterations were complete with
    the one before.

    Then they are those of gaps between looks, and say nothing about what a message takes. The
    median gap stays in `burst_gap_ns`, for the reason.
    """
    if summary.in_place is not None and (side := row.sides.get(SideKey(place=IN_PLACE))):
        in_place = without_gaps(header, side, summary.in_place)
        summary = dataclasses.replace(summary, in_place=in_place)
    median_ns = summary.per_iteration.p50
    if not (header.back_to_back and 4 * median_ns < summary.time_ns):
        return summary
    if not was_there_before(median_ns, summary.size_bytes) and not sent_ahead(header, row):
        return summary
    nan = math.nan
    spread = dataclasses.replace(
        summary.per_iteration, p50=nan, p50_low=nan, p50_high=nan, p95=nan, p99=nan, p99_9=nan
    )
    return dataclasses.replace(summary, per_iteration=spread, burst_gap_ns=median_ns)
