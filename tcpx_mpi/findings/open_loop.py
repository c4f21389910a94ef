"""Findings on rows that were begun by the clock (--rate)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tcpx_mpi.findings.finding import Finding, Severity
from tcpx_mpi.findings.row_names import row_names
from tcpx_mpi.stats import RowSummary
from tcpx_mpi.units import figure


def pace(summaries: Sequence[RowSummary]) -> Iterator[Finding[str]]:
    """The rows that did not keep up with what was offered, whose latency has no figure."""
    behind = [
        f"{name} ({figure(s.open_loop.achieved, 4)} of {figure(s.open_loop.offered, 4)} a second)"
        for name, s in zip(row_names(summaries), summaries, strict=True)
        if s.open_loop is not None and not s.open_loop.keeps_up
    ]
    if behind:
        text = (
            "the ranks do not keep up with --rate, and what waits would be as long as the row, so "
            f"there is no latency at {', '.join(behind)}"
        )
        yield Finding(Severity.DOUBTFUL, "Rate", text, "use a lower rate, or smaller sizes")
