"""What the tap recorded as a page and as a timeline: of invented files, some of them hostile."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from invented_tap import Message, write_job

from tcpx_mpi.cli import main
from tcpx_mpi.exchange import tap_timeline
from tcpx_mpi.tap import text
from tcpx_mpi.tap.file import files_of
from tcpx_mpi.tap.joined import read_job
from tcpx_mpi.tap.ways import summarise

MS = 1_000_000
JOB = {
    (0, 1, 0): [Message(0, MS, 0, 2 * MS, 4096), Message(MS, 2 * MS, 0, 3 * MS, 100)],
    (1, 0, 0): [Message(5 * MS, 6 * MS, 0, 7 * MS, 50)],
}


def test_a_timeline_has_every_request_and_an_arrow_a_message(tmp_path: Path) -> None:
    folder = str(write_job(tmp_path / "taps", JOB, 2))
    made = tmp_path / "job.json.gz"
    assert main(["tap", folder, "--perfetto", str(made)]) == 0
    events = json.loads(gzip.decompress(made.read_bytes()))["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    # (process, begin and length in us, bytes)
    assert sorted((e["pid"], e["ts"], e["dur"], e["args"]["bytes"]) for e in slices) == [
        (0, 0.0, 1000.0, 4096), (0, 0.0, 7000.0, 50), (0, 1000.0, 1000.0, 100),
        (1, 0.0, 2000.0, 4096), (1, 0.0, 3000.0, 100), (1, 5000.0, 1000.0, 50),
    ]  # fmt: skip
    ways = [
        (begin["pid"], begin["ts"], end["pid"], round(end["ts"]))
        for begin in events if begin["ph"] == "s"
        for end in events if end["ph"] == "f" and end["id"] == begin["id"]
    ]  # fmt: skip
    assert sorted(ways) == [(0, 0.0, 1, 2000), (0, 1000.0, 1, 3000), (1, 5000.0, 0, 7000)]
    names = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert "send to rank 1, connection 0" in names
    # Two receives at once are two threads of one name.
    assert "receive from rank 0, connection 0 #2" in names


def test_more_requests_than_can_be_shown_are_one_line_and_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(write_job(tmp_path / "taps", JOB, 2))
    monkeypatch.setattr(tap_timeline, "MOST_REQUESTS", 5)
    assert main(["tap", folder, "--perfetto", str(tmp_path / "made")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "these files have 6 requests, and 5 can be shown: give fewer files" in line
    assert not (tmp_path / "made").exists()


def test_a_narrow_terminal_has_the_columns_that_fit_and_the_names_of_the_others(
    tmp_path: Path,
) -> None:
    job = read_job(files_of([str(write_job(tmp_path / "taps", JOB, 2))]))
    summary = summarise(job)
    whole, narrow = (list(text.lines(job, summary, columns)) for columns in (None, 80))
    ways = [
        next(re.split("  +", line.strip()) for line in each if " messages " in line)
        for each in (whole, narrow)
    ]
    left_out = next(line for line in narrow if line.startswith("# Not shown here: "))
    assert ways[1] == ["from", "to", *(word for word in ways[0][2:] if word in ways[1][2:])]
    assert {"messages", "bytes", "caller", "plugin"} < set(ways[1])
    assert "comms, gaps, longest ms" in left_out
    assert all(len(line) <= 80 for line in narrow if not line.startswith("#"))
    assert not any("Not shown" in line for line in whole)


def test_a_page_has_ways_and_nics_and_a_plot_a_way_and_trusts_no_name(tmp_path: Path) -> None:
    folder = write_job(tmp_path / "taps", JOB, 2, lost=None)
    for path in folder.iterdir():
        path.write_bytes(path.read_bytes().replace(b'"plugin": "p"', b'"plugin": "<"'))
    made = tmp_path / "job.html"
    assert main(["tap", str(folder), "--html", str(made)]) == 0
    page = made.read_text()
    assert page.count("<svg") == 2
    assert "rank 0 &gt; rank 1" in page
    assert "plugin &lt; (v7)" in page
    assert "plugin < " not in page
    assert "ended without a last word, so that records may lack: rank 0, rank 1" in page
    assert page.count("<td>4146</td>") == 0
    assert page.count("<td>4196</td>") == 3  # a way, and a NIC at either end
    assert "src=" not in page


def test_a_file_that_is_there_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(write_job(tmp_path / "taps", JOB, 2))
    for option in ("--html", "--perfetto"):
        assert main(["tap", folder, option, str(tmp_path / "taps" / "0.tap")]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert option in line
