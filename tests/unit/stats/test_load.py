"""A side under load: its ratio to the side alone, and what the mesh had meanwhile."""

from __future__ import annotations

import dataclasses
import math

import invented
import numpy as np
import pytest

from tcpx_mpi.findings.baselines import while_loaded
from tcpx_mpi.findings.verdict import as_nccl_tests
from tcpx_mpi.records import LOADED, Row, Run, SideKey
from tcpx_mpi.report import row_line, summarise_row, title_lines, to_json
from tcpx_mpi.report.fitted import Fitted
from tcpx_mpi.report.lines import words_of
from tcpx_mpi.stats.load import load_figures

WORLD, ITERATIONS, BLOCK = 4, 20, 2
HEADER = invented.run_header(pattern="loaded_pingpong", time_divisor=2, world=WORLD)


def side(time_ns: int, receive_ns: int, mesh_bytes: int) -> Row:
    """Every round trip of `time_ns`; all of the mesh is there after `receive_ns`."""
    row = invented.row(size_bytes=1024)
    samples = dict(row.samples)
    samples["iteration"] = np.full((WORLD, ITERATIONS), time_ns)
    samples["receive"] = np.full((WORLD, ITERATIONS), receive_ns)
    received = np.full(WORLD, ITERATIONS * (2 * 1024 + mesh_bytes))
    return dataclasses.replace(
        row, samples=samples, payload_bytes_received=received,
        batches=np.full(ITERATIONS // BLOCK, BLOCK),
    )  # fmt: skip


def a_row(receive_ns: int = 100_000, **loaded: object) -> Row:
    under = dataclasses.replace(side(30_000, receive_ns, 200_000), **loaded)  # type: ignore[arg-type]
    return dataclasses.replace(side(10_000, 20_000, 0), sides={SideKey(place=LOADED): under})


def test_the_ratio_is_that_of_times_and_the_mesh_is_over_its_own_time() -> None:
    figures = load_figures(a_row(), 1)
    assert figures is not None
    assert (figures.ratio.metric, figures.ratio.blocks) == ("time", ITERATIONS // BLOCK)
    assert figures.ratio.ratio == pytest.approx(3)
    assert figures.ratio.ours == pytest.approx(5)
    assert figures.ratio.theirs == pytest.approx(15)
    assert figures.mesh_gbps == pytest.approx(2)  # without the messages of the ping-pong itself
    assert figures.covers == pytest.approx(100_000 / 60_000)
    assert load_figures(side(1, 1, 0), 1) is None


def test_the_table_has_both_latencies_and_no_bandwidth_of_a_part() -> None:
    row = a_row()
    titles = title_lines(HEADER)
    assert "while loaded" in titles[1]
    summary = summarise_row(HEADER, row)
    assert math.isnan(summary.net_bw)
    texts = row_line(HEADER, summary).split()
    time, p50, _, _, ratio, _, _, mesh, wrong = texts[-9:]
    assert [float(text) for text in (time, p50, ratio, mesh)] == [15, 15, 3, 2]
    assert (float(texts[5]), wrong) == (5, "0")


def test_eighty_columns_keep_what_the_load_did() -> None:
    fitted = Fitted(HEADER, 80)
    assert "ratio" in [each.name for each in fitted.fields if each.group == "while loaded"]
    assert "slowest" in [each.name for each in fitted.fields]


@pytest.mark.parametrize("columns", [60, 70, 80, 90, 95, 100, 120, 150, 222, 230])
def test_titles_fit_and_name_the_load_at_any_width(columns: int) -> None:
    titles = Fitted(HEADER, columns).title_lines()
    assert max(map(len, titles)) <= columns
    assert titles[0].endswith("loaded") or "while loaded" in titles[0]


def test_a_wide_terminal_has_all_of_it_in_one_group() -> None:
    shown = [each.name for each in Fitted(HEADER, 400).fields if each.group == "while loaded"]
    assert shown == ["time", "p50", "p95", "p99", "ratio", "low", "high", "mesh_bw", "#wrong"]


def test_wrong_bytes_under_load_are_wrong_bytes_of_the_run() -> None:
    row = a_row(wrong=np.array([0, 3, 0, 0]), faults=("rank 1: a byte",))
    summary = summarise_row(HEADER, row)
    assert (summary.wrong, summary.wrong_found) == (0, 3)
    assert "rank 1: a byte" in summary.faults
    assert as_nccl_tests(HEADER, [summary])[0].text == "3 FAILED"


def test_a_mesh_that_is_over_too_early_is_a_warning() -> None:
    (how,) = while_loaded([summarise_row(HEADER, a_row())])
    assert how.title == "While loaded"
    _, warning = while_loaded([summarise_row(HEADER, a_row(receive_ns=50_000))])
    text = "the mesh was over before the ping-pong at 1 KiB: use a larger --load"
    assert words_of(warning) == text


def test_the_document_has_the_side_under_load() -> None:
    row = a_row()
    run = Run("o.h5", HEADER, invented.setup_times(), [row], complete=True)
    (result,) = to_json(run)["results"]
    assert result["loaded"]["time"] == pytest.approx(15)
    assert result["loaded"]["mesh_bw"] == pytest.approx(2)
    assert result["loaded"]["per_iter"]["p50_us"] == pytest.approx(15)
