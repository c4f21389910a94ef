"""Findings on rows that changed while they were measured, each with a remedy."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tcpx_mpi.findings.finding import Finding, Severity
from tcpx_mpi.findings.row_names import row_names
from tcpx_mpi.stats import Change, RowSummary, find_change
from tcpx_mpi.units import figure

#: So many rows are named; of more, how many there are.
_MOST = 4


def steadiness(summaries: Sequence[RowSummary]) -> list[Finding[str]]:
    """Each row, the first few, that warmed up, drifted or jumped, and what to try; of rows that
    came in bursts nothing, whose times are gaps."""
    unsteady = [
        _finding(name, summary, change)
        for name, summary in zip(row_names(summaries), summaries, strict=True)
        if math.isnan(summary.burst_gap_ns)
        and (change := find_change(summary.iteration_max_ns())) is not None
    ]
    if len(unsteady) > _MOST:
        text = f"{len(unsteady) - _MOST} more rows were not steady"
        unsteady[_MOST:] = [Finding(Severity.NOTE, "Not steady", text)]
    return unsteady


def _finding(name: str, summary: RowSummary, change: Change) -> Finding[str]:
    share = f"{figure(100 * abs(change.relative), 2)} %"
    way = "slower" if change.after > change.before else "faster"
    if change.kind == "warm-up":
        slower = 100 * (change.before / change.after - 1)
        text = (
            f"the first {change.at} of {summary.iterations} iterations were {slower:.0f} % slower "
            "than the rest"
        )
        title, remedy = "Warm-up", f"use -w {_rounded_up(change.at)} or more"
    elif change.kind == "drift":
        text = f"the last third of the iterations was {share} {way} than the first"
        title = "Drift"
        remedy = "use a longer warm-up (-w), and compare launches that took turns (tcpx-mpi ab)"
    else:
        text = (
            f"from iteration {change.at} of {summary.iterations} on {share} {way}: something else "
            "began or ended on this machine"
        )
        title, remedy = "Step", "repeat, or use --runs"
    return Finding(Severity.NOTE, title, text, remedy, name)


def _rounded_up(iterations: int) -> int:
    """The next number that one would type: 1, 2 or 5 times a power of ten."""
    magnitude = 1
    while True:
        for step in (1, 2, 5):
            if step * magnitude >= iterations:
                return step * magnitude
        magnitude *= 10
