"""Rows of any length take little memory: nothing as long as the row is made but on disk.

numpy reports what it allocates to tracemalloc; maps of files are none of it.
"""

from __future__ import annotations

import dataclasses
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import invented
import numpy as np
import pytest
from allocations import peak_of
from variants import variants_where

from tcpx_mpi.exchange.tidy import samples
from tcpx_mpi.findings.steadiness import steadiness
from tcpx_mpi.findings.stragglers import stragglers
from tcpx_mpi.gates.figures import FIGURES, figures_of, flaws
from tcpx_mpi.records import PHASES, Row, Run, mapped_arrays
from tcpx_mpi.report import json_text
from tcpx_mpi.report.html.plots import distribution_plots
from tcpx_mpi.run.event_stream import EventStream
from tcpx_mpi.stats import blocks, find_change, ratios, summarise, typical_time_ns

HEADER = invented.run_header(
    world=2, pattern="pairs", ranks=[invented.rank_info(rank, node="boot-0") for rank in range(2)]
)


def series(iterations: int, warm_up: int = 0, step: int | None = None) -> np.ndarray:
    """Log-normal around 1000 ns; a half more in a warm-up, a fifth more after a step."""
    random = np.random.default_rng(1)
    times = mapped_arrays.empty(iterations)
    for part in mapped_arrays.pieces(iterations):
        times[part] = 1000 * np.exp(random.normal(0, 0.3, part.stop - part.start))
    times[:warm_up] *= 1.5
    times[step or iterations :] *= 1.2
    return times


def long_row(iterations: int) -> Row:
    """Two ranks, one twice as slow, which warm up in the first eighth; 16 batches; read only."""
    times = series(iterations, warm_up=iterations // 8)
    by_rank = mapped_arrays.empty((2, iterations), np.int64)
    for part in mapped_arrays.pieces(iterations):
        by_rank[:, part] = times[part] * [[1], [2]]
    by_rank.flags.writeable = False
    return invented.row(
        0, 2, samples=dict.fromkeys(PHASES, by_rank), warmup={},
        batches=np.full(16, iterations // 16), size_bytes=1024,
    )  # fmt: skip


def run_of(row: Row) -> Run:
    return Run("o.h5", HEADER, invented.setup_times(2), [row], complete=True)


def read_as_a_table(row: Row) -> None:
    assert max(block.length for block in samples(run_of(row)).blocks()) == mapped_arrays.PIECE


def all_times_as_json(row: Row) -> None:
    head = dataclasses.replace(HEADER, plan=dataclasses.replace(HEADER.plan, per_iter_timing=True))
    run = dataclasses.replace(run_of(row), header=head)
    values = sum(part.count(".") for part in json_text(run))
    assert values > row.iterations


def all_times_as_an_event(row: Row) -> None:
    head = dataclasses.replace(HEADER, plan=dataclasses.replace(HEADER.plan, per_iter_timing=True))
    with tempfile.NamedTemporaryFile() as file:
        events = EventStream(f"{file.name}.jsonl")
        events.row(dataclasses.replace(run_of(row), header=head), row, summarise(row, 1, 1.0, 1))
        assert os.path.getsize(events.path) > 4 * row.iterations
        events.discard()


USES: dict[str, Callable[[Row], object]] = {
    "summary": lambda row: summarise(row, 1, 1.0, 1),
    "summary with --ci": lambda row: summarise(
        dataclasses.replace(row, ended_by="ci"), 1, 1.0, 2, per_iter_skip=3
    ),
    "steadiness": lambda row: steadiness([summarise(row, 1, 1.0, 1)]),
    "typical time of rank 0": lambda row: typical_time_ns(row, 0, 1, back_to_back=False),
    "typical time of all ranks": lambda row: typical_time_ns(row, 1, 1, back_to_back=False),
    "typical time of batches": lambda row: typical_time_ns(row, 1, 1, back_to_back=True),
    "gates": lambda row: (
        [each(figures_of(run_of(row), row)) for each in FIGURES.values()],
        flaws(row),
    ),
    "ratio": lambda row: ratios.ratio_to(row, "raw", row, 1, 1.0, 1),
    "suspects": lambda row: stragglers(HEADER, [row]),
    "plot": lambda row: distribution_plots(HEADER, [row], [summarise(row, 1, 1.0, 1)]),
    "table": read_as_a_table,
    "JSON with all times": all_times_as_json,
    "event with all times": all_times_as_an_event,
}


@pytest.mark.parametrize("use", variants_where(lambda use: use.startswith("event"), USES))
def test_a_long_row_takes_less_than_a_byte_an_iteration(
    use: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in (
        (mapped_arrays, "PIECE"), (blocks, "_MOST_RANKED"), (blocks, "_LOOKED_AT"),
        (ratios, "_RESAMPLED_AT_A_TIME"),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, 1 << 12)
    monkeypatch.setattr(mapped_arrays, "LARGE_BYTES", 1 << 16)
    iterations = 1 << (20 if use == "plot" else 19)
    USES[use](long_row(1 << 14))  # what is imported and made once
    row = long_row(iterations)
    assert peak_of(lambda: USES[use](row)) < iterations


@pytest.mark.parametrize("use", [use for use in USES if use != "table"])  # it makes none
def test_what_a_long_row_has_on_disk_is_in_its_spool(
    use: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = dataclasses.replace(long_row(1 << 14), spool=str(tmp_path))
    found: list[str | None] = []

    def seen(spool: str | None = None) -> BinaryIO:
        found.append(spool)
        return scratch_file(spool)

    scratch_file = mapped_arrays.scratch_file
    monkeypatch.setattr(mapped_arrays, "scratch_file", seen)
    monkeypatch.setattr(mapped_arrays, "LARGE_BYTES", 1 << 14)
    USES[use](row)
    assert set(found) == {str(tmp_path)}


def test_all_that_is_said_of_a_long_row_takes_less_memory_than_one_series_of_it() -> None:
    iterations = 1 << 22
    row = dataclasses.replace(long_row(iterations), ended_by="ci")
    said = []

    def work() -> None:
        said.extend(steadiness([summarise(row, 1, 1.0, 1)]))
        typical_time_ns(row, 1, 1, back_to_back=False)
        typical_time_ns(row, 1, 1, back_to_back=True)
        stragglers(HEADER, [row])
        ratios.block_times_ns(row, 3, 1)
        flaws(row)

    assert peak_of(work) < 24 << 20
    assert said[0].title == "Warm-up", "it takes the longest way"


# --- What is found in series that are looked at in outline ----------------------------------------

LONG = 4_000_000


@pytest.mark.parametrize("at", [1_800_000, 2_500_007])
def test_a_step_in_a_long_row_is_found_where_it_is(at: int) -> None:
    found = find_change(series(LONG, step=at))
    assert found is not None
    # Steps are looked for between 400 stretches.
    assert (found.kind, found.at) == ("step", pytest.approx(at, abs=LONG / 400))
    assert found.relative == pytest.approx(0.2, abs=0.01)


@pytest.mark.parametrize("head", [20_000, 400_000])
def test_a_warm_up_in_a_long_row_is_found_with_its_length(head: int) -> None:
    found = find_change(series(LONG, warm_up=head))
    assert found is not None
    assert (found.kind, found.at) == ("warm-up", pytest.approx(head, rel=0.1))
    assert found.relative == pytest.approx(-1 / 3, abs=0.01)


def test_a_drift_of_a_long_row_is_found_and_a_steady_one_is_steady() -> None:
    times = series(LONG)
    assert find_change(times) is None
    times *= np.linspace(1, 1.3, LONG)
    found = find_change(times)
    assert found is not None
    assert (found.kind, found.relative) == ("drift", pytest.approx(1.25 / 1.05 - 1, abs=0.01))


@pytest.mark.parametrize("count", [1001, 1500, 2999])
def test_an_outline_does_not_make_a_steady_row_unsteady(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "_MOST_RANKED", 1000)
    random = np.random.default_rng(count)
    found = [find_change(np.exp(random.normal(0, 1, count))) for _ in range(300)]
    assert sum(each is not None for each in found) <= 3


def test_an_outline_is_short_and_its_stretches_are_as_long_as_each_other() -> None:
    whole = np.arange(float(blocks._MOST_RANKED))
    assert np.array_equal(blocks.in_outline(whole), whole)
    longer = np.arange(2.5 * blocks._MOST_RANKED)
    outline = blocks.in_outline(longer)
    assert outline.size == longer.size // 3 <= blocks._MOST_RANKED
    assert np.count_nonzero(np.diff(outline) != 3) < 4, "one stretch has the rest"
