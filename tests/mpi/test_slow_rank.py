"""A rank that is slow on purpose is named by a tournament and by a mesh, live and from a file."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from jobs import Result, mpirun, mpmd, run, tcpx_mpi

from tcpx_mpi.errors import ExitCode
from tcpx_mpi.findings.stragglers import links_by_size
from tcpx_mpi.records import read_run
from tcpx_mpi.schedule.pattern import pairs_of_text
from tcpx_mpi.stragglers.links import Link, Measured

pytestmark = pytest.mark.multirank

#: Every rank takes so long between two messages of a connection, by much more than what a busy
#: machine takes from it, and one rank many times as long.
GOOD_US, SLOW_US = 5_000, 100_000
#: A message is four chunks of one connection, three of which wait for the one before.
WAITS = 3
FILES = ("--chunk", "1K", "--channels", "1", "-n", "8", "-w", "1", "--plugin", "softtcpx",
         "--hdf5", "o.h5", "--spool", ".")  # fmt: skip
PAIRS = ("run", "pairs", "--all", "--sizes", "4K", *FILES)
MESH = ("run", "mesh", "--sizes", "16K", *FILES)


def who_is_slow(text: str) -> list[str]:
    """Who is named. On a busy machine others may be suspected, and are "Not confirmed"."""
    return [line for line in text.splitlines() if re.match("# Slow +:", line)]


def links(path: Path) -> dict[Link, Measured]:
    """Of the tournament, or of the mesh."""
    found = read_run(str(path))
    rows = [row for row in found.rows if not row.pairs]
    (only,) = links_by_size(found.header, rows).values()
    return only


def run_that_names(name: str, command: Sequence[str], place: Path, code: int = 0) -> Result:
    """A run with a slow rank that names it and nothing else, live and from its file."""

    def slowed(ranks: int, by_us: int) -> list[str]:
        traps = {"SOFTTCPX_TRAP_SLOW_US": str(by_us), "SOFTTCPX_TRAP_SIDE": "recv"}
        return mpirun(ranks, *command, **traps)

    result = run(mpmd(slowed(2, GOOD_US), slowed(1, SLOW_US), slowed(1, GOOD_US)), place)
    assert result.code == code, result.text
    assert len(lines := who_is_slow(result.out)) == 1, result.text
    assert re.fullmatch(name, lines[0]), result.text
    assert who_is_slow(run(tcpx_mpi("report", "o.h5"), place).out) == lines
    return result


@pytest.mark.variant
def test_a_slowed_rank_is_named_by_a_tournament_and_again_by_those_it_meets(place: Path) -> None:
    result = run_that_names(
        r"# Slow +: rank 2 on \S+ \(device 2, NIC lo\), receiving: .* us of the good ones at "
        r"4 KiB, in 3 of 3 links \(noise .* %\); again \d+(\.\d+)? x with ranks \d(, \d)+",
        PAIRS,
        place,
    )
    times = {link: found.time_ns for link, found in links(place / "o.h5").items()}
    assert len(times) == 12
    assert min(times[other, 2] for other in (0, 1, 3)) >= WAITS * SLOW_US * 1e3
    rows = read_run(str(place / "o.h5")).rows
    again = [row for row in rows if row.pairs]
    assert len(rows) - len(again) == 6
    assert len(again) >= 4, "two others, both ways"
    assert len(result.rows) == len(rows)
    for row in again:
        assert row.checked.all()
        pairs = pairs_of_text(row.pairs)
        assert sorted(rank for pair in pairs for rank in pair) == list(range(4))
        receivers = sorted(receiver for _, receiver in pairs)
        assert np.flatnonzero(row.receives).tolist() == receivers
        if 2 in receivers:
            assert row.samples["iteration"][2].min() >= WAITS * SLOW_US * 1e3


def test_a_slowed_rank_is_named_by_a_mesh(place: Path) -> None:
    run_that_names(
        r"# Slow +: rank 2 on \S+ \(device 2, NIC lo\), both ways: .* us of the good ones at "
        r"16 KiB, in 3 of 3 links \(noise .* %\)",
        (*MESH, "--strict"),
        place,
        code=ExitCode.WORSE,
    )
    assert run(tcpx_mpi("report", "--strict", "o.h5"), place).code == ExitCode.WORSE
    times = {link: found.time_ns for link, found in links(place / "o.h5").items()}
    assert set(times) == set(itertools.combinations(range(4), 2))
    # Of both ways one is slow.
    assert min(time for link, time in times.items() if 2 in link) >= WAITS * SLOW_US * 1e3 / 2


@pytest.mark.variant
def test_every_way_is_in_the_matrix_and_every_byte_right(place: Path) -> None:
    result = run(tcpx_mpi(*PAIRS, "--ranks", "4", "--strict"), place)
    # A busy machine may put figures in doubt.
    assert result.code in (ExitCode.OK, ExitCode.WORSE, ExitCode.INCONCLUSIVE), result.text
    assert bool(result.code) == ("tcpx-mpi: error: " in result.text)
    lines = result.out.splitlines()
    start = lines.index("# 4 KiB, GB/s: a row sends, a column receives")
    matrix = [line.split()[2:] for line in lines[start + 2 : start + 6]]
    for sender, cells in enumerate(matrix):
        assert [cell == "-" for cell in cells] == [sender == receiver for receiver in range(4)]
    assert all(found.time_ns > 0 for found in links(place / "o.h5").values())
    assert "# Checked              : 100 % of the timed bytes" in result.out
