"""Text and JSON out of a run's records: the live table and `tcpx-mpi report` are the same code."""

from collections.abc import Sequence

from tcpx_mpi.records import Fault, Run, RunHeader, SetupTimes
from tcpx_mpi.report.footer import (
    baseline_faults,
    below_minimum_text,
    finding_lines,
    footer_lines,
    minimum_bandwidth,
    passes_minimum_bandwidth,
)
from tcpx_mpi.report.json_document import (
    json_text,
    parts_of,
    row_document,
    to_json,
    without_nan,
    write_json,
    write_run_json,
)
from tcpx_mpi.report.launches import launches_lines, representative
from tcpx_mpi.report.preamble import header_lines, rank_line, rank_name
from tcpx_mpi.report.screen import Screen, show_lines
from tcpx_mpi.report.setup_table import setup_lines
from tcpx_mpi.report.stragglers import pairs_to_retest, straggler_lines
from tcpx_mpi.report.table import row_line, summarise_row, title_lines
from tcpx_mpi.report.verdict import verdict
from tcpx_mpi.stats import RowSummary, mean_bus_bandwidth

__all__ = [
    "Screen",
    "baseline_faults",
    "begin_lines",
    "below_minimum",
    "below_minimum_text",
    "end_lines",
    "footer_lines",
    "header_lines",
    "json_text",
    "line_of",
    "minimum_bandwidth",
    "pairs_to_retest",
    "parts_of",
    "passes_minimum_bandwidth",
    "rank_line",
    "rank_name",
    "report_lines",
    "row_document",
    "row_line",
    "setup_lines",
    "show_lines",
    "straggler_lines",
    "summarise_row",
    "title_lines",
    "to_json",
    "without_nan",
    "write_json",
    "write_run_json",
]


def report_lines(
    run: Run, files: Sequence[str] = (), gate: Sequence[str] = (), screen: Screen | None = None
) -> list[str]:
    """All that `tcpx-mpi report` prints of a run; what it lacks is at the end.

    `files` are its results where it is more than its own file, `gate` a judgement's lines.
    """
    launches, missing, run = launches_lines(run), run.missing, representative(run)
    summaries = [summarise_row(run.header, row) for row in run.rows]
    setup = run.setup if run.setup.table.size > 0 else None
    return [
        *begin_lines(run.header, setup, run.path, screen),
        *(line_of(run.header, summary, screen) for summary in summaries),
        *(launches if screen is None else screen.narrowed(launches)),
        *end_lines(
            run.header,
            summaries,
            screen,
            fault=run.fault,
            missing=missing,
            files=files or [run.path],
            slow=straggler_lines(run.header, run.rows),
            gate=gate,
        ),
    ]


def begin_lines(
    header: RunHeader, setup: SetupTimes | None, path: str, screen: Screen | None
) -> list[str]:
    """All above the first row; `screen`: None where no terminal shows it, or all is asked for."""
    if screen is not None:
        return screen.opening(header, setup, path)
    setup_table = [] if setup is None else setup_lines(setup)
    return [*header_lines(header), *setup_table, *title_lines(header)]


def line_of(header: RunHeader, summary: RowSummary, screen: Screen | None) -> str:
    """A row, there or here."""
    return row_line(header, summary) if screen is None else screen.row(header, summary)


def end_lines(
    header: RunHeader,
    summaries: Sequence[RowSummary],
    screen: Screen | None,
    *,
    fault: Fault | None = None,
    missing: Sequence[str] = (),
    files: Sequence[str] = (),
    slow: Sequence[str] = (),
    gate: Sequence[str] = (),
) -> list[str]:
    """All below the last row."""
    if screen is None or screen.verbose:
        return footer_lines(
            header, summaries, fault=fault, missing=missing, files=files, slow=slow, gate=gate
        )
    findings = finding_lines(header, summaries, fault=fault, missing=missing, slow=slow)
    return screen.closing(header, verdict(header, summaries), findings, files, gate)


def below_minimum(run: Run) -> str:
    """Why a run, of several launches by those in its table, does not pass its NCCL_TESTS_MIN_BW;
    "" where it does, or has none."""
    run = representative(run)
    bandwidth = mean_bus_bandwidth([summarise_row(run.header, row) for row in run.rows])
    passes = passes_minimum_bandwidth(run.header, bandwidth)
    return below_minimum_text(run.header, bandwidth) if passes is False else ""
