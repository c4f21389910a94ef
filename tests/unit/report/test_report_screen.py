"""What a terminal shows: a short header, columns that fit it, and a verdict in plain words."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import invented
import invented_runs
import pytest
from screen import screen

from tcpx_mpi.records import Plan, Run
from tcpx_mpi.report import Screen, report_lines
from tcpx_mpi.report.brief import MOST_LINES, brief_lines

RING = Path(__file__).resolve().parents[3] / "docs/evidence/ring.h5"
WIDTHS = (80, 120, 200)
RUNS = {
    "sound": invented_runs.sound,
    "troubled": invented_runs.troubled,
    "beside": invented_runs.beside_baselines,
    "several": lambda: invented_runs.several(3, 3),
    "empty": invented_runs.empty,
}


def report_on(columns: int, *arguments: str, **environ: str) -> str:
    """All that `report` of the recorded ring sends to a terminal that is so wide."""
    near, far = pty.openpty()
    fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    command = [sys.executable, "-m", "tcpx_mpi", "report", str(RING), *arguments]
    child = subprocess.Popen(
        command, stdout=far, stderr=far, env={**inherited, "TERM": "xterm", **environ}
    )
    os.close(far)
    sent = b""
    with contextlib.suppress(OSError):  # EIO: nobody has it open any more
        while data := os.read(near, 65536):
            sent += data
    os.close(near)
    assert child.wait(timeout=60) == 0
    return sent.decode()


def piped(*arguments: str) -> str:
    command = [sys.executable, "-m", "tcpx_mpi", "report", str(RING), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60
    ).stdout  # fmt: skip


def shown(run: Run, columns: int, **more: bool) -> list[str]:
    return report_lines(run, screen=Screen(columns, **more))


def rows_of(lines: list[str]) -> list[str]:
    return [line for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize("columns", WIDTHS)
def test_at_most_twelve_lines_stand_above_the_table_and_no_line_is_wider(columns: int) -> None:
    lines = screen(report_on(columns, NO_COLOR="1"))
    first = next(i for i, line in enumerate(lines) if not line.startswith("#"))
    assert first <= 12
    above = "\n".join(lines[:first])
    for word in ("ring", "softtcpx_v7", "--plugin softtcpx", "host (auto:", "2 on vm", str(RING)):
        assert word in above
    wide = [line for line in lines if str(RING) not in line and len(line) > columns]
    assert not wide, wide
    assert len(rows_of(lines)) == 7


def test_what_fits_grows_with_the_terminal() -> None:
    titles = []
    for columns in WIDTHS:
        lines = screen(report_on(columns, NO_COLOR="1"))
        titles.append(next(line for line in lines if "#wrong" in line))
        # All that the pipe has is named or shown.
        words = " ".join(lines)
        assert all(name in words for name in ("slowest", "p50", "p95", "p99", "net_bw"))
        # 200 columns have room for all that is not N/A in every row.
        assert ("--wide" in words) == (columns < 200)
        assert "in-place" not in words
    narrow, middle, wide = titles
    assert "slowest" in narrow
    assert all(name in middle for name in ("p50", "beside raw"))
    assert all(name in wide for name in ("slowest", "p50", "beside raw", "raw best", "p95"))


def test_the_first_fields_of_a_row_are_those_of_the_pipe_without_what_is_not_in_place() -> None:
    ours, theirs = rows_of(screen(report_on(120))), rows_of(piped().splitlines())
    assert [line.split()[:9] for line in ours] == [line.split()[:9] for line in theirs]
    assert all(line.split()[9:13] == ["N/A"] * 4 for line in theirs)
    assert not any("N/A" in line for line in ours)


def test_wide_is_the_pipe_byte_for_byte_and_verbose_has_its_header() -> None:
    pipe = piped()
    assert piped("-v") == pipe
    assert report_on(80, "--wide").replace("\r\n", "\n") == pipe
    verbose, whole = screen(report_on(100, "-v")), [line.rstrip() for line in pipe.splitlines()]
    until = whole.index("##     accept         4        591.44        600.82      @1")
    assert set(whole[:until]) <= set(verbose)
    assert max(map(len, rows_of(verbose))) <= 100


def test_colour_is_for_terminals_that_want_it() -> None:
    green = report_on(120)
    assert "\x1b[32m# Bytes" in green
    assert "\x1b" not in report_on(120, NO_COLOR="1")
    assert "\x1b" not in report_on(120, TERM="dumb")
    assert "\x1b" not in piped()


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("kind", RUNS)
def test_every_kind_of_run_has_its_screen(kind: str, columns: int) -> None:
    run = RUNS[kind]()
    lines = shown(run, columns)
    assert len(rows_of(lines)) == len(rows_of(report_lines(run)))
    for line in lines:
        # Tables of findings and names of files stay as they are.
        if not line.startswith(("# file", "# Written")) and "; a row " not in line:
            assert len(line) <= columns, line


def test_a_header_with_everything_in_it_is_short_and_says_where_the_rest_is() -> None:
    long = "because " * 40
    header = invented.run_header(
        world=64,
        notes=[long, "and more"],
        baselines=[invented.baseline("raw"), invented.baseline("mpi")],
        facts={"memory_chosen": f"host ({long})", "plugin_found": long, "plugin_warned": "beware"},
    )
    for columns in (40, *WIDTHS):
        lines = brief_lines(header, "o.h5", columns)
        assert len(lines) <= MOST_LINES
        assert max(map(len, lines)) <= columns
        assert lines[-1].endswith("o.h5")
    text = "\n".join(brief_lines(header, "o.h5", 200))
    assert "(and 2 more: -v)" in text or "... (-v)" in text
    assert "30 nodes more" in text


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "20 iterations each"),
        ({"duration_s": "6.0", "ci": "0.0"}, "6 s each"),
        ({"duration_s": "0.0", "ci": "0.05"}, "until --ci 0.05 each"),
    ],
)
def test_a_header_says_how_long_a_row_is(settings: dict[str, str], said: str) -> None:
    listed = [(name, value, "command line") for name, value in settings.items()]
    header = invented.run_header(plan=Plan(sizes=(1024,), iters=20), settings=listed)
    assert f"1 KiB, {said}" in brief_lines(header, "", 120)[0]


def test_eighty_columns_keep_the_ways_that_one_way_asks_for() -> None:
    plan = dataclasses.replace(Plan(sizes=(1024,)), one_way=True)
    run = Run("o.h5", invented.run_header(pattern="pingpong", plan=plan), invented.setup_times(),
              [invented.row(0)], complete=True)  # fmt: skip
    titles = next(line for line in shown(run, 80) if "#wrong" in line)
    assert all(name in titles.split() for name in ("there", "back", "+-", "slowest"))


def test_columns_that_an_option_asked_for_come_before_ours() -> None:
    plan = dataclasses.replace(Plan(sizes=(1024, 2048, 4096)), report_gbits=True)
    run = Run("o.h5", invented.run_header(plan=plan), invented.setup_times(),
              [invented.row(0)], complete=True)  # fmt: skip
    titles = next(line for line in shown(run, 130) if "#wrong" in line)
    assert titles.count("busbw") == 2
    assert "p99" not in titles


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_program_of_nccl_tests_keeps_its_in_place_side(columns: int) -> None:
    header = invented.run_header(pattern="all_reduce", plan=Plan(sizes=(1 << 30,)))
    run = Run("o.h5", header, invented.setup_times(), [invented.row(0)], complete=True)
    titles = next(line for line in shown(run, columns) if "#wrong" in line)
    assert titles.count("busbw") == 2
    assert titles.count("#wrong") == 2
    assert len(titles) <= columns


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_program_that_never_runs_in_place_has_no_column_for_it(columns: int) -> None:
    header = invented.run_header(pattern="alltoall", plan=Plan(sizes=(1 << 30,)))
    run = Run("o.h5", header, invented.setup_times(), [invented.row(0)], complete=True)
    lines = shown(run, columns)
    assert next(line for line in lines if "#wrong" in line).count("#wrong") == 1
    assert "N/A" not in " ".join(rows_of(lines))


def test_eighty_columns_keep_the_slowest_rank_and_the_ratio() -> None:
    lines = screen(report_on(80, NO_COLOR="1"))
    titles = next(line for line in lines if "#wrong" in line)
    assert titles.split()[-3:] == ["slowest", "beside", "raw"]
    assert all(row.endswith("]") for row in rows_of(lines))
    assert "count, root, p50" in " ".join(lines)


@pytest.mark.parametrize(
    ("types", "exponent", "kept"),
    # The largest size leaves a column too few: nothing gives way for what has no room.
    [("float", 28, "slowest"), ("float", 30, "type"), ("all", 28, "type")],
)
def test_a_program_on_eighty_columns_keeps_the_slowest_rank_if_its_rows_are_of_one_type(
    types: str, exponent: int, kept: str
) -> None:
    settings = [("datatype", types, "command line -d")]
    plan = Plan(sizes=(1 << exponent,))
    header = invented.run_header(pattern="all_reduce", plan=plan, settings=settings)
    run = Run("o.h5", header, invented.setup_times(), [invented.row(0)], complete=True)
    titles = next(line for line in shown(run, 80) if "#wrong" in line)
    assert {"slowest", "type"} & set(titles.split()) == {kept}


def test_a_program_on_eighty_columns_keeps_the_operation_if_its_rows_are_of_several() -> None:
    settings = [("op", "all", "command line -o")]
    header = invented.run_header(pattern="all_reduce", plan=Plan(sizes=(1024,)), settings=settings)
    run = Run("o.h5", header, invented.setup_times(), [invented.row(0)], complete=True)
    titles = next(line for line in shown(run, 80) if "#wrong" in line)
    assert "redop" in titles
    assert titles.count("#wrong") == 2


def test_a_program_on_eighty_columns_keeps_all_that_tells_its_rows_apart() -> None:
    settings = [(name, "all", "command line") for name in ("op", "datatype", "root")]
    header = invented.run_header(pattern="reduce", plan=Plan(sizes=(1024,)), settings=settings)
    run = Run("o.h5", header, invented.setup_times(), [invented.row(0)], complete=True)
    lines = shown(run, 80)
    titles = next(line for line in lines if "#wrong" in line).split()
    assert {"type", "redop", "root"} < {*titles}
    assert (titles.count("busbw"), titles.count("algbw")) == (2, 0)
    assert "Not shown here       : count, algbw" in "\n".join(lines)


def test_warnings_stand_above_the_verdict() -> None:
    run = sound_with_a_note_before_a_warning()
    titles = [line[2:].split(":")[0].strip() for line in shown(run, 120) if line.startswith("# ")]
    assert titles.index("WARNING") < titles.index("Bytes") < titles.index("Slowest rank")
    piped_titles = [line[2:].split(":")[0].strip() for line in report_lines(run)]
    assert piped_titles.index("Slowest rank") < piped_titles.index("WARNING")


def sound_with_a_note_before_a_warning() -> Run:
    facts = {"connections_a_nic": "99", "busiest_nic": "eth0 of node"}
    return invented_runs.sound(rows=3, facts=facts)
