"""`--runs K`: whole launches, each with processes of its own, and what becomes of a failing one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jobs import SLOTS, mpirun, run, tcpx_mpi

from tcpx_mpi.compare import taken_in_turns
from tcpx_mpi.records import read_run

pytestmark = pytest.mark.multirank

RUN = ("run", "ring", "--ranks", "2", "--plugin", "softtcpx", "--hdf5", "o.h5", "--spool", "spool")
SIZES = ("--sizes", "1K,2K,3K,4K,5K")


def test_launches_are_whole_shuffled_and_in_one_file(place: Path) -> None:
    result = run(tcpx_mpi(*RUN, *SIZES, "--runs", "2", "-J", "o.json"), place)
    assert result.code == 0, result.text
    found = read_run(str(place / "o.h5"))
    assert found.missing == []
    first, second = found.all_launches
    assert first.header.run_id != second.header.run_id
    assert {info.pid for info in first.header.ranks}.isdisjoint(
        info.pid for info in second.header.ranks
    )
    orders = [
        [row.index for row in sorted(launch.rows, key=lambda row: int(row.batch_start.min()))]
        for launch in found.all_launches
    ]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(5))
    assert [row.size for row in result.rows] == [1024 * n for n in range(1, 6)]
    assert "## 2 launches" in result.out
    document = json.loads((place / "o.json").read_text())
    assert [each["launches"]["count"] for each in document["results"]] == [2] * 5
    assert sorted(path.name for path in place.iterdir()) == ["o.h5", "o.json", "spool"]


def test_a_launch_that_fails_ends_the_series_with_its_code_and_what_there_is(place: Path) -> None:
    trap = {"SOFTTCPX_TRAP_CORRUPT_AT": "3"}
    result = run(tcpx_mpi(*RUN, *SIZES, "--memory", "emulated", "--runs", "3"), place, trap)
    assert result.code == 5
    assert "# launch 1 of 3" in result.err
    assert "# launch 2 of 3" not in result.err
    assert read_run(str(place / "o.h5")).missing == ["2 of 3 launches"]
    assert result.out.count("# Collective test starting") == 1
    assert [row.size for row in result.rows] == [1024 * n for n in range(1, 6)]
    assert "# kept: launch 1, as far as it came, in o.h5\n" in result.err


@pytest.mark.variant
def test_a_launch_that_fails_in_mid_row_names_no_file_but_that_of_the_series(place: Path) -> None:
    trap = {"SOFTTCPX_TRAP_ERROR_AT": "90"}
    options = ("--sizes", "8,1K", "-n", "50", "--runs", "2")
    result = run(tcpx_mpi(*RUN, *options), place, trap)
    assert result.code in (7, 13), result.text
    assert result.out.count("# Collective test starting") == 1
    kept = [line for line in result.err.splitlines() if line.startswith("# kept")]
    assert kept == ["# kept: launch 1, as far as it came, in o.h5"]


def test_several_launches_under_a_launcher_are_refused(place: Path) -> None:
    result = run(mpirun(2, "run", "ring", *SIZES, "--runs", "2", "--spool", "spool"), place)
    assert result.code == 2
    assert "--runs starts mpirun itself" in result.err
    assert sorted(path.name for path in place.iterdir()) == ["spool"]


def test_ab_launches_in_turns_and_compares(place: Path) -> None:
    common = ("ring", "--ranks", "2", "--plugin", "softtcpx", "--sizes", "4K", "--spool", "spool",
              "--progress-threads", "1", "--check-memory", SLOTS)  # fmt: skip
    sides = ("--", "--", "SOFTTCPX_TRAP_SLOW_PERCENT=3", "--channels", "1")
    result = run(tcpx_mpi("ab", "--runs", "2", "--out", "x", *common, *sides), place)
    assert result.code == 11, result.text  # two launches a side decide nothing
    first, second = (read_run(str(place / f"x-{side}.h5")) for side in "AB")
    assert first.missing == second.missing == []
    assert taken_in_turns(first, second)
    starts = [launch.header.start_time for run in (first, second) for launch in run.all_launches]
    a1, a2, b1, b2 = starts
    assert sorted(starts) == [a1, b1, b2, a2]
    assert second.header.environment["SOFTTCPX_TRAP_SLOW_PERCENT"] == "3"
    assert "# differs: setting channels: 2 | 1" in result.out
    assert "# verdict: inconclusive" in result.out
    assert sorted(path.name for path in place.iterdir()) == ["spool", "x-A.h5", "x-B.h5"]
