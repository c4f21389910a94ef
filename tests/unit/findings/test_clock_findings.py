"""What is said of the clocks of several nodes, by invented rows."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import invented
import pytest
from judged import about, judged

from tcpx_mpi.findings import Severity
from tcpx_mpi.findings.clock import clocks
from tcpx_mpi.records import Row, RunHeader
from tcpx_mpi.records.clock import RowClock
from tcpx_mpi.report import summarise_row
from tcpx_mpi.stats.one_way import OneWay
from tcpx_mpi.stats.open_loop import OpenLoop

DAYS = "2 clocks on one time, +-"


def header(**changes: Any) -> RunHeader:
    ranks = [invented.rank_info(rank, clock=rank // 2) for rank in range(4)]
    return invented.run_header(ranks=ranks, **changes)


def row(clock: RowClock | None = None, index: int = 0, **of_fit: Any) -> Row:
    clock = clock or invented.row_clock()
    fits = [dataclasses.replace(fit, **of_fit) for fit in clock.fits]
    return invented.row(index, clock=dataclasses.replace(clock, fits=fits))


def test_the_bound_is_in_the_footer_with_its_source_and_the_drift() -> None:
    wider = invented.row_clock(bound_ns=30_000)
    drifting = row(invented.row_clock(drift=-3.1e-6))
    assert about("Clock", judged([drifting, row(wider, 1)], header())) == [
        f"{DAYS}30 us at most, +-20 us at best (round trips), a drift of up to 3.1 ppm"
    ]


def test_one_clock_is_not_worth_a_word() -> None:
    assert about("Clock", judged([invented.row(0)])) == []


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"moved_ns": 1_500_000}, "was stepped or slewed by 1500 us beyond its drift"),
        ({"suspended_ns": 3_000_000_000}, "stood still for 3 s, its machine was suspended"),
        (
            {"contradicted_ns": 70_000},
            "is not where what keeps it says, by 70 us beyond all bounds, so the round trips count",
        ),
    ],
)
def test_what_breaks_a_clock_is_said_of_its_row_and_a_doubt(
    broken: dict[str, int], said: str
) -> None:
    findings = judged([row(), row(index=1, **broken)], header())
    assert about("Clock", findings)[1:] == [f"2 KiB: that of host1 {said}: +-20 us"]
    (doubt,) = [each for each in findings if each.title == "Clock" and each.evidence]
    assert doubt.severity == Severity.DOUBTFUL


def test_iterations_shorter_than_the_bound_do_not_start_together() -> None:
    # Iterations last 1.3 us.
    assert len(about("Clock", judged([row()], header()))) == 1
    found = about("Clock", judged([row()], header(mode="synchronised")))
    assert found[1:] == [
        "iterations start together no better than they last at 1 KiB (+-20 us of 1.31 us)"
    ]
    sharp = row(invented.row_clock(bound_ns=500))
    assert len(about("Clock", judged([sharp], header(mode="synchronised")))) == 1


def test_a_direction_and_an_open_loop_that_are_less_than_the_bound_are_doubted() -> None:
    clock = invented.row_clock(bound_ns=20_000)

    def doubts(one_way: OneWay | None = None, p50_ns: float | None = None) -> list[str]:
        found = row(clock)
        summary = summarise_row(header(), found)
        loop = None
        if p50_ns is not None:
            spread = dataclasses.replace(summary.per_iteration, p50=p50_ns)
            loop = OpenLoop(5.0, 5.0, spread, 20_000)
        summary = dataclasses.replace(summary, one_way=one_way, open_loop=loop)
        return [each.text for each in clocks(header(), [found], [summary])][1:]

    direction = "a direction is known no better than it lasts at 1 KiB (+-20 us of 19 us)"
    assert doubts(OneWay(90_000, 19_000, 20_000)) == [direction]
    assert doubts(OneWay(19_000, math.nan, 20_000)) == [direction]
    assert doubts(OneWay(21_000, 22_000, 20_000)) == []
    start = "the time from the intended start is known no better than it lasts"
    assert doubts(p50_ns=5_000) == [f"{start} at 1 KiB (+-20 us of 5 us)"]
    assert doubts(p50_ns=21_000) == doubts(p50_ns=math.nan) == doubts() == []
