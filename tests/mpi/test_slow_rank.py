"""A rank that is slow on purpose is named by a tournament, live and from its file."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import run, tcpx_mpi

pytestmark = pytest.mark.multirank

PAIRS = ("run", "pairs", "--all", "--ranks", "4", "--plugin", "softtcpx", "--sizes", "4K",
         "-n", "16", "--hdf5", "o.h5", "--spool", ".")  # fmt: skip


def slow_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("# Slow   ")]


def test_a_rank_slowed_by_its_plugin_is_named_and_nobody_else(place: Path) -> None:
    """50 ms a message: far above what this machine's other work does to the others."""
    slowed = {"SOFTTCPX_TRAP_SLOW_US": "50000", "SOFTTCPX_TRAP_RANK": "2"}
    result = run(tcpx_mpi(*PAIRS), place, slowed)
    assert result.code == 0, result.text
    (line,) = slow_lines(result.out)
    assert line.startswith("# Slow                 : rank 2 on "), line
    assert "sending and receiving" in line
    assert len(list(result.rows)) == 6
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
        assert all(float(cell) > 0 for cell in cells if cell != "-")
    assert "# Checked              : 100 % of the timed bytes" in result.out
