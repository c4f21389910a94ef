"""Text and JSON out of a run's records: the live table and `tcpx-mpi report` are the same code."""

from collections.abc import Sequence

from tcpx_mpi.errors import ExitCode
from tcpx_mpi.findings import verdict
from tcpx_mpi.findings.run import findings_of
from tcpx_mpi.records import Run, RunHeader, SetupTimes
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
from tcpx_mpi.report.lines import lines_of, written
from tcpx_mpi.report.preamble import header_lines, rank_line
from tcpx_mpi.report.screen import Screen, show_lines
from tcpx_mpi.report.setup_table import setup_lines
from tcpx_mpi.report.table import row_line, summarise_row, title_lines
from tcpx_mpi.stats import RowSummary

__all__ = [
    "Screen",
    "begin_lines",
    "below_minimum",
    "end_lines",
    "header_lines",
    "json_text",
    "line_of",
    "parts_of",
    "rank_line",
    "report_lines",
    "representative",
    "row_document",
    "row_line",
    "setup_lines",
    "show_lines",
    "strict_outcome",
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
        *end_lines(run, summaries, screen, missing, files or [run.path], gate),
    ]


def begin_lines(
    header: RunHeader, setup: SetupTimes | None, path: str, screen: Screen | None
) -> list[str]:
    """All above the first row; `screen`: None if no terminal shows it, or all is asked for."""
    if screen is not None:
        return screen.opening(header, setup, path)
    setup_table = [] if setup is None else setup_lines(setup)
    return [*header_lines(header), *setup_table, *title_lines(header)]


def line_of(header: RunHeader, summary: RowSummary, screen: Screen | None) -> str:
    """A row, there or here."""
    return row_line(header, summary) if screen is None else screen.row(header, summary)


def end_lines(
    run: Run,
    summaries: Sequence[RowSummary],
    screen: Screen | None = None,
    missing: Sequence[str] = (),
    files: Sequence[str] = (),
    gate: Sequence[str] = (),
) -> list[str]:
    """All below the last row: what `missing` from the run, the names of results, a judgement."""
    header = run.header
    findings = findings_of(run, summaries, missing)
    if screen is not None and not screen.verbose:
        words = list(verdict.in_words(header, summaries))
        return screen.closing(header, words, findings, files, gate)
    return [
        *lines_of(verdict.as_nccl_tests(header, summaries), header.world),
        "#",
        *lines_of([*findings, *written(files)], header.world),
        *gate,
        "#",
        f"# Collective test concluded: {header.pattern}",
        "#",
    ]


def below_minimum(run: Run) -> str:
    """Why a run, of several launches by those in its table, does not pass its NCCL_TESTS_MIN_BW;
    "" if it does, or has none."""
    run = representative(run)
    return verdict.below_minimum(run.header, [summarise_row(run.header, row) for row in run.rows])


def strict_outcome(run: Run) -> tuple[ExitCode, str]:
    """The exit code of `--strict`, and the worst finding: somebody is slow, or a doubt."""
    missing, run = run.missing, representative(run)
    summaries = [summarise_row(run.header, row) for row in run.rows]
    return verdict.strict_outcome(findings_of(run, summaries, missing))
