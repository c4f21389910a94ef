"""The timeline of invented runs: what is refused, what lies on one time, which phases there are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import invented
import numpy as np
import pytest
from timelines import Timeline, exported

from tcpx_mpi.cli import main
from tcpx_mpi.records import Plan, Row, RunWriter
from tcpx_mpi.records.clock import RowClock
from tcpx_mpi.records.trace import COLUMNS

DAYS_NS = 5 * 10**14
BOUND_NS = 20_000
START_NS = 10**12 + 5_000_000


def chunk(rank: int, kind: int, peer: int, message: int, **more: int) -> list[int]:
    """A chunk that is posted 10 us after the one before; a receive is done 5 us behind the send,
    by the true time."""
    post = START_NS + 10_000 * message + more.pop("ahead_ns", 0)
    done = post + (5_000 if kind else 2_000)
    values = {"rank": rank, "kind": kind, "peer": peer, "message": message, "bytes": 4096,
              "iteration": message, "comm": 7, "post": post, "posted": post + 500, "done": done,
              "flushed": -1, "launched": -1, "unpacked": -1, "finished": done + 700,
              **more}  # fmt: skip
    return [values.get(name, 0) for name in COLUMNS]


def traced(clock: RowClock | None, messages: int = 4, ahead_ns: int = DAYS_NS, **more: int) -> Row:
    """Rank 0 sends to rank 1, whose clock is days ahead."""
    lines = [chunk(0, 0, 1, message) for message in range(messages)]
    lines += [chunk(1, 1, 0, message, ahead_ns=ahead_ns, **more) for message in range(messages)]
    row = invented.row(0, world=2, clock=clock, trace=np.array(lines, np.int64))
    for samples in (row.samples, row.warmup):
        samples["start"][1] += ahead_ns
    row.batch_start[1] += ahead_ns
    return row


def written(path: Path, rows: Sequence[Row], clocks: Sequence[int] = (0, 1)) -> str:
    ranks = [invented.rank_info(2 * rank, clock=clock) for rank, clock in enumerate(clocks)]
    ranks = [dataclasses.replace(info, rank=rank) for rank, info in enumerate(ranks)]
    writer = RunWriter(str(path / "o.h5"))
    writer.write_header(invented.run_header(2, Plan((1024,)), ranks=ranks))
    writer.write_setup(invented.setup_times(2))
    for row in rows:
        writer.append_row(row)
    writer.finish()
    return writer.path


def export(file: str, *options: str) -> tuple[int, Path]:
    out = Path(file).with_suffix(".json.gz")
    return main(["export", file, "--perfetto", str(out), *options]), out


def test_a_run_without_a_trace_has_no_timeline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out = export(written(tmp_path, [invented.row(0, world=2)], (0, 0)))
    assert code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "has no trace, and a timeline is made of one: `tcpx-mpi run ... --trace N`" in line
    assert not out.exists()


def test_without_a_bound_only_each_node_by_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, [traced(None)])
    code, out = export(file)
    assert code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "the nodes have no clock in common at 1 KiB" in line
    assert "--per-node" in line
    assert not out.exists()
    code, out = export(file, "--per-node")
    assert code == 0
    timeline = Timeline(out)
    assert timeline.facts["bound_us"] is None
    assert timeline.facts["title"] == "ring over softtcpx: each node by its own clock"
    assert timeline.number("SELECT count(*) FROM arrow") == 0
    # Both count from their own zero.
    assert timeline.ask("SELECT pid, min(ts) FROM slice GROUP BY pid") == [(0, 0.0), (1, 0.0)]


def test_clocks_days_apart_are_on_one_time_with_the_bound_in_the_title(tmp_path: Path) -> None:
    code, out = export(written(tmp_path, [traced(invented.row_clock())]))
    assert code == 0
    timeline = exported(out, BOUND_NS / 1e3)
    assert timeline.facts["bound_us"] == 20
    title = "ring over softtcpx: +-20 us between nodes"
    names = [e["args"]["name"] for e in timeline.events if e["name"] == "process_name"]
    assert names[0] == timeline.facts["title"] == title
    assert names[1:] == [
        "rank 0 on host0 (device 0, NIC eth1)", "rank 1 on host1 (device 0, NIC eth1)",
    ]  # fmt: skip
    took = timeline.ask(
        "SELECT round(f.ts - s.ts, 3) FROM arrow s JOIN arrow f USING (id) "
        "WHERE s.ph = 's' AND f.ph = 'f'"
    )
    assert took == [(4.999,)] * 4
    bounds = timeline.ask("SELECT pid, value FROM counter WHERE name = 'clock bound (us)'")
    assert bounds == [(0, 0.0), (1, 20.0)]


def test_an_arrow_that_goes_back_by_more_than_the_bound_is_seen(tmp_path: Path) -> None:
    """Of the test: a clock that is off by more than it says."""
    off = traced(invented.row_clock(), ahead_ns=DAYS_NS - 40_000)
    _, out = export(written(tmp_path, [off]))
    with pytest.raises(AssertionError, match="goes back in time"):
        exported(out, BOUND_NS / 1e3)


def test_tracks_are_a_channel_and_a_phase(tmp_path: Path) -> None:
    moved = {"flushed": -1, "launched": START_NS, "work": 0}
    rows = [
        traced(invented.row_clock(), messages=1, **each)
        for each in (
            {},
            {"flushed": START_NS + DAYS_NS + 5_300},
            {**moved, "unpacked": START_NS + DAYS_NS + 5_400},
            {**moved, "work": 1, "unpacked": START_NS + DAYS_NS + 5_400},
            {"work": 1},
        )
    ]
    by_row = []
    for number, row in enumerate(rows):
        place = tmp_path / str(number)
        place.mkdir()
        timeline = exported(export(written(place, [row]))[1], BOUND_NS / 1e3)
        found = timeline.ask("SELECT cat FROM slice WHERE cat LIKE 'receive%' ORDER BY ts")
        by_row.append([cat.rpartition(": ")[2] for (cat,) in found])
        assert timeline.number("SELECT count(DISTINCT cat) FROM slice WHERE cat LIKE 'send%'") == 2
    assert by_row == [
        ["post", "in flight", "consume"],
        ["post", "in flight", "flush", "consume"],
        ["post", "in flight", "unpack", "consume"],
        ["post", "in flight", "reduce", "consume"],
        ["post", "in flight", "reduce"],
    ]


def test_windows_bytes_iterations_and_warm_ups_are_there(tmp_path: Path) -> None:
    # Two are under way at once, so the second has a track beside the first's.
    row = traced(invented.row_clock(), messages=2)
    row.trace[1, COLUMNS.index("post")] -= 9_000
    row.trace[1, COLUMNS.index("posted")] -= 9_000
    timeline = exported(export(written(tmp_path, [row]))[1], BOUND_NS / 1e3)
    window = "SELECT max(value) FROM counter WHERE pid = 0 AND name LIKE 'window, send to 1%'"
    assert timeline.number(window) == 2
    assert timeline.number("SELECT max(value) FROM counter WHERE name = 'bytes'") == 2 * 4096
    names = "SELECT count(*) FROM slice WHERE pid = 1 AND cat = 'iterations' AND name LIKE '{}%'"
    assert timeline.number(names.format("iteration ")) == row.iterations
    assert timeline.number(names.format("warm-up ")) == row.warmup_iterations
    flight = "SELECT count(*) FROM track WHERE name LIKE 'send to 1, channel 0: in flight%'"
    assert timeline.number(flight) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--per-node",), "export needs exactly one of --csv, --parquet, --json and --perfetto"),
        (("--csv", "--per-node"), "--per-node and --plugin-trace are for --perfetto"),
        (("--csv", "--perfetto", "x.gz"), "exactly one of"),
        (("--perfetto", "x.gz", "--table", "rows"), "--table and --output are not for --perfetto"),
        (("--perfetto", "/nowhere/x.gz"), "the directory /nowhere does not exist"),
    ],
)
def test_what_cannot_be_is_one_line(
    tmp_path: Path, options: Sequence[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, [traced(invented.row_clock())])
    assert main(["export", file, *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
