"""A pattern is data: one that only this test defines runs to the end and is reported in full."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from jobs import LIMIT_S, SLOTS, run, tcpx_mpi

from tcpx_mpi.launch import mpirun as launch

pytestmark = pytest.mark.multirank

#: Every even rank sends to the next one, in two parts that follow each other.
PROGRAM = """
import sys

from tcpx_mpi import cli, patterns
from tcpx_mpi.schedule.builder import ScheduleBuilder
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.promise import Expected
from tcpx_mpi.schedule.table import BlockTable, Wait, make_layout


def schedule(rank, world):
    steps = ScheduleBuilder()
    do, other = (steps.receive, rank - 1) if rank % 2 else (steps.send, rank + 1)
    first = do(other, 0)
    do(other, 1, after=[(first, Wait.WHOLE)])
    return steps.build()


def layout(rank, world, size_bytes):
    halves = BlockTable.of_lengths([size_bytes // 2, size_bytes - size_bytes // 2])
    return make_layout(recv=halves) if rank % 2 else make_layout(send=halves)


def expected(rank, world):
    return Expected.of_rows([(0, rank - 1, 0), (1, rank - 1, 1)] if rank % 2 else [])


patterns.register(
    Pattern(
        name="neighbours",
        summary="every even rank sends two halves to the next one",
        busbw_factor=lambda world: 1.0,
        time_divisor=1,
        refuse=lambda world: None if world % 2 == 0 else "neighbours needs an even number",
        schedule=schedule,
        layout=layout,
        expected=expected,
        sender=lambda number, receiver, world: receiver - 1,
        notes=("a note of its own",),
    )
)
if __name__ == "__main__":
    sys.exit(cli.main(sys.argv[1:]))
"""


def test_a_pattern_of_one_s_own_runs_and_is_reported_in_full(place: Path) -> None:
    (place / "own.py").write_text(PROGRAM)
    mpirun = launch.find_mpirun(os.environ)
    ranks = [mpirun, "-n", "4", sys.executable, str(place / "own.py")]
    measured = run(
        [*ranks, "run", "neighbours", "--plugin", "softtcpx", "-b", "1K", "-e", "1025",
         "-i", "1", "-n", "40", "--hdf5", "own.h5",
         "--check-memory", SLOTS], place, limit_s=LIMIT_S,
    )  # fmt: skip
    assert measured.code == 0, measured.err
    assert "neighbours" in measured.out
    assert "a note of its own" in measured.out
    assert "# Out of bounds values : 0 OK" in measured.out
    report = run([sys.executable, str(place / "own.py"), "report", "own.h5"], place)
    assert report.code == 0, report.err
    rows = [line.split() for line in report.out.splitlines() if line and line[0] != "#"]
    assert [(row[0], row[8]) for row in rows] == [("1024", "0"), ("1025", "0")]
    # Its two ways are told apart, as those of the pattern pair are.
    ways = run(
        [sys.executable, "-c",
         "import own, tcpx_mpi; from tcpx_mpi.findings.stragglers import links_by_size\n"
         "from tcpx_mpi.records import read_run\n"
         "r = read_run('own.h5'); print({k: sorted(v) for k, v in "
         "links_by_size(r.header, r.rows).items()})"],
        place,
        {"PYTHONPATH": str(place)},
    )  # fmt: skip
    assert ways.out.strip() == "{1024: [(0, 1), (2, 3)], 1025: [(0, 1), (2, 3)]}", ways.err
    # A tcpx-mpi that does not know it reports its rows all the same.
    stranger = run(tcpx_mpi("report", "own.h5"), place)
    assert stranger.code == 0, stranger.err
    assert [line for line in stranger.out.splitlines() if line.split()[:1] == ["1025"]]
