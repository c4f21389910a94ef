"""A script that reads nccl-tests' table or JSON reads ours, and gets the same numbers."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import invented
import numpy as np
import pytest
from nccl_tests_output import Output, Side, read_document, read_text

from tcpx_mpi.records import Plan, Row, Run
from tcpx_mpi.report import report_lines, summarise_row, to_json

DATA = Path(__file__).parents[1] / "data"
TEXT = (DATA / "nccl_tests_table.txt").read_text()
DOCUMENT = json.loads((DATA / "nccl_tests_document.json").read_text())


def a_run(rows: list[Row] | None = None, **plan: Any) -> Run:
    header = invented.run_header(plan=Plan(**{"sizes": (1024, 2048, 4096), **plan}))
    if rows is None:
        rows = [invented.row(index) for index in range(3)]
    return Run("o.h5", header, invented.setup_times(), rows, complete=True, end_time="now")


def texts(run: Run) -> Output:
    return read_text("\n".join(report_lines(run)) + "\n")


def documents(run: Run) -> Output:
    return read_document(json.loads(json.dumps(to_json(run))))


# --- The reader itself, against what nccl-tests prints -------------------------------------------


def test_the_reader_reads_a_table_of_nccl_tests() -> None:
    found = read_text(TEXT)
    assert [row.size for row in found.rows] == [33554432, 67108864]
    assert found.rows[0].out_of_place == Side(612.25, 54.81, 54.81, 0)
    assert found.rows[1].in_place == Side(1210.25, 55.45, 55.45, None)
    assert (found.rows[0].type, found.rows[0].redop, found.rows[0].root) == ("float", "sum", -1)
    assert (found.out_of_bounds, found.okay, found.bandwidth) == (0, True, 55.195)
    assert found.config["maximum_bytes"] == 67108864
    assert [device.address for device in found.devices] == ["0000:04:00", "0000:05:00"]


def test_the_reader_finds_the_same_in_the_document_of_nccl_tests() -> None:
    assert read_document(DOCUMENT) == read_text(TEXT)


@pytest.mark.parametrize(
    ("part", "instead"),
    [
        ("    33554432       8388608", "   33554432       8388608"),
        ("  612.25   54.81", " 612.25    54.81"),
        ("     sum      -1", "     sum      no"),
        ("# Out of bounds values : 0 OK", "# Out of bounds values: 0 OK"),
        (
            "     time   algbw   busbw  #wrong     time",
            "     time   busbw   algbw  #wrong     time",
        ),
        ("out-of-place ", "out of place "),
        ("[0000:04:00] NVIDIA H100 80GB HBM3\n#  Rank  1", "NVIDIA\n#  rank  1"),
        (" agg iters: 1", ""),
    ],
)
def test_the_reader_would_notice_another_format(part: str, instead: str) -> None:
    assert part in TEXT
    changed = TEXT.replace(part, instead)
    try:
        found: Output | None = read_text(changed)
    except ValueError:
        found = None
    assert found != read_text(TEXT)


# --- Ours ----------------------------------------------------------------------------------------

OPTIONS: list[dict[str, Any]] = [
    {},
    {"agg_iters": 4},
    {"report_gbits": True, "report_cputime": True, "report_timestamps": True},
    {"per_iter_timing": True, "per_iter_skip": 2},
]


@pytest.mark.parametrize("plan", OPTIONS)
def test_the_reader_reads_our_table_with_any_columns_of_ours(plan: dict[str, Any]) -> None:
    run = a_run(**plan)
    found = texts(run)
    for row, ours in zip(found.rows, run.rows, strict=True):
        summary = summarise_row(run.header, ours)
        assert (row.size, row.count) == (ours.size_bytes, ours.count)
        assert (row.type, row.redop, row.root) == ("uint8", "none", -1)
        assert row.out_of_place is not None
        assert row.out_of_place.time_us == pytest.approx(summary.time_ns / 1e3, abs=0.005)
        assert row.out_of_place.algbw == pytest.approx(summary.algbw, abs=0.005)
        assert row.out_of_place.busbw == pytest.approx(summary.busbw, abs=0.005)
        assert row.out_of_place.wrong == 0
        assert row.in_place is None
    assert [(d.rank, d.host) for d in found.devices] == [(r, f"host{r // 2}") for r in range(4)]
    assert (found.out_of_bounds, found.okay) == (0, True)


@pytest.mark.parametrize("plan", OPTIONS)
def test_the_reader_reads_our_document_and_finds_what_the_table_says(plan: dict[str, Any]) -> None:
    run = a_run(**plan)
    table, document = texts(run), documents(run)
    assert document.config == table.config
    assert document.devices == table.devices
    assert document.bandwidth == pytest.approx(table.bandwidth, rel=1e-5)
    assert (document.out_of_bounds, document.okay) == (table.out_of_bounds, table.okay)
    for theirs, ours in zip(document.rows, table.rows, strict=True):
        assert dataclasses.replace(theirs, out_of_place=None) == dataclasses.replace(
            ours, out_of_place=None
        )
        assert theirs.out_of_place is not None
        assert ours.out_of_place is not None
        assert theirs.out_of_place.time_us == pytest.approx(ours.out_of_place.time_us, abs=0.005)
        assert theirs.out_of_place.busbw == pytest.approx(ours.out_of_place.busbw, abs=0.005)
        assert theirs.out_of_place.wrong == ours.out_of_place.wrong


@pytest.mark.parametrize("read", [texts, documents])
def test_wrong_bytes_and_what_was_not_checked_are_read_as_such(read: Any) -> None:
    wrong = invented.row(0, wrong=np.array([0, 3, 0, 0]), faults=["rank 1: byte 7"])
    unchecked = invented.row(1, checked=np.zeros(4, bool), wrong=np.full(4, -1))
    found = read(a_run([wrong, unchecked, invented.row(2)]))
    assert [row.out_of_place.wrong for row in found.rows] == [3, None, 0]
    assert (found.out_of_bounds, found.okay) == (3, False)


def test_a_row_of_great_numbers_keeps_its_places() -> None:
    row = invented.row(0, size_bytes=1 << 40, count=1 << 40)
    row.samples["iteration"][:] = 10**12
    found = texts(a_run([row, invented.row(1), invented.row(2)]))
    assert found.rows[0].size == 1 << 40
    assert found.rows[0].out_of_place is not None
    assert found.rows[0].out_of_place.time_us == 1e9
