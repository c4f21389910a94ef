"""There and back, each by itself, by clocks that are days apart."""

from __future__ import annotations

import dataclasses
import math

import invented
import numpy as np
import pytest

from tcpx_mpi.records import Plan, Row, RunHeader
from tcpx_mpi.report import line_of, summarise_row, title_lines
from tcpx_mpi.stats.one_way import OneWay

DAYS_NS = 5 * 10**14
THERE_NS, BACK_NS = 30_000, 70_000


def header(pattern: str, clocks: tuple[int, int] = (0, 1), world: int = 2) -> RunHeader:
    ranks = [invented.rank_info(r, clock=clocks[r * 2 // world]) for r in range(world)]
    plan = Plan(sizes=(1024,), one_way=True)
    return invented.run_header(world, plan, ranks=ranks, pattern=pattern, time_divisor=2)


def there_and_back(world: int = 2, ahead_ns: int = DAYS_NS, there_ns: int = THERE_NS) -> Row:
    """The first half begins; the last pair is as told, the others are faster."""
    row = invented.row(0, world=world, clock=invented.row_clock())
    start = 10**12 + 200_000 * np.arange(row.iterations)
    for rank in range(world // 2):
        there = there_ns // (world // 2 - rank)
        other = rank + world // 2
        row.samples["start"][rank] = start
        row.samples["receive"][rank] = there + BACK_NS
        # It is there before the answering rank is through with the iteration before.
        row.samples["start"][other] = start + ahead_ns - 1_000
        row.samples["receive"][other] = there + 1_000
    return row


def test_each_direction_has_its_own_time_and_the_bound_of_both_clocks() -> None:
    summary = summarise_row(header("pingpong"), there_and_back())
    assert summary.one_way == OneWay(THERE_NS, BACK_NS, 20_000)
    titles = title_lines(header("pingpong"))
    assert "one way" in titles[1]
    assert titles[2].split()[-3:] == ["there", "back", "+-"]
    assert line_of(header("pingpong"), summary, None).split()[-3:] == ["30.00", "70.00", "20.00"]


def test_the_slowest_pair_counts() -> None:
    found = summarise_row(header("pingpong", world=4), there_and_back(4)).one_way
    assert found == OneWay(THERE_NS, BACK_NS, 20_000)


def test_one_direction_has_no_answer() -> None:
    row = dataclasses.replace(there_and_back(), receives=np.array([False, True]))
    found = summarise_row(header("pair"), row).one_way
    assert found is not None
    assert found.there_ns == THERE_NS
    assert math.isnan(found.back_ns)


def test_ranks_of_one_clock_have_no_bound() -> None:
    row = dataclasses.replace(there_and_back(ahead_ns=0), clock=None)
    found = summarise_row(header("pingpong", (0, 0)), row).one_way
    assert found == OneWay(THERE_NS, BACK_NS, 0)


@pytest.mark.parametrize("pattern", ["pingpong", "pair"])
def test_without_a_common_time_there_is_no_figure(pattern: str) -> None:
    receives = np.array([pattern == "pingpong", True])
    row = dataclasses.replace(there_and_back(), clock=None, receives=receives)
    told = header(pattern)
    summary = summarise_row(told, row)
    assert summary.one_way is None
    assert line_of(told, summary, None).split()[-3:] == ["n/a"] * 3
