"""Comparing launches: exact against enumeration, right as often as stated by simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tcpx_mpi.stats import compare_launches, spread_of, variation
from tcpx_mpi.stats.launches import cumulative_mann_whitney, cumulative_signed_rank


@pytest.mark.parametrize(("n", "m"), [(1, 1), (2, 3), (4, 4), (5, 3)])
def test_mann_whitney_is_what_enumerating_all_orders_gives(n: int, m: int) -> None:
    counts = [0] * (n * m + 1)
    for places in itertools.combinations(range(n + m), n):
        counts[sum(place - i for i, place in enumerate(places))] += 1
    expected = np.cumsum(counts) / math.comb(n + m, n)
    assert cumulative_mann_whitney(n, m) == pytest.approx(expected)


def test_mann_whitney_has_the_critical_value_of_the_tables() -> None:
    below = cumulative_mann_whitney(10, 10)
    # Two-sided 5 %, n = m = 10: U = 23 rejects, 24 does not.
    assert 2 * below[23] <= 0.05 < 2 * below[24]


@pytest.mark.parametrize("n", [1, 4, 7])
def test_signed_ranks_are_what_enumerating_all_signs_gives(n: int) -> None:
    counts = [0] * (n * (n + 1) // 2 + 1)
    for signs in itertools.product((0, 1), repeat=n):
        counts[sum(rank for rank, sign in enumerate(signs, 1) if sign)] += 1
    assert cumulative_signed_rank(n) == pytest.approx(np.cumsum(counts) / 2**n)


def test_signed_ranks_have_the_critical_value_of_the_tables() -> None:
    below = cumulative_signed_rank(10)
    assert 2 * below[8] <= 0.05 < 2 * below[9]


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize("slower", [1.0, 1.03])
def test_the_interval_of_the_ratio_holds_the_truth_in_95_percent(
    paired: bool, slower: float
) -> None:
    random = np.random.default_rng([7, paired])
    held, trials = 0, 1500
    for _ in range(trials):
        # Launches of the same thing vary by 2 %, log-normally.
        a = 100 * np.exp(random.normal(0, 0.02, 10))
        b = 100 * slower * np.exp(random.normal(0, 0.02, 10))
        shift = compare_launches(a, b, 0.95, paired)
        assert shift.test == ("pairs" if paired else "ranks")
        held += shift.ratio.low <= 1 / slower <= shift.ratio.high
    assert held / trials == pytest.approx(0.955, abs=0.02)


def test_a_drift_of_the_machine_does_not_touch_pairs() -> None:
    random = np.random.default_rng(8)
    found = {False: 0, True: 0}
    for _ in range(200):
        drift = np.exp(np.linspace(0, 0.2, 10))
        a = drift * np.exp(random.normal(0, 0.01, 10))
        b = 1.03 * drift * np.exp(random.normal(0, 0.01, 10))
        for paired in found:
            found[paired] += compare_launches(a, b, 0.95, paired).ratio.high < 1
    assert found[True] > 180
    assert found[False] < 20


def test_the_p_value_and_the_interval_say_the_same() -> None:
    random = np.random.default_rng(9)
    for n, m in ((4, 4), (5, 9), (10, 10)):
        for _ in range(200):
            a, b = np.exp(random.normal(0, 1, n)), np.exp(random.normal(0.8, 1, m))
            shift = compare_launches(a, b, 0.95)
            outside = not shift.ratio.low <= 1 <= shift.ratio.high
            assert outside == (shift.p_value <= 0.05)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 10), (3, 3), (2, 5)])
def test_too_few_launches_give_a_ratio_and_no_verdict(n: int, m: int) -> None:
    shift = compare_launches(np.full(n, 2.0), np.full(m, 1.0), 0.95)
    assert shift.ratio.estimate == 2.0
    assert math.isnan(shift.ratio.low)
    assert (math.isnan(shift.p_value), shift.test) == (True, "")


def test_five_pairs_are_too_few_for_signs_but_not_for_ranks() -> None:
    a, b = np.arange(10.0, 15.0), np.arange(20.0, 25.0)
    assert compare_launches(a, b, 0.95, paired=True).test == "ranks"
    assert compare_launches(np.append(a, 15), np.append(b, 25), 0.95, paired=True).test == "pairs"


def test_constant_launches_are_the_same_or_differ_for_certain() -> None:
    same = compare_launches(np.full(10, 5.0), np.full(10, 5.0), 0.95)
    assert (same.ratio.low, same.ratio.high, same.p_value) == (1, 1, 1)
    slower = compare_launches(np.full(10, 5.0), np.full(10, 5.5), 0.95)
    assert slower.ratio.high == pytest.approx(1 / 1.1)
    assert slower.p_value < 1e-4


@pytest.mark.parametrize("bad", [math.nan, 0.0, -1.0])
def test_an_unknown_time_is_no_comparison(bad: float) -> None:
    times = np.full(10, 5.0)
    shift = compare_launches(times, np.append(times[1:], bad), 0.95)
    assert math.isnan(shift.ratio.estimate)
    assert math.isnan(shift.p_value)
    assert math.isnan(compare_launches(np.empty(0), times, 0.95).ratio.estimate)


#: How launches vary, and how often two single ones then differ beyond the spread of ten others.
STATED = {"normal": 0.01, "uniform": 0.003, "exponential": 0.042, "log-normal": 0.065}


@pytest.mark.parametrize("kind", STATED)
def test_single_launches_are_called_different_as_seldom_as_stated(kind: str) -> None:
    random = np.random.default_rng(10)
    draw = {
        "normal": random.standard_normal,
        "log-normal": lambda count: np.exp(random.normal(0, 1, count)),
        "uniform": random.random,
        "exponential": lambda count: random.exponential(1, count),
    }[kind]
    outside, trials = 0, 4000
    for _ in range(trials):
        times = 1 + 0.01 * draw(12)
        ratio = times[10] / times[11]
        outside += max(ratio, 1 / ratio) > spread_of(times[:10])
    assert outside / trials == pytest.approx(STATED[kind], abs=0.01)
    assert math.isnan(spread_of(times[:9]))


def test_the_spread_within_and_between_launches_comes_apart() -> None:
    random = np.random.default_rng(11)
    blocks = [
        100 * (1 + launch) + random.normal(0, 1, 25) for launch in random.normal(0, 0.04, 200)
    ]
    found = variation(blocks)
    assert found.within == pytest.approx(0.01, rel=0.1)
    assert found.between == pytest.approx(0.04, rel=0.2)
    alike = variation([100 + random.normal(0, 1, 25) for _ in range(200)])
    assert alike.between < 0.002


def test_a_stretch_without_a_cpu_does_not_spread_all_launches() -> None:
    random = np.random.default_rng(12)
    blocks = [100 + random.normal(0, 1, 25) for _ in range(10)]
    before = variation(blocks)
    blocks[3][7] = 1e6
    after = variation(blocks)
    assert after.within == pytest.approx(before.within, rel=0.2)
    assert after.between == pytest.approx(before.between, abs=0.003)


def test_few_launches_say_nothing_of_the_spread_between() -> None:
    assert math.isnan(variation([np.array([1.0, 2.0])]).between)
    assert math.isnan(variation([np.array([1.0, 2.0])] * 2).between)
    assert not math.isnan(variation([np.array([1.0, 2.0])]).within)
    assert math.isnan(variation([np.array([1.0]), np.array([2.0])]).within)
    alone = variation([np.array([1.0]), np.array([2.0]), np.array([3.0])])
    assert math.isnan(alone.within)
    assert alone.between == pytest.approx(1.4826 / 2)
    assert math.isnan(variation([]).within)
    assert math.isnan(variation([np.array([1.0, math.nan]), np.array([1.0, 2.0])]).within)
