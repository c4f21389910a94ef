"""Traces as text and as a page, joined with what the plugin wrote, and what is not there."""

from __future__ import annotations

import dataclasses
import struct
from pathlib import Path

import invented
import numpy as np
import pytest

from tcpx_mpi.errors import UsageError
from tcpx_mpi.records import Run
from tcpx_mpi.records.trace import COLUMNS, RECEIVE, SEND
from tcpx_mpi.report.html.page import page_of
from tcpx_mpi.report.plugin_trace import RECORD, read_records
from tcpx_mpi.report.trace_text import trace_lines

MS = 1_000_000
PIDS = (70, 71)


def chunk(rank: int, kind: int, message: int, post_ns: int, **steps: int) -> list[int]:
    """One of the messages from rank 0 to 1; steps in ns after the post."""
    values = dict.fromkeys(COLUMNS, 0) | {"launched": -1, "unpacked": -1}
    values |= {"rank": rank, "kind": kind, "peer": 1 - rank, "message": message}
    values |= {"iteration": message, "bytes": 4096, "comm": 10 + rank, "post": post_ns}
    values |= {name: post_ns + ns for name, ns in steps.items()}
    return [values[name] for name in COLUMNS]


def traced_run(messages: int = 3, nodes: tuple[str, str] = ("a", "a")) -> Run:
    """Message m takes 10 + m us from the post to done, one more to be consumed."""
    lines = []
    for m in range(messages):
        at = m * MS + MS
        lines.append(chunk(0, SEND, m, at, posted=2000, done=5000, finished=5500))
        lines.append(
            chunk(1, RECEIVE, m, at - 1000, posted=500, done=11_000 + m * 1000,
                  finished=12_000 + m * 1000)
        )  # fmt: skip
    row = invented.row(0, world=2, trace=np.array(lines, np.int64))
    header = invented.run_header(2)
    header.ranks = [
        dataclasses.replace(info, pid=pid, node=node)
        for info, pid, node in zip(header.ranks, PIDS, nodes, strict=True)
    ]
    header.environment = {}
    return Run("o.h5", header, invented.setup_times(2), [row], complete=True)


def plugin_file(path: Path, records: list[tuple[int, ...]], capacity: int = 16) -> None:
    """Records of (ns, connection, message, step), written one after the other into the ring."""
    ring = np.zeros(capacity, RECORD)
    for n, (ns, connection, message, step) in enumerate(records):
        ring[n % capacity] = (ns, connection, 0, message, 0, step, 0, 1)
    header = struct.pack("<8sIIQQQ", b"STCPXTR1", 4096, 40, capacity, len(records), 70)
    path.write_bytes(header.ljust(4096, b"\0") + ring.tobytes())


def line_of(lines: list[str], name: str) -> str:
    (line,) = (line for line in lines if line.startswith(f"#   {name}"))
    return line


def test_steps_are_medians_after_the_post_of_the_send() -> None:
    lines = trace_lines(traced_run())
    assert "rank 0 -> rank 1, step 0: 3 messages of 1 chunk;" in lines[1]
    assert line_of(lines, "send    done").split()[-1] == "5.0"
    assert line_of(lines, "receive post   ").split()[-1] == "-1.0"
    assert line_of(lines, "receive consumed").split()[-1] == "12.0"
    assert line_of(lines, "message all consumed").endswith("12.0  p10 11.2, p90 12.8")
    assert "SOFTTCPX_TRACE was not set" in lines[0]


def test_what_the_plugin_wrote_is_joined(tmp_path: Path) -> None:
    run = traced_run()
    run.header.environment["SOFTTCPX_TRACE"] = str(tmp_path / "soft")
    told = [(m * MS + MS + 3000 + m * 1000, 10, m, 7) for m in range(3)]
    other = [(5, 99, 0, 7), (6, 10, 0, 77)]  # another connection, and a torn record
    plugin_file(tmp_path / "soft.70", [*other, *told])
    lines = trace_lines(run)
    assert line_of(lines, "send    first bytes sent *").split()[-1] == "4.0"
    assert lines[0] == f"# Trace: the plugin's trace {tmp_path}/soft.71 is not here"


def test_a_file_keeps_its_last_records(tmp_path: Path) -> None:
    plugin_file(tmp_path / "soft.70", [(n, 1, n, 1) for n in range(21)])
    assert read_records(str(tmp_path / "soft.70"))["ns"].tolist() == list(range(5, 21))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"STCPXTR0" + bytes(4200), "is no trace of softtcpx"),
        (b"", "is no trace of softtcpx"),
        (b"STCPXTR1" + bytes(4200), "is cut off"),
    ],
)
def test_another_file_is_refused(content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "soft.70").write_bytes(content)
    with pytest.raises(UsageError, match=why):
        trace_lines(traced_run(), str(tmp_path / "soft"))


def test_hosts_without_a_common_clock_count_for_themselves() -> None:
    lines = trace_lines(traced_run(nodes=("a", "b")))
    assert "each side counts from its own first post" in lines[2]
    assert line_of(lines, "receive consumed").split()[-1] == "13.0"


def test_a_file_without_a_trace_says_how_to_have_one() -> None:
    run = traced_run()
    run.rows = [invented.row(0, world=2)]
    assert trace_lines(run) == [
        "# Trace: none in this file; `tcpx-mpi run ... --trace N` keeps one"
    ]


def test_messages_of_which_one_side_is_lost_are_left_out() -> None:
    run = traced_run()
    (row,) = run.rows
    run.rows = [dataclasses.replace(row, trace=row.trace[:-1])]
    assert "2 messages" in "\n".join(trace_lines(run))
    run.rows = [dataclasses.replace(row, trace=row.trace[::2])]
    assert trace_lines(run)[-1].startswith("# Trace: no message is whole in it")


def test_the_page_draws_them() -> None:
    page = page_of(traced_run())
    assert "A message of 1 KiB, rank 0 to 1" in page
    assert "The message of median time of 3: all consumed after 12.0 us" in page
    run = traced_run()
    run.rows = [invented.row(0, world=2)]
    assert '<section id="trace">' not in page_of(run)
