"""Text and JSON out of a run's records: the live table and `tcpx-mpi report` are the same code."""

from collections.abc import Sequence

from tcpx_mpi.records import Run
from tcpx_mpi.report.footer import (
    baseline_faults,
    below_minimum_text,
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
from tcpx_mpi.report.setup_table import setup_lines
from tcpx_mpi.report.stragglers import pairs_to_retest, straggler_lines
from tcpx_mpi.report.table import row_line, summarise_row, title_lines
from tcpx_mpi.stats import mean_bus_bandwidth

__all__ = [
    "baseline_faults",
    "below_minimum",
    "below_minimum_text",
    "footer_lines",
    "header_lines",
    "json_text",
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
    "straggler_lines",
    "summarise_row",
    "title_lines",
    "to_json",
    "without_nan",
    "write_json",
    "write_run_json",
]


def report_lines(run: Run, files: Sequence[str] = (), gate: Sequence[str] = ()) -> list[str]:
    """All that `tcpx-mpi report` prints of a run; what it lacks is at the end.

    `files` are its results where it is more than its own file, `gate` a judgement's lines.
    """
    launches, missing, run = launches_lines(run), run.missing, representative(run)
    summaries = [summarise_row(run.header, row) for row in run.rows]
    lines = header_lines(run.header)
    if run.setup.table.size > 0:
        lines += setup_lines(run.setup)
    lines += title_lines(run.header)
    lines += [row_line(run.header, summary) for summary in summaries]
    return (
        lines
        + launches
        + footer_lines(
            run.header,
            summaries,
            fault=run.fault,
            missing=missing,
            files=files or [run.path],
            slow=straggler_lines(run.header, run.rows),
            gate=gate,
        )
    )


def below_minimum(run: Run) -> str:
    """Why a run, of several launches by those in its table, does not pass its NCCL_TESTS_MIN_BW;
    "" where it does, or has none."""
    run = representative(run)
    bandwidth = mean_bus_bandwidth([summarise_row(run.header, row) for row in run.rows])
    passes = passes_minimum_bandwidth(run.header, bandwidth)
    return below_minimum_text(run.header, bandwidth) if passes is False else ""
