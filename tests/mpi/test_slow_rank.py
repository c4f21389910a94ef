"""A rank that is slow on purpose is named by a tournament, live and from its file."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import run, tcpx_mpi

from tcpx_mpi.records import read_run
from tcpx_mpi.report.suspects import ways_by_size
from tcpx_mpi.suspects import Measured, Way

pytestmark = pytest.mark.multirank

PAIRS = ("run", "pairs", "--all", "--ranks", "4", "--plugin", "softtcpx", "--sizes", "4K",
         "-n", "16", "--hdf5", "o.h5", "--spool", ".")  # fmt: skip


def ways(path: Path) -> dict[Way, Measured]:
    found = read_run(str(path))
    (only,) = ways_by_size(found.header, found.rows).values()
    return only


def slow_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("# Slow   ")]


def test_a_rank_slowed_by_its_plugin_is_named_or_nobody(place: Path) -> None:
    """50 ms a message. Where ranks share cores with other work, that may be within the noise; then
    nobody is named, but never anybody else. `make evidence` asks for the name, where it is quiet.
    """
    slowed = {"SOFTTCPX_TRAP_SLOW_US": "50000", "SOFTTCPX_TRAP_RANK": "2"}
    result = run(tcpx_mpi(*PAIRS), place, slowed)
    assert result.code == 0, result.text
    assert len(list(result.rows)) == 6
    (line,) = slow_lines(result.out)
    assert line.split(" : ")[1].startswith(("rank 2 on ", "nobody: ")), line
    times = {way: found.time_ns for way, found in ways(place / "o.h5").items()}
    of_two = {way for way in times if 2 in way}
    assert min(times[way] for way in of_two) > 15e6
    assert len(of_two) == 6
    later = run(tcpx_mpi("report", "o.h5"), place)
    assert slow_lines(later.out) == [line]


def test_every_way_is_in_the_matrix_and_every_byte_right(place: Path) -> None:
    result = run(tcpx_mpi(*PAIRS), place)
    assert result.code == 0, result.text
    lines = result.out.splitlines()
    start = lines.index("# 4 KiB, GB/s: a row sends, a column receives")
    matrix = [line.split()[2:] for line in lines[start + 2 : start + 6]]
    for sender, cells in enumerate(matrix):
        assert [cell == "-" for cell in cells] == [sender == receiver for receiver in range(4)]
    assert all(found.time_ns > 0 for found in ways(place / "o.h5").values())
    assert "# Checked              : 100 % of the timed bytes" in result.out
