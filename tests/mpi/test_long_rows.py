"""Rows whose samples are larger than the memory that a rank may have: one, or many together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jobs import run, tcpx_mpi
from variants import variant

from tcpx_mpi.records import PHASES, read_run

pytestmark = pytest.mark.multirank

#: A rank takes 190 MB of private memory for a row of 1000 iterations, and this is more than it
#: needs for any; a row kept in memory takes 128 MB for each phase of both ranks, and half as much
#: again for each float of it.
MEMORY_KIB = 300 << 10
ITERATIONS = 4_000_000
#: Not long enough to be on disk by itself; so many take 134 MB, and 17 MB for their maxima.
SHORT_ITERATIONS, SHORT_ROWS = 1 << 17, 16
#: The linear algebra beneath numpy has memory for each CPU.
ALONE = {"OPENBLAS_NUM_THREADS": "1"}


def within_memory(*arguments: str, kib: int = MEMORY_KIB) -> list[str]:
    """A command whose processes have no more private memory than that."""
    return ["sh", "-c", f'ulimit -d {kib}; exec "$@"', "sh", *tcpx_mpi(*arguments)]


@pytest.mark.variant
def test_a_row_larger_than_the_memory_of_a_rank_is_measured_and_reported(
    place: Path,
) -> None:
    result = run(
        within_memory("run", "pair", "--ranks", "2", "--plugin", "null", "-b", "8", "-e", "8",
                 "-n", str(ITERATIONS), "-w", "10", "-c", "0", "--check-memory", "16M",
                 "--spool", "spool", "--hdf5", "o.h5"),
        place,
        ALONE,
    )  # fmt: skip
    assert result.code == 0, result.text
    report = run(within_memory("report", "o.h5"), place, ALONE)
    assert report.code == 0, report.text
    (row,) = read_run(str(place / "o.h5")).rows
    assert {row.samples[phase].shape for phase in PHASES} == {(2, ITERATIONS)}
    # One after the other, so that none is lost, twice there or in another place.
    starts, times = row.samples["start"], row.samples["iteration"]
    batches = row.batches.cumsum()[:-1]
    gaps = (starts[:, 1:] - starts[:, :-1] - times[:, :-1]).astype(bool)
    gaps[:, batches - 1] = False
    assert not gaps.any()
    assert (starts[:, batches] > starts[:, batches - 1]).all()
    assert list((place / "spool").iterdir()) == []


@pytest.mark.variant
@pytest.mark.parametrize("file", ["o.h5", variant("none")])
def test_many_rows_larger_than_the_memory_of_a_rank_are_measured_and_reported(
    place: Path, file: str
) -> None:
    result = run(
        within_memory("run", "pair", "--ranks", "2", "--plugin", "null", "-b", "8", "-e", "8",
                 "-n", str(SHORT_ITERATIONS), "-N", str(SHORT_ROWS), "-w", "10", "-c", "0",
                 "--check-memory", "16M", "--spool", "spool", "--hdf5", file, "-J", "o.json",
                 kib=MEMORY_KIB * 3 // 4),
        place,
        ALONE,
    )  # fmt: skip
    assert result.code == 0, result.text
    assert len(result.rows) == SHORT_ROWS
    assert list((place / "spool").iterdir()) == []
    means = [
        row["out_of_place_per_iter"]["avg_us"]
        for row in json.loads((place / "o.json").read_text())["results"]
    ]
    assert len(set(means)) == SHORT_ROWS, "each has samples of its own"
    if file == "none":
        return
    report = run(within_memory("report", file, kib=MEMORY_KIB * 3 // 4), place, ALONE)
    assert report.code == 0, report.text
    rows = read_run(str(place / file)).rows
    assert {row.samples[phase].shape for row in rows for phase in PHASES} == {(2, SHORT_ITERATIONS)}
    assert [row.samples["iteration"][1].mean() / 1e3 for row in rows] == pytest.approx(means)
