"""Limits out of launches: false alarms as rare as asked, and none out of what is not sound."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable

import numpy as np
import pytest
from gates_by_hand import (
    ROW_BREAKS,
    change_header,
    end_early,
    in_two_cycles,
    lose_a_rank,
    run_of,
)

from tcpx_mpi.errors import UsageError
from tcpx_mpi.gates import calibrate, judge
from tcpx_mpi.gates.calibrate import _down, _up, _worst_expected
from tcpx_mpi.gates.figures import figures_of
from tcpx_mpi.records import Plan, Run


def launches(count: int, seed: int = 1, spread: float = 0.03) -> list[Run]:
    """Launches whose times differ as a whole by a factor that is log-normal."""
    random = np.random.default_rng(seed)
    runs = []
    for number in range(count):
        run = run_of(rows=2)
        run.header.run_id = f"{seed}-{number}"
        for row in run.rows:
            factor = math.exp(spread * random.standard_normal())
            row.samples["iteration"][:] = (row.samples["iteration"] * factor).astype(np.int64)
        runs.append(run)
    return runs


def test_a_calibrated_gate_passes_its_launches_and_fails_a_slow_one() -> None:
    runs = launches(8)
    made = calibrate(runs, 0.01)
    bounds = [(limit.size_bytes, limit.bound) for limit in made.gate.limits]
    assert bounds == [
        (size, bound) for size in (1024, 2048) for bound in ("busbw_min", "node_spread_max")
    ]
    assert all(judge(made.gate, run).passed for run in runs)
    slow = launches(1, seed=2)[0]
    slow.rows[1].samples["iteration"][:] *= 2
    assert not judge(made.gate, slow).passed
    assert "8 or more launches" in made.gate.provenance
    assert "0.01 false alarms" in made.gate.provenance
    assert any("0 of 8 launches fail" in text for text in made.comments)


def test_a_chance_that_is_none_in_doubles_is_refused() -> None:
    with pytest.raises(UsageError, match="too small to be told from 0"):
        calibrate(launches(6), 1e-17)


def test_false_alarms_are_as_rare_as_was_asked() -> None:
    """20,000 times: a limit of 6 log-normal launches for 5 % false alarms, and a seventh one."""
    random = np.random.default_rng(7)
    trials, alarms = 20_000, 0
    times = np.exp(0.05 * random.standard_normal((trials, 7)))
    for one in times:
        alarms += one[6] > _worst_expected(tuple(one[:6]), 0.05)
    # 0.05 but for the rule that no launch seen is beyond it; 4 standard errors are 0.006.
    assert 0.03 < alarms / trials < 0.056


def test_a_limit_that_allows_much_more_than_was_seen_is_called_loose() -> None:
    assert not any("Loose" in comment for comment in calibrate(launches(8), 0.01).comments)
    runs = launches(5)
    runs[2].rows[1].samples["iteration"] *= 3
    (loose,) = (text for text in calibrate(runs, 0.01).comments if "Loose" in text)
    assert re.match(
        r"Loose: ring, host, 2 KiB, busbw may be \d\d x worse than in the median launch:", loose
    )


def test_equal_launches_make_a_limit_where_they_are() -> None:
    runs = launches(5, spread=0.0)
    for run in runs:
        change_header(busbw_factor=0.75)(run)
    made = calibrate(runs, 0.01)
    busbw = figures_of(runs[0], runs[0].rows[0]).busbw
    assert made.gate.limits[0].value == pytest.approx(busbw, rel=1e-3)
    assert made.gate.limits[0].value <= busbw
    assert (_down(1234.9), _up(1234.1), _up(0.12341)) == (1234, 1235, 0.1235)


def test_calibration_refuses_what_would_make_a_gate_of_nothing() -> None:
    with pytest.raises(UsageError, match="5 or more"):
        calibrate(launches(4), 0.01)
    same = launches(5)
    for run in same:
        run.header.run_id = "one"
    with pytest.raises(UsageError, match="has 1 launches"):
        calibrate(same, 0.01)
    runs = launches(6)
    change_header(plugin_sha256="another")(runs[5])
    with pytest.raises(UsageError, match="plugin_sha256"):
        calibrate(runs, 0.01)
    with pytest.raises(UsageError, match="below"):
        calibrate(launches(6), 0.7)


@pytest.mark.parametrize(
    ("spoil", "part"),
    [
        *((spoil, f"2 KiB: {why}; calibrate from") for spoil, why in ROW_BREAKS.items()),
        (end_early, "is partial: the end of the run"),
        (lose_a_rank, "is partial: samples of row 1"),
        (change_header(unpack="none"), "no bandwidth of its own samples"),
        (change_header(mode="averages"), "no bandwidth of its own samples"),
        (change_header(plugin_name="another"), "plugin is another"),
        (change_header(plugin_sha256="another"), "plugin_sha256 is another"),
        (change_header(mode="synchronised"), "mode is synchronised"),
        (change_header(plan=Plan((1024, 2048), chunk_bytes=1)), "chunk_bytes is 1"),
        (change_header(plan=Plan((1024, 2048), channels=9)), "channels is 9"),
    ],
)
def test_a_launch_that_would_not_pass_or_is_unlike_is_no_part_of_a_calibration(
    spoil: Callable[[Run], None], part: str
) -> None:
    runs = launches(6)
    spoil(runs[3])
    with pytest.raises(UsageError, match=re.escape(part)):
        calibrate(runs, 0.01)


def test_a_limit_shares_the_false_alarms_with_the_others_and_is_never_below_what_was_seen() -> None:
    runs = launches(8)
    times = tuple(figures_of(run, run.rows[0]).time_ns for run in runs)
    expected = runs[0].rows[0].size_bytes / _worst_expected(times, 0.01 / 4)
    assert calibrate(runs, 0.01).gate.limits[0].value == pytest.approx(expected, rel=1e-3)
    # Twenty say that one as slow as the slowest of them is seldom; it was seen all the same.
    assert _worst_expected((100.0,) * 19 + (200.0,), 0.05) == 200


def test_a_launch_counts_by_its_slowest_cycle() -> None:
    runs = [in_two_cycles(3) for _ in range(5)]
    for number, run in enumerate(runs):
        run.header.run_id = str(number)
        run.rows.reverse()
    limit = calibrate(runs, 0.01).gate.limits[0]
    assert limit.value == pytest.approx(figures_of(runs[0], runs[0].rows[0]).busbw, rel=1e-3)


def test_a_limit_of_a_time_is_rounded_up_so_that_its_launches_meet_it() -> None:
    runs = launches(5, spread=0.0)
    for run in runs:
        run.rows[0].size_bytes = 0
        run.header.plan = dataclasses.replace(run.header.plan, sizes=(0, 2048))
    made = calibrate(runs, 0.01)
    assert made.gate.limits[0].bound == "time_us_max"
    assert made.gate.limits[0].value > figures_of(runs[0], runs[0].rows[0]).time_ns / 1e3
    assert all(judge(made.gate, run).passed for run in runs)


def test_launches_that_fail_a_gate_of_the_others_are_counted() -> None:
    runs = launches(12, spread=0.001)
    runs[7].rows[1].samples["iteration"] *= 2
    assert any("1 of 12 launches fail a gate made" in x for x in calibrate(runs, 0.01).comments)


def test_one_file_of_several_launches_calibrates_as_their_files_do() -> None:
    apart = calibrate(launches(8), 0.01)
    first, *others = launches(8)
    first.launches, first.launches_planned = others, 8
    assert calibrate([first], 0.01) == apart
