"""Two sets of launches compared by rank: the unit is the launch, for iterations share its fate.

A ratio is the first side's time over the second's, so above 1 the second is faster.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tcpx_mpi.arrays import Float64s
from tcpx_mpi.stats.interval import Interval

#: Launches of the same thing that must be there before their spread judges single ones. Two more
#: launches differ by over 1.5 times as much as the farthest two of ten in 1 % of cases if launches
#: vary normally. It is 4 % if they vary exponentially, 7 % log-normally (sigma 1), by a simulation.
SPREAD_LAUNCHES = 10
_BEYOND = 1.5


@dataclass(frozen=True)
class Shift:
    """The difference of two sets of launches: the ratio of times, and how sure that is."""

    ratio: Interval
    #: Two-sided, exact: how often sets of the same thing differ so much or more; NaN if no test.
    p_value: float
    #: "pairs" (Wilcoxon's signed ranks), "ranks" (Mann-Whitney), or "" for too few launches.
    test: str


def compare_launches(
    first: Float64s, second: Float64s, confidence: float, paired: bool = False
) -> Shift:
    """The shift from `first` to `second`, float64[launch] each, times above 0.

    The estimate is the median of all ratios of a first to a second time (Hodges & Lehmann 1963);
    its interval is the exact one of Mann and Whitney's test. With `paired`, launch i of one side
    was the neighbour in time of launch i of the other. If there are enough pairs, it is Wilcoxon's
    test of them, which a drift of the machine does not touch. Too few launches for `confidence`, or
    a NaN among them, leave the bounds NaN.
    """
    known = first.size and second.size and bool(np.all(first > 0) and np.all(second > 0))
    if not known:
        return Shift(Interval(math.nan, math.nan, math.nan), math.nan, "")
    a, b = np.log(first), np.log(second)
    shift = _by_pairs(a - b, confidence) if paired and a.size == b.size else None
    shift = shift or _by_ranks(a, b, confidence)
    if shift is not None:
        return shift
    middle = math.exp(float(np.median(np.subtract.outer(a, b))))
    return Shift(Interval(middle, math.nan, math.nan), math.nan, "")


def launches_needed(confidence: float) -> int:
    """Launches of each of two sides from which on an interval has this confidence."""
    return next(n for n in itertools.count(2) if 1 / math.comb(2 * n, n) <= (1 - confidence) / 2)


def _by_ranks(a: Float64s, b: Float64s, confidence: float) -> Shift | None:
    differences = np.sort(np.subtract.outer(a, b).ravel())
    below = cumulative_mann_whitney(a.size, b.size)
    return _shift(differences, below, confidence, "ranks")


def _by_pairs(differences: Float64s, confidence: float) -> Shift | None:
    upper = np.triu_indices(differences.size)
    averages = np.sort((np.add.outer(differences, differences) / 2)[upper])
    return _shift(averages, cumulative_signed_rank(differences.size), confidence, "pairs")


def _shift(ordered: Float64s, below: Sequence[float], confidence: float, test: str) -> Shift | None:
    """`below[u]` is P(statistic <= u) if nothing differs, where the statistic counts how many of
    `ordered` are below 0 (or above: it is symmetric)."""
    tail = (1 - confidence) / 2
    if below[0] > tail:
        return None
    cut = int(np.searchsorted(below, tail, side="right"))
    bounds = np.exp([np.median(ordered), ordered[cut - 1], ordered[-cut]])
    # Ties count half on either side, rounded to the side of "no difference".
    ties = float((ordered == 0).sum()) / 2
    least = min(float((ordered < 0).sum()), float((ordered > 0).sum())) + ties
    p_value = min(1.0, 2 * below[min(math.ceil(least), len(below) - 1)])
    return Shift(Interval(*map(float, bounds)), p_value, test)


@functools.lru_cache(maxsize=64)
def cumulative_mann_whitney(n: int, m: int) -> tuple[float, ...]:
    """P(U <= u) of Mann and Whitney's statistic for u = 0 .. n m, if nothing differs."""
    # The coefficients of the Gaussian binomial (n + m over n), in exact integers.
    counts = [1] + [0] * (n * m)
    for i in range(1, n + 1):
        for u in range(n * m, m + i - 1, -1):
            counts[u] -= counts[u - m - i]
        for u in range(i, n * m + 1):
            counts[u] += counts[u - i]
    total = math.comb(n + m, n)
    return tuple(sum_ / total for sum_ in itertools.accumulate(counts))


@functools.lru_cache(maxsize=64)
def cumulative_signed_rank(n: int) -> tuple[float, ...]:
    """P(W <= w) of Wilcoxon's signed-rank statistic for w = 0 .. n (n + 1) / 2."""
    counts = [1] + [0] * (n * (n + 1) // 2)
    for rank in range(1, n + 1):
        for w in range(len(counts) - 1, rank - 1, -1):
            counts[w] += counts[w - rank]
    return tuple(sum_ / 2**n for sum_ in itertools.accumulate(counts))


def spread_of(times: Float64s) -> float:
    """The ratio by which two single launches of the same thing may differ without meaning anything:
    1.5 times, in logarithms, what the farthest two of these differ by. NaN for fewer than 10.
    """
    if times.size < SPREAD_LAUNCHES or not bool(np.all(times > 0)):
        return math.nan
    return math.exp(_BEYOND * math.log(times.max() / times.min()))


@dataclass(frozen=True)
class Variation:
    """The standard deviations of a time within and between launches, over its median."""

    within: float
    between: float


def variation(blocks: Sequence[Float64s]) -> Variation:
    """The two parts of the spread of several launches; `blocks[launch]` are the times of its
    stretches, float64[stretch].

    By median absolute deviations, so that one stretch that lost its CPU does not count for all.
    What the launches' medians differ by for no other reason than the spread within them is taken
    off, where it is known. NaN if there are fewer than 3 launches (`between`) or 2 stretches
    (`within`).
    """
    if not blocks or any(t.size == 0 or bool(np.isnan(t).any()) for t in blocks):
        return Variation(math.nan, math.nan)
    medians = np.array([float(np.median(times)) for times in blocks])
    middle = float(np.median(medians))
    inner = [_deviation(times) for times in blocks if times.size > 1]
    if middle <= 0:
        return Variation(math.nan, math.nan)
    within = float(np.median(inner)) if inner else math.nan
    if medians.size < 3:
        return Variation(within / middle, math.nan)
    # The median of m normal values varies by pi / 2 times as much as their mean.
    by_chance = math.pi / 2 * within**2 / float(np.mean([times.size for times in blocks]))
    by_chance = by_chance if inner else 0.0
    between = math.sqrt(max(_deviation(medians) ** 2 - by_chance, 0.0))
    return Variation(within / middle, between / middle)


def _deviation(values: Float64s) -> float:
    """The standard deviation of normal values with this median absolute deviation."""
    return 1.4826 * float(np.median(np.abs(values - np.median(values))))
