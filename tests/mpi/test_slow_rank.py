"""A rank that is slow on purpose is named by a tournament and by a mesh, live and from a file."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from jobs import Result, run, tcpx_mpi

from tcpx_mpi.patterns.pairs import pairs_of_text
from tcpx_mpi.records import read_run
from tcpx_mpi.report.suspects import ways_by_size
from tcpx_mpi.suspects import Measured, Way

pytestmark = pytest.mark.multirank

SLOW_NS = 50e6
SLOWED = {
    "SOFTTCPX_TRAP_SLOW_US": "50000",
    "SOFTTCPX_TRAP_RANK": "2",
    "SOFTTCPX_TRAP_SIDE": "recv",
}
FILES = ("--ranks", "4", "--plugin", "softtcpx", "--hdf5", "o.h5", "--spool", ".")
PAIRS = ("run", "pairs", "--all", "--sizes", "1M", "-n", "16", "--check-memory", "64M",
         *FILES)  # fmt: skip
MESH = ("run", "mesh", "--sizes", "2M", "-n", "32", "--check-memory", "64M", *FILES)


def who_is_slow(text: str) -> list[str]:
    """The lines about whoever is named, or is not after all."""
    return [line for line in text.splitlines() if re.match("# (Slow|Not confirmed) +:", line)]


def ways(path: Path) -> dict[Way, Measured]:
    """Of the tournament, or of the mesh."""
    found = read_run(str(path))
    rows = [row for row in found.rows if not row.pairs]
    (only,) = ways_by_size(found.header, rows).values()
    return only


def run_that_names(name: str, command: Sequence[str], place: Path) -> Result:
    """A run with a slowed rank that names it and nothing else, live and from its file: the best of
    three, for a core that others take away makes ranks slow that nobody slowed.
    """
    for _ in range(3):
        (place / "o.h5").unlink(missing_ok=True)
        result = run(tcpx_mpi(*command), place, SLOWED)
        assert result.code == 0, result.text
        if len(lines := who_is_slow(result.out)) == 1 and re.fullmatch(name, lines[0]):
            break
    assert len(lines) == 1, result.text
    assert re.fullmatch(name, lines[0]), result.text
    assert who_is_slow(run(tcpx_mpi("report", "o.h5"), place).out) == lines
    return result


def test_a_slowed_rank_is_named_by_a_tournament_and_again_by_those_it_meets(place: Path) -> None:
    result = run_that_names(
        r"# Slow +: rank 2 on \S+ \(device 2, NIC lo\), receiving: .* us of the good ones at "
        r"1 MiB, in 3 of 3 ways \(noise .*%\); again \d+(\.\d+)? x with ranks \d, \d",
        PAIRS,
        place,
    )
    times = {way: found.time_ns for way, found in ways(place / "o.h5").items()}
    assert len(times) == 12
    # A batch has two iterations, of which the first one comes long after the one before.
    assert min(times[other, 2] for other in (0, 1, 3)) > 0.4 * SLOW_NS
    rows = read_run(str(place / "o.h5")).rows
    again = [row for row in rows if row.pairs]
    assert len(rows) - len(again) == 6
    assert len(again) == 4, "two others, both ways"
    assert len(result.rows) == len(rows)
    for row in again:
        assert row.checked.all()
        pairs = pairs_of_text(row.pairs)
        assert sorted(rank for pair in pairs for rank in pair) == list(range(4))
        receivers = sorted(receiver for _, receiver in pairs)
        assert np.flatnonzero(row.receives).tolist() == receivers
        if 2 in receivers:
            assert row.samples["iteration"][2].mean() > 0.4 * SLOW_NS


def test_a_slowed_rank_is_named_by_a_mesh(place: Path) -> None:
    run_that_names(
        r"# Slow +: rank 2 on \S+ \(device 2, NIC lo\), both ways: .* us of the good ones at "
        r"2 MiB, in 3 of 3 ways \(noise .*%\)",
        MESH,
        place,
    )
    times = {way: found.time_ns for way, found in ways(place / "o.h5").items()}
    assert set(times) == set(itertools.combinations(range(4), 2))
    assert min(time for way, time in times.items() if 2 in way) > 0.4 * SLOW_NS


def test_every_way_is_in_the_matrix_and_every_byte_right(place: Path) -> None:
    result = run(tcpx_mpi(*PAIRS), place)
    assert result.code == 0, result.text
    lines = result.out.splitlines()
    start = lines.index("# 1 MiB, GB/s: a row sends, a column receives")
    matrix = [line.split()[2:] for line in lines[start + 2 : start + 6]]
    for sender, cells in enumerate(matrix):
        assert [cell == "-" for cell in cells] == [sender == receiver for receiver in range(4)]
    assert all(found.time_ns > 0 for found in ways(place / "o.h5").values())
    assert "# Checked              : 100 % of the timed bytes" in result.out
