"""What the judges find in invented rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import invented

from tcpx_mpi.findings.run import RunFinding, findings_of
from tcpx_mpi.records import Fault, Row, Run, RunHeader
from tcpx_mpi.report import summarise_row
from tcpx_mpi.report.lines import title_of, words_of
from tcpx_mpi.stats import RowSummary


def run_of(rows: Sequence[Row], header: RunHeader | None = None, **more: Any) -> Run:
    """A run of these rows."""
    header = header if header is not None else invented.run_header()
    values = {"complete": True, "end_time": "2025-03-01T12:00:09+00:00", **more}
    return Run("o.h5", header, invented.setup_times(header.world), list(rows), **values)


def summaries_of(run: Run) -> list[RowSummary]:
    """Its rows as numbers."""
    return [summarise_row(run.header, row) for row in run.rows]


def judged(
    rows: Sequence[Row],
    header: RunHeader | None = None,
    fault: Fault | None = None,
    missing: Sequence[str] = (),
) -> list[RunFinding]:
    """All findings of a run of these rows."""
    run = run_of(rows, header, fault=fault)
    return findings_of(run, summaries_of(run), missing)


def about(title: str, findings: Sequence[RunFinding]) -> list[str]:
    """The words of those with this title."""
    return [words_of(each) for each in findings if title_of(each) == title]


def warnings(rows: Sequence[Row], header: RunHeader | None = None) -> list[str]:
    """The words of all warnings."""
    return about("WARNING", judged(rows, header))
