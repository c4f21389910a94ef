"""Intervals of a median: simulated coverage on invented data with known answers."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tcpx_mpi.stats import block_means, independent_count, independent_means, median_interval
from tcpx_mpi.stats.interval import _place

Floats = NDArray[np.float64]
TRIALS = 3000


def lognormal(random: np.random.Generator, size: tuple[int, int]) -> Floats:
    return np.exp(random.normal(0, 0.5, size))


def bimodal(random: np.random.Generator, size: tuple[int, int]) -> Floats:
    # Two thirds fast, one third slow and wide: the median is the fast mode's third quartile.
    slow = random.random(size) < 1 / 3
    return np.where(slow, random.normal(50, 5, size), random.normal(10, 1, size))


def one_outlier(random: np.random.Generator, size: tuple[int, int]) -> Floats:
    values = random.normal(10, 1, size)
    values[:, 0] = 1e6
    return values


def two_valued(random: np.random.Generator, size: tuple[int, int]) -> Floats:
    return np.where(random.random(size) < 0.7, 1.0, 2.0)


#: Distribution, its median.
CONTINUOUS: dict[str, tuple[Callable[..., Floats], float]] = {
    "normal": (lambda random, size: random.normal(10, 1, size), 10.0),
    "log-normal": (lognormal, 1.0),
    "bimodal": (bimodal, 10.674),
    "exponential": (lambda random, size: random.exponential(1, size), math.log(2)),
}


def coverage(values: Floats, median: float) -> float:
    found = [median_interval(row) for row in values]
    return float(np.mean([each.low <= median <= each.high for each in found]))


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("count", [6, 7, 8, 12, 25, 100, 2000])
def test_the_interval_holds_the_median_in_95_percent_of_samples(name: str, count: int) -> None:
    draw, median = CONTINUOUS[name]
    values = draw(np.random.default_rng([count, len(name)]), (TRIALS, count))
    assert coverage(values, median) == pytest.approx(0.95, abs=0.02)


@pytest.mark.parametrize("count", [25, 100])
def test_one_outlier_moves_no_interval(count: int) -> None:
    # The sample's median is that of one value more, far above: it covers nearly as well.
    values = one_outlier(np.random.default_rng(count), (TRIALS, count))
    assert coverage(values, 10.0) > 0.92
    assert max(median_interval(row).high for row in values) < 14


@pytest.mark.parametrize("count", [6, 25, 101])
def test_of_two_values_the_commoner_one_is_held(count: int) -> None:
    values = two_valued(np.random.default_rng(count), (TRIALS, count))
    assert coverage(values, 1.0) > 0.95 - 0.02


def test_a_constant_has_an_interval_without_width() -> None:
    found = median_interval(np.full(20, 7.0))
    assert (found.estimate, found.low, found.high) == (7.0, 7.0, 7.0)
    assert found.relative_half_width == 0


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_too_few_values_have_a_median_without_bounds(count: int) -> None:
    found = median_interval(np.arange(1.0, count + 1))
    assert found.estimate == (count + 1) / 2
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    assert math.isnan(found.relative_half_width)


def test_nothing_and_the_unknown_have_no_median() -> None:
    for values in (np.empty(0), np.array([1.0, math.nan, 2.0] * 10)):
        found = median_interval(values)
        assert math.isnan(found.estimate)
        assert math.isnan(found.low)


def test_the_bounds_are_the_order_statistics_of_the_tables() -> None:
    # n = 9: ranks 2 and 8 cover 96.1 % (any table of the sign test), 3 and 7 only 82.0 %.
    found = median_interval(np.arange(1.0, 10.0), confidence=1 - 2 * 10 / 512)
    assert (found.low, found.high) == pytest.approx((2.0, 8.0))


def test_the_normal_bounds_of_many_values_are_those_of_the_binomial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = _place.__wrapped__  # without its memory
    normal = place(1001, 0.95)
    monkeypatch.setattr("tcpx_mpi.stats.interval._EXACT_UP_TO", 1001)
    assert normal == pytest.approx(place(1001, 0.95), abs=0.05)


@pytest.mark.parametrize("count", [6, 7, 59, 1000, 1001, 4444])
@pytest.mark.parametrize("independent", [None, 6, 40])
@pytest.mark.usefixtures("in_one_and_in_pieces")
def test_the_bounds_are_quantiles_of_hazen(count: int, independent: int | None) -> None:
    values = np.exp(np.random.default_rng(count).normal(0, 1, count))
    worth = count if independent is None else min(independent, count)
    # The interval of 1 .. n is the places of its bounds.
    places = median_interval(np.arange(1.0, worth + 1))
    parts = (np.array([places.low, places.estimate, places.high]) - 0.5) / worth
    found = median_interval(values, independent=independent)
    expected = np.quantile(values, parts, method="hazen")
    assert [found.low, found.estimate, found.high] == pytest.approx(expected, rel=1e-12)


def test_neighbours_that_resemble_each_other_are_merged_until_they_do_not() -> None:
    random = np.random.default_rng(3)
    noise = random.normal(0, 1, 4096)
    alike = np.empty_like(noise)
    alike[0] = noise[0]
    for i in range(1, noise.size):
        alike[i] = 0.9 * alike[i - 1] + noise[i]
    assert independent_means(noise).size == noise.size
    assert independent_means(alike).size <= noise.size // 16


def test_the_interval_of_correlated_iterations_covers_only_as_many_as_are_independent() -> None:
    held = {"as if independent": 0, "their worth": 0, "blocks": 0}
    random = np.random.default_rng(4)
    for _ in range(400):
        noise = random.normal(0, 1, 1024)
        series = np.empty_like(noise)
        series[0] = noise[0] / math.sqrt(1 - 0.81)
        for i in range(1, noise.size):
            series[i] = 0.9 * series[i - 1] + noise[i]
        found = {
            "as if independent": median_interval(series),
            "their worth": median_interval(series, independent=independent_count(series)),
            "blocks": median_interval(independent_means(series)),
        }
        for name, interval in found.items():
            held[name] += interval.low <= 0 <= interval.high
    assert held["as if independent"] < 0.5 * 400
    assert held["their worth"] > 0.88 * 400
    assert held["blocks"] > 0.88 * 400


def test_blocks_are_equally_long_and_whole() -> None:
    assert block_means(np.arange(50.0), 25).tolist() == [2 * i + 0.5 for i in range(25)]
    assert block_means(np.arange(3.0), 25).tolist() == [0.0, 1.0, 2.0]
    assert block_means(np.arange(7.0), 2).tolist() == [1.0, 4.5]
    assert block_means(np.empty(0)).size == 0
