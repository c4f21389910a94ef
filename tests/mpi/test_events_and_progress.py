"""What a run says while it goes on: events for programs, a progress line for people."""

from __future__ import annotations

import csv
import json
import re
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from jobs import LIMIT_S, Result, mpirun, run, started, tcpx_mpi
from screen import screen
from variants import variant

from tcpx_mpi.records import read_run

pytestmark = pytest.mark.multirank

COMMON = ("--ranks", "2", "--plugin", "softtcpx", "--spool", "spool")
#: Several batches a row: with as little memory a slot is used more than once.
SHORT = ("--sizes", "1K,64K", "-n", "40", "--check-memory", "512K", "--hdf5", "o.h5")


def events_in(text: str) -> list[dict[str, Any]]:
    return [json.loads(line, parse_constant=no_constant) for line in text.splitlines()]


def no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


# --- Events --------------------------------------------------------------------------------------


def test_events_have_the_standard_output_and_the_table_goes_aside(place: Path) -> None:
    result = run(tcpx_mpi("run", "ring", *SHORT, *COMMON, "--json-stream", "-", "-J", "o.json",
                          "--csv", "o.csv"), place)  # fmt: skip
    assert result.code == 0, result.text
    events = events_in(result.out)
    kinds = ["header", "setup", *["row_begun", "row_finished"] * 2, "end"]
    assert [event["event"] for event in events] == kinds
    header, setup, *rows, end = events
    document = json.loads((place / "o.json").read_text())
    # Loopback has no link; softtcpx, which has to state a speed for NCCL, states 10000 Mb/s.
    assert {each["nic_speed_mbps"] for each in document["config"]["devices"]} == {None}
    assert header["config"] == document["config"]
    assert header["tcpx_mpi"].items() <= document["tcpx_mpi"].items()
    assert setup["setup"] == document["tcpx_mpi"]["setup"]
    assert [row["index"] for row in rows] == [0, 0, 1, 1]
    finished = [{k: v for k, v in row.items() if k not in ("event", "time")} for row in rows[1::2]]
    assert finished == document["results"]
    assert (end["exit_code"], end["rows"], end["errors"]) == (0, 2, [])
    assert [event["time"] for event in events] == sorted(event["time"] for event in events)
    # The table is there for people all the same, and the rows as CSV.
    assert Result(0, result.err, "").rows
    with open(place / "o.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    for line, entry in zip(lines, document["results"], strict=True):
        assert int(line["size_bytes"]) == entry["size"]
        assert float(line["time_us"]) == entry["out_of_place"]["time"]


def test_a_run_that_is_ended_says_so_in_its_last_events(place: Path) -> None:
    command = tcpx_mpi("run", "ring", "--sizes", "1K", "-n", "100", "-N", "0", "--hdf5", "o.h5",
                       *COMMON, "--json-stream", "s.jsonl")  # fmt: skip
    with started(command, place) as job:
        job.wait_for_row(1024)
        # On disk by now, not at the end.
        early = events_in((place / "s.jsonl").read_text().rpartition("\n")[0])
        assert "row_finished" in [event["event"] for event in early]
        job.send(signal.SIGINT)
        result = job.finish(LIMIT_S)
    assert result.code == 130, result.text
    *_, fault, end = events_in((place / "s.jsonl").read_text())
    assert (fault["event"], fault["kind"]) == ("fault", "interrupted")
    assert (end["event"], end["exit_code"]) == ("end", 130)
    assert end["rows"] == len(read_run(str(place / "o.h5")).rows)


def test_a_run_that_fails_before_its_first_row_leaves_no_stream(place: Path) -> None:
    (place / "s.jsonl").write_text("mine")
    more = ("--sizes", "900G", "--json-stream", "s.jsonl")
    result = run(tcpx_mpi("run", "pair", *COMMON, *more), place)
    assert result.code == 2, result.text
    assert {path.name for path in place.iterdir()} == {"s.jsonl", "spool"}
    assert (place / "s.jsonl").read_text() == "mine"


# --- Progress ------------------------------------------------------------------------------------


COLUMNS = 100


def terminal(seen: str, what: str, columns: int = COLUMNS) -> list[str]:
    """What a command begins with that has its standard error, or both, on a terminal."""
    helper = str(Path(__file__).with_name("on_terminal.py"))
    return [sys.executable, helper, seen, what, str(columns)]


def on_terminal(place: Path, what: str, *more: str, **environ: str) -> tuple[Result, str]:
    """A run there, and all that was sent to the terminal."""
    command = [*terminal("seen", what), *tcpx_mpi("run", "ring", *SHORT, *COMMON, *more)]
    result = run(command, place, {"TERM": "xterm", **environ})
    assert result.code == 0, result.text
    return result, (place / "seen").read_bytes().decode()


def test_a_terminal_has_what_a_report_has_there_and_nothing_of_the_progress_stays(
    place: Path,
) -> None:
    result, sent = on_terminal(place, "both")
    assert result.out == ""
    assert "row 1/2  1 KiB" in sent
    assert "row 2/2  64 KiB" in sent
    run([*terminal("report", "both"), *tcpx_mpi("report", "o.h5")], place, {"TERM": "xterm"})
    assert screen(sent) == screen((place / "report").read_bytes().decode())
    assert max(map(len, screen(sent))) <= COLUMNS


@pytest.mark.variant
def test_a_wide_run_on_a_terminal_is_as_in_a_file(place: Path) -> None:
    _, sent = on_terminal(place, "both", "--wide")
    report = run(tcpx_mpi("report", "o.h5"), place)
    lines = [line for line in screen(sent) if not line.startswith("# Setting: wide")]
    whole = [line.rstrip() for line in report.out.split("\n")]
    assert lines == [line for line in whole if not line.startswith("# Setting: wide")]


@pytest.mark.variant
def test_a_file_of_the_table_has_no_progress_in_it_and_the_terminal_is_left_empty(
    place: Path,
) -> None:
    result, sent = on_terminal(place, "stderr", NO_COLOR="1")
    report = run(tcpx_mpi("report", "o.h5"), place)
    assert result.out == report.out
    assert "row 2/2  64 KiB" in sent
    assert [line for line in screen(sent) if line] == []
    assert "m" not in {part[-1:] for part in sent.replace("\x1b[2K", "").split("\x1b[")[1:]}


@pytest.mark.variant
@pytest.mark.parametrize("environ", [{"TERM": "dumb"}])
def test_a_terminal_that_cannot_erase_gets_no_progress(
    environ: dict[str, str], place: Path
) -> None:
    _, sent = on_terminal(place, "both", **environ)
    assert "\x1b" not in sent
    assert "row 1/2" not in sent


def test_an_error_is_not_said_in_the_middle_of_the_progress_line(place: Path) -> None:
    command = [*terminal("seen", "stderr"),
               *tcpx_mpi("run", "ring", *SHORT, *COMMON, "-N", "0", "-T", "3")]  # fmt: skip
    result = run(command, place, {"TERM": "xterm"})
    assert result.code == 6, result.text
    sent = (place / "seen").read_bytes().decode()
    assert "row 1  1 KiB" in sent
    said = [line for line in screen(sent) if "tcpx-mpi: error: " in line]
    assert len(said) == 1
    assert said[0].startswith("tcpx-mpi: error: ")
    assert not [x for x in screen(sent) if re.search(r"(warm-up|iteration) \d+/\d+", x)]


# --- Under a launcher of the user's --------------------------------------------------------------

UNDER_MPIRUN = ("run", "ring", *SHORT, *COMMON[2:])


@pytest.mark.parametrize("columns", [80, variant(120)])
def test_a_users_mpirun_on_a_terminal_shows_what_a_report_shows_there(
    columns: int, place: Path
) -> None:
    command = [*terminal("seen", "both", columns), *mpirun(2, *UNDER_MPIRUN)]
    result = run(command, place, {"TERM": "xterm"})
    assert result.code == 0, result.text
    sent = (place / "seen").read_bytes().decode()
    assert "row 2/2  64 KiB" in sent
    report = [*terminal("report", "both", columns), *tcpx_mpi("report", "o.h5")]
    run(report, place, {"TERM": "xterm"})
    shown = screen(sent)
    assert shown == screen((place / "report").read_bytes().decode())
    assert max(map(len, shown)) <= columns
    assert any(line.split()[-2:] == ["(us)", "rank"] or "slowest" in line for line in shown)


@pytest.mark.variant
def test_a_users_mpirun_into_a_pipe_has_all_columns_and_no_progress_there(place: Path) -> None:
    command = [*terminal("seen", "stderr"), *mpirun(2, *UNDER_MPIRUN)]
    result = run(command, place, {"TERM": "xterm"})
    assert result.code == 0, result.text
    assert result.out == run(tcpx_mpi("report", "o.h5"), place).out
    sent = (place / "seen").read_bytes().decode()
    assert "row 2/2  64 KiB" in sent  # the terminal that is left is that of the standard error
    assert [line for line in screen(sent) if line] == []


@pytest.mark.parametrize("how", [variant("never"), "a file of a shell's", variant("tags")])
def test_what_no_person_sees_is_as_in_a_pipe(how: str, place: Path) -> None:
    command = mpirun(2, *UNDER_MPIRUN, *(["--screen", "never"] if how == "never" else []))
    if how == "tags":
        command[1:1] = ["--output", "tag"]
    if how == "a file of a shell's":
        command[3:] = ["sh", "-c", shlex.join(command[3:]) + " >table.$OMPI_COMM_WORLD_RANK; :"]
    result = run([*terminal("seen", "both"), *command], place, {"TERM": "xterm"})
    assert result.code == 0, result.text
    sent = (place / "seen").read_bytes().decode()
    table = (place / "table.0").read_text() if how == "a file of a shell's" else sent
    assert "row 1/2" not in sent + table
    assert "\x1b" not in sent + table
    assert "cpu_s_per_GB" in table


@pytest.mark.variant
def test_a_run_that_is_told_to_prints_for_a_screen_into_a_pipe(place: Path) -> None:
    command = mpirun(2, *UNDER_MPIRUN, "--screen", "always")
    for columns in (80, 120):
        result = run(command, place, {"COLUMNS": str(columns)} if columns != 80 else {})
        assert result.code == 0, result.text
        assert "\x1b" not in result.out
        assert columns - 20 < max(map(len, result.out.splitlines())) <= columns
