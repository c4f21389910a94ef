"""Many rows take as little memory as one, whatever is made of them: their samples are in a file.

numpy reports what it allocates to tracemalloc; maps of files are none of it.
"""

from __future__ import annotations

import dataclasses
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import gates_by_hand
import invented
import pytest
from allocations import peak_of

from tcpx_mpi.compare import Limits, compare_runs
from tcpx_mpi.errors import UsageError
from tcpx_mpi.exchange.tidy import tables_of
from tcpx_mpi.gates import calibrate, judge
from tcpx_mpi.records import Plan, Row, RunHeader, RunWriter, Scratch, hdf5, merge, read_run
from tcpx_mpi.records.commit_file import CommitFile
from tcpx_mpi.report import report_lines, summarise_row, write_run_json
from tcpx_mpi.report.html.plots import distribution_plots

ITERATIONS = 5_000
FEW, MANY = 2, 14
#: A row's scalars; one series of its iterations is twice as much, and it has ten.
ROW_BYTES = 20_000


def header(rows: int, world: int = 2) -> RunHeader:
    plan = Plan(sizes=(1024,), run_cycles=rows, iters=ITERATIONS, per_iter_timing=True)
    return invented.run_header(world, plan, pattern="pairs")


def rows_of(count: int, world: int = 2) -> Iterator[Row]:
    for index in range(count):
        yield invented.row(index, world, iterations=ITERATIONS, size_bytes=1024, cycle=index)


def file_of(path: Path, rows: int, world: int = 2) -> str:
    writer = RunWriter(str(path))
    writer.write_header(header(rows, world))
    for row in rows_of(rows, world):
        writer.append_row(row)
    writer.finish()
    return writer.path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    place = tmp_path_factory.mktemp("rows")
    return {count: file_of(place / f"{count}.h5", count) for count in (FEW, MANY)}


def plotted(file: str, place: Path) -> None:
    run = read_run(file)
    summaries = [summarise_row(run.header, row) for row in run.rows]
    assert len(distribution_plots(run.header, run.rows, summaries)) == 1


def judged(file: str, place: Path) -> None:
    run = read_run(file)
    first = dataclasses.replace(run, rows=run.rows[:1])
    assert judge(gates_by_hand.gate_for(first), run).findings


def calibrated(file: str, place: Path) -> None:
    with pytest.raises(UsageError, match="1 launches"):
        calibrate([read_run(file)], 0.01)


def compared(file: str, place: Path) -> None:
    assert compare_runs(read_run(file), read_run(file), Limits()).rows


def tabled(file: str, place: Path) -> None:
    assert sum(block.length for block in tables_of(read_run(file))["samples"].blocks())


USES: dict[str, Callable[[str, Path], object]] = {
    "report": lambda file, place: report_lines(read_run(file)),
    "plots": plotted,
    "JSON with every time": lambda file, place: write_run_json(
        str(place / "o.json"), read_run(file)
    ),
    "gate": judged,
    "calibration": calibrated,
    "compare": compared,
    "table of samples": tabled,
    "merge": lambda file, place: merge(str(place / "o.h5"), [], file),
}


@pytest.mark.parametrize("use", ["report", "plots", "gate", "compare", "table of samples"])
def test_samples_are_not_read_again_for_each_rank(
    use: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = []
    read = CommitFile.array
    monkeypatch.setattr(
        CommitFile, "array", lambda *place: reads.append(place) or read(*place), raising=True
    )
    counts = []
    for world in (2, 8):
        file = file_of(tmp_path / f"{world}.h5", rows=1, world=world)
        reads.clear()
        USES[use](file, tmp_path)
        counts.append(len(reads))
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize("use", USES)
def test_a_file_of_many_rows_is_read_in_as_little_memory_as_one_of_few(
    use: str, files: dict[int, str], tmp_path: Path
) -> None:
    USES[use](files[FEW], tmp_path)  # what is imported and made once
    few, many = (
        peak_of(lambda count=count: USES[use](files[count], tmp_path)) for count in (FEW, MANY)
    )
    assert many - few < (MANY - FEW) * ROW_BYTES


@pytest.mark.parametrize("kept", ["in a file", "without one"])
def test_a_run_of_many_rows_keeps_their_scalars(kept: str, tmp_path: Path) -> None:
    asked = header(MANY)
    keeper: RunWriter | Scratch = Scratch()
    if kept == "in a file":
        keeper = RunWriter(str(tmp_path / "o.h5"))
        keeper.write_header(asked)
    summaries = []

    tracemalloc.start()
    try:
        for row in rows_of(MANY):
            summaries.append(summarise_row(asked, keeper.append_row(row)))
        del row
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < MANY * ROW_BYTES
    assert {summary.iteration_max_ns().size for summary in summaries} == {ITERATIONS}


def test_the_types_of_a_row_are_made_once_for_all_rows(files: dict[int, str]) -> None:
    hdf5._kind_of.cache_clear()
    read_run(files[FEW])
    of_few = hdf5._kind_of.cache_info().misses
    read_run(files[MANY])
    assert hdf5._kind_of.cache_info().misses == of_few > 0


def test_who_needs_no_warm_ups_opens_none_of_them(
    files: dict[int, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = []
    real = hdf5.group_of
    monkeypatch.setattr(
        hdf5, "group_of", lambda group, name: opened.append(name) or real(group, name)
    )
    run = read_run(files[FEW], warmup=False)
    assert opened == ["samples"] * FEW
    assert [row.warmup for row in run.rows] == [{}] * FEW
    assert report_lines(run) == report_lines(read_run(files[FEW]))
