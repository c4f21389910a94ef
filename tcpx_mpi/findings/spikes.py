"""Findings on spikes: rows whose mean is made by a few iterations, and the row without them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tcpx_mpi.findings.figures import figure
from tcpx_mpi.findings.finding import Finding, Severity
from tcpx_mpi.records import IN_PLACE, Row, RunHeader, SideKey
from tcpx_mpi.stats import LongIteration, RowSummary, Spikes, find_spikes
from tcpx_mpi.units import counted, format_size

#: So many rows, and iterations of a row, are named; of more, how many there are.
_MOST_ROWS = 4
_MOST_ITERATIONS = 3


def spikes(
    header: RunHeader, rows: Sequence[Row], summaries: Sequence[RowSummary]
) -> list[Finding[str]]:
    """Each row, the first few, whose time is not that of its usual iteration."""
    if header.averages_only:
        return []
    told = []
    for row, summary in zip(rows, summaries, strict=True):
        for side, of_side, label in (
            (row, summary, ""),
            (row.sides.get(SideKey(place=IN_PLACE)), summary.in_place, " in place"),
        ):
            if side is None or of_side is None:
                continue
            found = find_spikes(side, of_side, header.plan.average, header.time_divisor)
            if found is not None:
                told.append(_finding(of_side, found, f"{format_size(row.size_bytes)}{label}"))
    if len(told) > _MOST_ROWS:
        text = f"in {len(told) - _MOST_ROWS} more rows a few iterations make the mean"
        told[_MOST_ROWS:] = [Finding(Severity.DOUBTFUL, "Spike", text)]
    return told


def _finding(summary: RowSummary, found: Spikes, where: str) -> Finding[str]:
    count = len(found.found)
    named = [_in_words(spike) for spike in found.found[:_MOST_ITERATIONS]]
    if count > _MOST_ITERATIONS:
        named.append(f"{count - _MOST_ITERATIONS} more")
    without = f"without {'it' if count == 1 else 'them'} time {figure(found.time_ns / 1e3, 4)} us"
    if math.isfinite(summary.busbw) and found.time_ns > 0:
        busbw = summary.busbw * summary.time_ns / found.time_ns
        without += f", busbw {figure(busbw, 3)} GB/s"
    text = (
        f"the mean is {figure(found.mean_over_median, 3)} x the median by {count} of "
        f"{counted(summary.iterations, 'iteration')}: {', '.join(named)}; {without}"
    )
    return Finding(Severity.DOUBTFUL, "Spike", text, "repeat, or use a larger -n", where)


def _in_words(spike: LongIteration) -> str:
    rank = "all ranks" if spike.rank < 0 else f"rank {spike.rank}"
    return (
        f"number {spike.iteration} took {figure(spike.took_ns / 1e6, 3)} ms on {rank}, "
        f"{figure(spike.at_ns / 1e6, 3)} ms into the row"
    )
