"""Findings on spikes: rows whose mean is made by a few iterations, and the row without them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from tcpx_mpi.findings.finding import Finding, Severity
from tcpx_mpi.findings.row_names import row_names
from tcpx_mpi.findings.stragglers import ways_of
from tcpx_mpi.records import IN_PLACE, GpuRow, Row, RunHeader, SideKey, throttled
from tcpx_mpi.stats import LongIteration, RowSummary, Spikes, find_spikes
from tcpx_mpi.units import counted, figure

#: So many rows, and iterations of a row, are named; of more, how many there are.
_MOST_ROWS = 4
_MOST_ITERATIONS = 3


def spikes(
    header: RunHeader, rows: Sequence[Row], summaries: Sequence[RowSummary]
) -> list[Finding[str]]:
    """Each row, the first few, whose time is not that of its usual iteration. Of an open loop the
    times are gaps, and its latency has all that waited."""
    if header.averages_only or header.is_open_loop:
        return []
    told = []
    for row, summary, name in zip(rows, summaries, row_names(summaries), strict=True):
        for side, of_side, label in (
            (row, summary, ""),
            (row.sides.get(SideKey(place=IN_PLACE)), summary.in_place, " in place"),
        ):
            if side is None or of_side is None:
                continue
            found = find_spikes(header, side, of_side)
            if found is not None:
                where = f"{name}{label}"
                told.append(_finding(header, side, of_side, found, where))
    if len(told) > _MOST_ROWS:
        text = f"in {counted(len(told) - _MOST_ROWS, 'more row')} a few iterations make the mean"
        told[_MOST_ROWS:] = [Finding(Severity.DOUBTFUL, "Spike", text)]
    return told


def _finding(
    header: RunHeader, row: Row, summary: RowSummary, found: Spikes, where: str
) -> Finding[str]:
    count = len(found.found)
    longest = sorted(found.found, key=lambda spike: -spike.took_ns)[:_MOST_ITERATIONS]
    named = [
        _in_words(spike, _who(header, row, spike.ranks))
        for spike in sorted(longest, key=lambda spike: spike.iteration)
    ]
    if count > _MOST_ITERATIONS:
        named.append(f"{count - _MOST_ITERATIONS} more")
    without = f"without {'it' if count == 1 else 'them'} time {figure(found.time_ns / 1e3, 4)} us"
    if found.waited:
        without = "the others had been sent before they began, so their time alone is not known"
    elif math.isnan(found.time_ns):
        without = f"{counted(summary.iterations - count, 'other')} are too few to be the usual ones"
    elif summary.busbw > 0 and found.time_ns > 0:
        busbw = summary.busbw * summary.time_ns / found.time_ns
        without += f", busbw {figure(busbw, 3)} GB/s"
    text = (
        f"the mean is {figure(found.mean_over_median, 3)} x the median by {count} of "
        f"{counted(summary.iterations, 'iteration')}: {', '.join(named)}; {without}"
    )
    everybody = range(len(row.receives))
    held = {rank for spike in found.found for rank in spike.ranks or everybody}
    if coincided := ", ".join(_coincided(row, sorted(held))):
        text += f"; in this row {coincided}"
    return Finding(Severity.DOUBTFUL, "Spike", text, "repeat, or use a larger -n", where)


def _who(header: RunHeader, row: Row, ranks: Sequence[int]) -> str:
    """All ranks, one, all of one node, the two ends of a link, or those that it were."""
    if not ranks:
        return "all ranks"
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    nodes = {info.rank: (info.node, info.host) for info in header.ranks}
    there = {nodes.get(rank) for rank in ranks}
    receiving = np.flatnonzero(row.receives).tolist()
    if len(there) == 1 and [r for r in receiving if nodes.get(r) in there] == list(ranks):
        return f"node {nodes[ranks[0]][1]}"
    pairs, _ = ways_of(header, row)
    if {*ranks} in [{*pair} for pair in pairs]:
        return f"the link between rank {ranks[0]} and rank {ranks[1]}"
    return f"ranks {', '.join(map(str, ranks[:_MOST_ITERATIONS]))}" + (
        f" and {len(ranks) - _MOST_ITERATIONS} more" if len(ranks) > _MOST_ITERATIONS else ""
    )


def _coincided(row: Row, ranks: Sequence[int]) -> Iterator[str]:
    """The other events of these ranks in the row: no proof of a cause, and where to look first."""
    if (count := sum(max(int(row.tcp_retransmits[rank]), 0) for rank in ranks)) > 0:
        yield counted(count, "retransmit")
    left = {r: row.proof[r].driver_preemptions for r in ranks if len(row.proof) > r}
    if (most := max(left, key=left.__getitem__, default=-1)) >= 0 and left[most] > 0:
        yield f"rank {most} left its CPU {counted(left[most], 'time')}"
    if row.clock is not None and any(fit.moved_ns or fit.suspended_ns for fit in row.clock.fits):
        yield "a clock was stepped"
    if slowed := [r for r in ranks if len(row.gpu) > r and _throttled(row.gpu[r])]:
        yield f"the GPU of rank {slowed[0]} was throttled"


def _throttled(gpu: GpuRow) -> bool:
    return bool(throttled(gpu.throttle_reasons_before) or throttled(gpu.throttle_reasons_after))


def _in_words(spike: LongIteration, who: str) -> str:
    return (
        f"number {spike.iteration} took {figure(spike.took_ns / 1e6, 3)} ms on {who}, "
        f"{figure(spike.at_ns / 1e6, 3)} ms into the row"
    )
