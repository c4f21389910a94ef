"""Latency from the intended start: what waited is in it, and a loop that falls behind has none."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import invented
import numpy as np
import pytest
from judged import about, judged

from tcpx_mpi.records import Row, RunHeader
from tcpx_mpi.report import line_of, summarise_row, title_lines
from tcpx_mpi.stats.open_loop import OpenLoop

DAYS_NS = 5 * 10**14
START_NS = 10**12
#: 10,000 a second.
INTERVAL_NS = 100_000
BATCHES = np.array([200, 200], np.int64)


def header(pattern: str, clocks: tuple[int, int] = (0, 1)) -> RunHeader:
    ranks = [invented.rank_info(rank, clock=clocks[rank]) for rank in range(2)]
    return invented.run_header(2, ranks=ranks, pattern=pattern, mode="open loop")


def row(took_ns: Any, ahead_ns: int = DAYS_NS, **changes: Any) -> Row:
    """Rank 0 begins by the clock, and rank 1 has all of an iteration so long after it was to."""
    iterations = int(BATCHES.sum())
    begun = START_NS + np.array([0, 10**9])
    intended = np.concatenate([at + INTERVAL_NS * np.arange(200) for at in begun])
    made = invented.row(
        0, world=2, iterations=iterations, clock=invented.row_clock(), rate_per_s=1e4, **changes
    )
    made.batches = BATCHES
    made.batch_start = np.array([begun, begun + ahead_ns])
    made.late = np.zeros((2, 2), np.bool_)
    ended = intended + np.broadcast_to(np.asarray(took_ns), iterations)
    for rank, ahead in enumerate((0, ahead_ns)):
        made.samples["start"][rank] = intended + ahead
        made.samples["iteration"][rank] = ended - intended
    made.receives = np.array([False, True])
    return made


def loop_of(pattern: str, made: Row, clocks: tuple[int, int] = (0, 1)) -> OpenLoop:
    found = summarise_row(header(pattern, clocks), made).open_loop
    assert found is not None
    return found


@pytest.mark.parametrize("pattern", ["pair", "pingpong", "fan_in"])
def test_the_latency_is_that_from_the_intended_start(pattern: str) -> None:
    made = row(40_000)
    if pattern == "pingpong":
        made.receives = np.array([True, True])
    found = loop_of(pattern, made)
    assert (found.latency.p50, found.latency.p99) == (40_000, 40_000)
    assert math.isnan(found.latency.p99_9)  # of 400 iterations
    # A round trip begins and ends on one clock.
    assert found.bound_ns == (0 if pattern == "pingpong" else 20_000)
    summary = summarise_row(header(pattern), made)
    titles = title_lines(header(pattern))
    assert "from the intended start" in titles[1]
    names = ["rate", "offered", "achieved", "o_p50", "o_p99", "o_p99_9", "o_+-"]
    assert titles[2].split()[-7:] == names
    line = line_of(header(pattern), summary, None).split()[-7:]
    bound = "0.00" if pattern == "pingpong" else "20.00"
    assert line == ["10000", "10.24", "10000", "40.00", "40.00", "n/a", bound]


def test_what_one_iteration_held_up_is_in_the_latency_of_those_behind_it() -> None:
    """A stop of 5 ms: 50 iterations were to begin within it, and each of them has waited."""
    took = np.full(400, 40_000)
    took[100:150] = 5_000_000 - INTERVAL_NS * np.arange(50)
    made = row(took)
    # As a closed loop sees it: one slow iteration, the others begin late and are as fast as ever.
    closed = made.samples["iteration"][1].copy()
    closed[101:150] = 40_000
    assert np.percentile(closed, 99) == 40_000
    found = loop_of("pair", made)
    assert found.keeps_up
    assert found.achieved == 10_000
    assert found.latency.p99 == 4_600_000
    assert found.latency.p50 == 40_000


def test_a_loop_that_falls_behind_has_no_latency_and_says_why() -> None:
    """Each iteration takes 120 us, so the last of 200 has waited for 4 ms."""
    behind = row(40_000 + 20_000 * np.tile(np.arange(200), 2))
    found = loop_of("pair", behind)
    assert not found.keeps_up
    # The last of each 200 came after 19.9 + 4.02 ms.
    assert found.achieved == pytest.approx(200 / 23.92e-3)
    assert math.isnan(found.latency.p50)
    (text,) = about("Rate", judged([behind], header("pair")))
    assert text == (
        "the ranks do not keep up with --rate, and what waits would be as long as the row, so "
        f"there is no latency at 1 KiB ({found.achieved:.0f} of 10000 a second): use a lower "
        "rate, or smaller sizes"
    )
    assert about("Rate", judged([row(40_000)], header("pair"))) == []


def test_nodes_without_a_common_time_have_none() -> None:
    apart = dataclasses.replace(row(40_000), clock=None)
    assert summarise_row(header("pair"), apart).open_loop is None
    one_clock = dataclasses.replace(row(40_000, ahead_ns=0), clock=None)
    assert loop_of("pair", one_clock, (0, 0)).latency.p50 == 40_000
