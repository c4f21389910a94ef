"""nccl-tests' programs in real runs: every type and operation, right, and what is broken seen."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from jobs import LIMIT_S, mpirun, run, tcpx_mpi
from nccl_tests_output import read_document, read_text
from variants import variant

from tcpx_mpi import patterns
from tcpx_mpi.config.options import OPERATIONS, TYPES
from tcpx_mpi.launch import mpirun as launch

pytestmark = pytest.mark.multirank

REDUCING = ("all_reduce", "reduce_scatter", "reduce")
#: The redop column has the operation in these, as in nccl-tests.
WITH_OPERATIONS = (*REDUCING, "sendrecv")
WITHOUT_IN_PLACE = ("alltoall", "alltoallv")


@pytest.mark.parametrize(
    "name",
    [
        # What others do these do, too: they reduce, and have blocks of sizes of their own.
        name if name in ("all_reduce", "alltoallv") else variant(name)
        for name in patterns.PROGRAMS
    ],
)
def test_every_program_is_right_for_every_type_and_operation(name: str, place: Path) -> None:
    ranks = "4" if name == "hypercube" else "3"
    measured = run(
        tcpx_mpi(
            "run", f"{name}_perf", "--ranks", ranks, "--plugin", "softtcpx", "-d", "all",
            "-o", "all", "-r", "1", "-b", "1000", "-e", "1000", "-n", "2", "--check-memory", "1M",
            "--hdf5", "none", "-J", "out.json",
        ),
        place,
        limit_s=LIMIT_S,
    )  # fmt: skip
    assert measured.code == 0, measured.text
    # As a script reads it that was written for nccl-tests.
    table = read_text(measured.out)
    document = json.loads((place / "out.json").read_text())
    assert (table.out_of_bounds, table.okay) == (0, True)
    operations = OPERATIONS if name in WITH_OPERATIONS else ("none",)
    wanted = [(kind, operation) for kind in TYPES for operation in operations]
    assert [(row.type, row.redop) for row in table.rows] == wanted
    for row in table.rows:
        assert row.out_of_place is not None
        assert row.out_of_place.wrong == 0
        assert (row.in_place is None) == (name in WITHOUT_IN_PLACE)
        assert row.in_place is None or row.in_place.wrong == 0
    assert [(r.size, r.count, r.type, r.redop, r.root) for r in read_document(document).rows] == [
        (r.size, r.count, r.type, r.redop, r.root) for r in table.rows
    ]
    assert {result["algo"] for result in document["results"]} <= {
        *patterns.find_program(name).algos
    }


def test_groups_run_at_once_and_each_rank_has_its_own_in_its_line(place: Path) -> None:
    measured = run(
        mpirun(
            4, "run", "all_reduce", "--plugin", "softtcpx", "-b", "1K", "-e", "1K", "-n", "2",
            "--hdf5", "none", NCCL_TESTS_SPLIT="% 2",
        ),
        place,
    )  # fmt: skip
    assert measured.code == 0, measured.text
    table = read_text(measured.out)
    assert [(device.rank, device.group) for device in table.devices] == [
        (0, 0), (1, 1), (2, 0), (3, 1)
    ]  # fmt: skip
    (row,) = table.rows
    assert row.out_of_place is not None
    # Groups of 2: a factor of 2 (n - 1) / n = 1, where 4 ranks would have 1.5.
    assert row.out_of_place.busbw == row.out_of_place.algbw
    assert row.out_of_place.wrong == 0


def test_a_hypercube_of_three_is_said_and_skipped(place: Path) -> None:
    measured = run(
        tcpx_mpi("run", "hypercube", "--ranks", "3", "--plugin", "softtcpx", "--hdf5", "a.h5"),
        place,
    )
    assert measured.code == 0, measured.text
    assert "nRanks 3 is not a power of 2, skipping" in measured.out
    report = run(tcpx_mpi("report", "a.h5"), place)
    assert (report.code, "Missing" in report.out) == (0, False), report.text


def test_a_matrix_says_how_much_goes_where(place: Path) -> None:
    (place / "matrix").write_text("0 4096 0\n16 160 48\n8192 0 0\n")
    measured = run(
        tcpx_mpi(
            "run", "alltoallv", "--ranks", "3", "--plugin", "softtcpx", "-b", "64K", "-e", "64K",
            "-n", "2", "--matrix", "matrix", "--hdf5", "none",
        ),
        place,
    )  # fmt: skip
    assert measured.code == 0, measured.text
    (row,) = read_text(measured.out).rows
    assert (row.size, row.count) == (8208, 0)
    assert row.out_of_place is not None
    assert row.out_of_place.wrong == 0


@pytest.mark.parametrize("algo", [variant("ring"), variant("doubling"), "auto"])
def test_the_algorithm_stands_in_the_row(algo: str, place: Path) -> None:
    measured = run(
        tcpx_mpi(
            "run", "all_gather", "--ranks", "3", "--plugin", "softtcpx", "-b", "48", "-e", "48",
            "-n", "2", "--algo", algo, "--hdf5", "none",
        ),
        place,
    )  # fmt: skip
    assert measured.code == 0, measured.text
    (line,) = [line for line in measured.out.splitlines() if line and line[0] != "#"]
    assert line.split()[13] in (("ring", "doubling") if algo == "auto" else (algo,))
    assert ("# Algorithm: by size, for " in measured.out) == (algo == "auto")


#: Runs with one step of rank 1 of a program broken: its name and the change are arguments.
BROKEN = """
import sys

from tcpx_mpi import cli
from tcpx_mpi.patterns import all_gather, all_reduce
from tcpx_mpi.schedule.table import NONE, Column, Op, Schedule

what = sys.argv.pop(1)
module = all_gather if what == "dependency" else all_reduce
good = module._SCHEDULES["ring"]


def broken(rank, world, form):
    schedule = good(rank, world, form)
    if rank != 1:
        return schedule
    table = schedule.table.copy()
    reduces = [row for row in table if row[Column.OP] == Op.RECV_REDUCE]
    sends = [row for row in table if row[Column.OP] == Op.SEND]
    if what == "operand":
        reduces[0][[Column.OP, Column.SRC_BUFFER, Column.SRC_BLOCK]] = Op.RECV, NONE, NONE
    elif what == "block":
        reduces[0][Column.SRC_BLOCK] = (reduces[0][Column.SRC_BLOCK] + 1) % world
    else:
        sends[1][[Column.PRED0, Column.WAIT0]] = NONE
    return Schedule(table)


module._SCHEDULES["ring"] = broken
sys.exit(cli.main(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("operand", "all_reduce"),
        variant("block", "all_reduce"),
        variant("dependency", "all_gather"),
    ],
)
def test_a_run_sees_what_is_broken_and_names_the_first_wrong_element(
    what: str, name: str, place: Path
) -> None:
    (place / "broken.py").write_text(BROKEN)
    ranks = [launch.find_mpirun(os.environ), "-n", "3", sys.executable, str(place / "broken.py")]
    measured = run(
        [*ranks, what, "run", name, "--plugin", "softtcpx", "--algo", "ring", "-b", "48K",
         "-e", "48K", "-n", "4", "-d", "int32", "--hdf5", "none", "--check-memory", "1M"],
        place,
    )  # fmt: skip
    assert measured.code == 5, measured.text
    (row,) = read_text(measured.out).rows
    assert row.out_of_place is not None
    assert (row.out_of_place.wrong or 0) > 0
    first = measured.errors[0]
    assert first.startswith("rank ")
    for word in (", iteration ", ", element ", "(int32): expected ", ", found "):
        assert word in first
