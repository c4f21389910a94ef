"""How findings are shown: one list of them, by each that renders it; and the report of a file."""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
from collections import defaultdict
from pathlib import Path

import invented
import invented_runs

import tcpx_mpi
from tcpx_mpi.findings import Finding, Severity
from tcpx_mpi.findings.run import Matrix, RunFinding
from tcpx_mpi.records import Run, RunWriter, read_run
from tcpx_mpi.report import (
    Screen,
    begin_lines,
    end_lines,
    line_of,
    report_lines,
    summarise_row,
)
from tcpx_mpi.report.fields import FIGURES, POINT, STANDARD, pipe_fields, terminal_fields
from tcpx_mpi.report.html import tables
from tcpx_mpi.report.lines import lines_of
from tcpx_mpi.stragglers.links import Measured

FOUND: list[RunFinding] = [
    Finding(Severity.BAD, "Wrong bytes", "rank 1: 3 of them"),
    Finding(Severity.DOUBTFUL, "", "it was slow", "try again"),
    Finding(Severity.DOUBTFUL, "", "it was slow: twice", "try again", "rank 3"),
    Finding(Severity.NOTE, "", "", evidence=Matrix(1024, {(0, 1): Measured(512.0, 1.0, 1.0)})),
    Finding(Severity.NOTE, "Speed", "as ever"),
    Finding(Severity.GOOD, "Checked", "all"),
]


def test_in_a_pipe_a_finding_is_a_line_with_what_to_do_and_a_matrix_has_its_own() -> None:
    assert lines_of(FOUND, 2) == [
        "# Wrong bytes          : rank 1: 3 of them",
        "# WARNING              : it was slow: try again",
        "# WARNING              : rank 3: it was slow: twice; try again",
        "# 1 KiB, GB/s: a row sends, a column receives",
        "#              0       1",
        "#      0       -   2.000",
        "#      1       -       -",
        "# Speed                : as ever",
        "# Checked              : all",
    ]


def closing(verdict: Severity) -> list[str]:
    screen = Screen(45, colour=True)
    head = invented.run_header(world=2)
    return screen.closing(head, [Finding(verdict, "Bytes", "such")], FOUND, ["o.h5"], ["# Gate"])


def test_on_a_terminal_verdict_and_warnings_have_a_colour_and_lines_fit() -> None:
    lines = closing(Severity.BAD)
    assert lines[1] == "\x1b[31m# Bytes                : such\x1b[0m"
    yellow = [line for line in lines if line.startswith("\x1b[33m")]
    assert [line.removeprefix("\x1b[33m").removesuffix("\x1b[0m") for line in yellow] == [
        "# WARNING              : it was slow: try",
        "#                        again",
        "# WARNING              : rank 3: it was slow:",
        "#                        twice; try again",
    ]
    assert "# Checked              : all" in lines
    assert lines[-2:] == ["# Written              : o.h5", "# Gate"]


def test_a_good_verdict_has_said_what_is_good() -> None:
    lines = closing(Severity.GOOD)
    assert next(line for line in lines if line.startswith("\x1b[32m")).startswith("\x1b[32m# Bytes")
    assert not any("Checked" in line for line in lines)


def test_a_row_with_wrong_bytes_is_red() -> None:
    run = invented_runs.troubled()
    lines = report_lines(run, screen=Screen(120, colour=True))
    assert sum(line.startswith("\x1b[31m") and "\x1b[31m#" not in line for line in lines) == 1


def test_on_the_page_findings_are_a_table_in_which_the_bad_stands_out() -> None:
    table = tables.findings_table(FOUND)
    assert [(line.cells, line.mark) for line in table.lines] == [
        (("Wrong bytes", "rank 1: 3 of them"), "bad"),
        (("WARNING", "it was slow: try again"), "doubtful"),
        (("WARNING", "rank 3: it was slow: twice; try again"), "doubtful"),
        (("Speed", "as ever"), ""),
        (("Checked", "all"), ""),
    ]


# --- The whole report -----------------------------------------------------------------------------


def written(path: Path, rows: int) -> Run:
    writer = RunWriter(str(path / "o.h5"))
    writer.write_header(invented.run_header())
    writer.write_setup(invented.setup_times())
    for index in range(rows):
        writer.append_row(invented.row(index))
    writer.finish() if rows == 3 else writer.close()
    return read_run(writer.path)


def test_the_report_of_a_file_is_what_was_printed_live(tmp_path: Path) -> None:
    run = written(tmp_path, 3)
    summaries = [summarise_row(run.header, invented.row(index)) for index in range(3)]
    live = begin_lines(run.header, invented.setup_times(), run.path, None)
    live += [line_of(run.header, summary, None) for summary in summaries]
    live += end_lines(run, summaries, files=[run.path])
    assert report_lines(run) == live
    bounds = live.index("# Out of bounds values : 0 OK")
    assert re.fullmatch(r"# Avg bus bandwidth    : 2\.\d+ ", live[bounds + 1])
    assert live[-2:] == [f"# Collective test concluded: {run.header.pattern}", "#"]


def test_the_report_of_an_unfinished_file_says_what_is_missing(tmp_path: Path) -> None:
    lines = report_lines(written(tmp_path, 1))
    assert [line for line in lines if line.startswith("# Missing")] == [
        "# Missing              : the end of the run: its writer was killed, or is still running",
        "# Missing              : 2 of 3 rows: 2 KiB, 4 KiB",
    ]
    assert sum(not line.startswith("#") for line in lines) == 1


# --- Said once ------------------------------------------------------------------------------------

#: But for what reads the words of another program.
SOURCES = {
    path: path.read_text()
    for path in Path(tcpx_mpi.__file__).parent.rglob("*.py")
    if path.parent.name != "nccl_tests"
}
#: Columns of other tables too, and words of many others.
ORDINARY = {"", "size", "count", "type", "redop", "root", "time", "low", "high", "ratio", "algo",
            "slowest", "wrong", "checked", "timestamp", "streams", "variant"}  # fmt: skip


@functools.cache
def texts_of(source: str) -> set[str]:
    nodes = ast.walk(ast.parse(source))
    return {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}


def test_a_columns_name_stands_in_at_most_three_files() -> None:
    run = invented_runs.beside_baselines()
    plan = dataclasses.replace(
        run.header.plan, agg_iters=2, report_gbits=True, per_iter_timing=True, report_cputime=True,
        report_timestamps=True,
    )  # fmt: skip
    head = dataclasses.replace(run.header, plan=plan, pattern="loaded_pingpong")
    fields = [*STANDARD, *FIGURES, *pipe_fields(head), *terminal_fields(head)]
    names = {name for field in fields for name in (field.name, field.key)} - ORDINARY
    assert len(names) > 40
    files = defaultdict(set)
    for path, source in SOURCES.items():
        for name in names & texts_of(source):
            files[name].add(path.name)
    assert {name: found for name, found in files.items() if len(found) > 3} == {}


def test_a_findings_title_stands_in_one_file() -> None:
    titles = defaultdict(set)
    judges = {path: text for path, text in SOURCES.items() if path.parent.name == "findings"}
    for path, source in judges.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Finding":
                title = node.args[1] if len(node.args) > 1 else None
                if isinstance(title, ast.Constant) and title.value:
                    titles[title.value].add(path)
    assert len(titles) > 20
    for title, places in titles.items():
        start = re.compile(rf"(# )?{re.escape(title)}( *: .*)?")
        also = {
            path
            for path, source in SOURCES.items()
            if any(start.fullmatch(text) for text in texts_of(source))
        }
        assert also == places, title
        assert len(also) == 1, title


def test_what_rate_was_asked_for_is_kept_by_a_narrow_terminal() -> None:
    header = dataclasses.replace(invented_runs.beside_baselines().header, mode="open loop")
    kept = {field.name for field in terminal_fields(header) if field.turn <= POINT}
    assert {"rate", "o_p50", "o_p99"} <= kept
