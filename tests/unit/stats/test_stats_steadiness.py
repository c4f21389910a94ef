"""Warm-up, drift and steps: found where they were put, and not in steady series."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tcpx_mpi.stats import find_change
from tcpx_mpi.stats.steadiness import warm_up


def noise(seed: int, count: int = 1000) -> np.ndarray:
    return 100 * np.exp(np.random.default_rng(seed).normal(0, 0.05, count))


@pytest.mark.parametrize("count", [200, 1000])
@pytest.mark.parametrize("kind", ["normal", "log-normal", "correlated", "bimodal", "two-valued"])
def test_a_steady_row_is_called_unsteady_at_most_once_in_100(kind: str, count: int) -> None:
    random = np.random.default_rng([count, len(kind)])

    def series() -> np.ndarray:
        if kind == "normal":
            return random.normal(100, 10, count)
        if kind == "log-normal":
            return np.exp(random.normal(0, 1, count))
        if kind == "bimodal":
            return np.where(random.random(count) < 0.3, 200.0, 100.0) + random.normal(0, 1, count)
        if kind == "two-valued":
            return np.where(random.random(count) < 0.5, 200.0, 100.0)
        steps = random.normal(0, 1, count)
        for i in range(1, count):
            steps[i] += 0.5 * steps[i - 1]
        return 100 + 5 * steps

    found = sum(find_change(series()) is not None for _ in range(300))
    assert found <= 3


@pytest.mark.parametrize("head", [20, 100, 300])
def test_a_slow_beginning_is_a_warm_up_of_that_length(head: int) -> None:
    for seed in range(20):
        times = noise(seed)
        times[:head] *= 1.5
        found = find_change(times)
        assert found is not None
        assert (found.kind, found.at) == ("warm-up", pytest.approx(head, rel=0.25, abs=10))
        assert found.relative == pytest.approx(-1 / 3, abs=0.03)


def test_a_short_head_is_enough_where_all_of_it_is_slower() -> None:
    """Ten of 200: 5.3 standard deviations of their sum of ranks."""
    times = np.append(np.full(10, 200.0), noise(1, 190))
    assert warm_up(times) == 10


@pytest.mark.parametrize(("slower", "told"), [(1.06, True), (1.045, False)])
def test_a_warm_up_is_told_from_five_percent_on(slower: float, told: bool) -> None:
    times = 100 + np.random.default_rng(1).normal(0, 0.1, 1000)
    times[:100] *= slower
    found = find_change(times)
    assert (found is not None and found.kind == "warm-up") == told


def test_a_slow_beginning_that_fades_is_a_warm_up() -> None:
    times = noise(1) * (1 + np.exp(-np.arange(1000) / 50))
    found = find_change(times)
    assert found is not None
    assert found.kind == "warm-up"
    assert 80 <= found.at <= 250


def test_a_row_that_becomes_slower_drifts() -> None:
    for seed in range(20):
        found = find_change(noise(seed) * np.linspace(1, 1.3, 1000))
        assert found is not None
        assert found.kind == "drift"
        assert found.relative == pytest.approx(0.2, abs=0.05)


def test_a_sudden_change_is_found_where_it_is() -> None:
    for seed in range(20):
        times = noise(seed)
        times[600:] *= 1.2
        found = find_change(times)
        assert found is not None
        assert (found.kind, found.at) == ("step", pytest.approx(600, abs=30))
        assert found.relative == pytest.approx(0.2, abs=0.02)


@pytest.mark.parametrize("outlier", [0, 500, 999])
def test_one_outlier_is_no_change(outlier: int) -> None:
    times = noise(2)
    times[outlier] *= 1000
    assert find_change(times) is None


def test_a_small_change_is_not_worth_a_line() -> None:
    times = noise(3, 10_000)
    times[5000:] *= 1.03
    assert find_change(times) is None


def test_of_nothing_little_a_constant_and_the_unknown_nothing_is_said() -> None:
    assert find_change(np.empty(0)) is None
    assert find_change(np.array([5.0])) is None
    assert find_change(np.array([5.0, 500.0] * 99)) is None
    assert find_change(np.full(100, 7.0)) is None
    assert find_change(np.append(noise(4), math.nan)) is None
