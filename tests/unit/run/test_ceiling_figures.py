"""The lines of the ceilings: which figure stands where, over rows and times made up."""

from __future__ import annotations

import dataclasses
from typing import Any

import invented
import numpy as np
import pytest

from tcpx_mpi import _native
from tcpx_mpi.patterns import load
from tcpx_mpi.records import Row, SideKey
from tcpx_mpi.run.ceiling import by_streams, copy_lines, raw_lines

MIB = 1 << 20


def row(**changes: Any) -> Row:
    """Three blocks of 8000 bytes in 1, 2 and 4 us."""
    found = invented.row(0, world=1, size_bytes=8000, iterations=3, **changes)
    found.samples["iteration"] = np.array([[2000, 1000, 4000]])
    found.batches = np.array([1, 1, 1])
    return found


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("pair", "raw TCP stream 7.81 KiB 4 4.00 GB/s (2.00 - 8.00)"),
        ("pingpong", "raw TCP round trip / 2 7.81 KiB 4 1.00 us (2.00 - 0.50)"),
    ],
)
def test_a_line_has_the_median_between_the_slowest_and_the_fastest(pattern: str, line: str) -> None:
    (found,) = raw_lines(load(pattern), {4: row()})
    assert " ".join(found.split()) == line


def test_what_nobody_checked_is_told_apart() -> None:
    (line,) = raw_lines(load("pair"), {1: row(checked=np.array([False]))})
    assert line.startswith("  raw TCP, same buffer ")


def test_rows_beside_each_other_go_by_their_streams() -> None:
    whole = row()
    two, four = row(), row()
    whole.sides = {SideKey("raw_4"): four, SideKey("raw_2"): two}  # in no order
    infos = [
        dataclasses.replace(invented.baseline(name), streams=streams)
        for name, streams in (("raw", 1), ("raw_2", 2), ("raw_4", 4))
    ]
    assert by_streams(whole, infos) == {1: whole, 2: two, 4: four}


def test_copies_are_timed_in_and_out_of_the_cache_once_it_is_warm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = []

    def time_copies(size: int, footprint: int, rounds: int) -> Any:
        asked.append((size // MIB, footprint // MIB))
        assert rounds * size >= 2 * footprint  # all of it before what counts, and in it
        warm_up, counted = rounds // 2, rounds - rounds // 2
        return size * np.append(np.full(warm_up, 99.0), np.linspace(1, 3, counted))

    monkeypatch.setattr(_native, "time_copies", time_copies)
    lines = copy_lines(100 * MIB)
    assert asked == [(1, 1), (1, 400), (64, 64), (64, 400)]
    assert all(line.endswith(" 0.50 GB/s (0.34 - 0.91)") for line in lines)
    copy_lines(MIB)
    assert asked[4:] == [(1, 1), (1, 256), (64, 64), (64, 256)]
