"""Median of a sample with a distribution-free confidence interval."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from statistics import NormalDist

from tcpx_mpi.arrays import Float64s, Int64s
from tcpx_mpi.stats.series import at_place, in_order

CONFIDENCE = 0.95
#: Above this many values the normal approximation of the binomial is as good.
_EXACT_UP_TO = 1000


@dataclass(frozen=True)
class Interval:
    """An estimate between two bounds; the bounds are NaN if there are too few values."""

    estimate: float
    low: float
    high: float

    @property
    def relative_half_width(self) -> float:
        """Half of the interval's width over the estimate; NaN where it is not known."""
        return (self.high - self.low) / (2 * self.estimate) if self.estimate > 0 else math.nan


UNKNOWN = Interval(math.nan, math.nan, math.nan)


def median_interval(
    values: Float64s | Int64s,
    confidence: float = CONFIDENCE,
    independent: int | None = None,
    spool: str | None = None,
) -> Interval:
    """The median of a sample and the interval that holds the true one so often.

    Between two order statistics, interpolated so that the coverage is close to `confidence` and
    not far above it (Hettmansperger & Sheather 1986). Of values that resemble their neighbours,
    `independent` says how many independent ones they are worth: the interval is that of so many.
    Fewer than 6 cannot bound a median with 95 %: bounds NaN. A NaN among the values makes all
    NaN: it might be anywhere.
    """
    return median_of_ordered(in_order(values, spool), confidence, independent)


def median_of_ordered(
    ordered: Float64s, confidence: float = CONFIDENCE, independent: int | None = None
) -> Interval:
    """The same of values that are in order."""
    count = int(ordered.size)
    if count == 0 or math.isnan(ordered[-1]):
        return UNKNOWN

    def quantile(part: float) -> float:
        # Hazen's: the k-th of n values is the one at (k - 1/2) / n.
        return at_place(ordered, part * count - 0.5)

    worth = count if independent is None else min(independent, count)
    place = _place(worth, confidence)
    if place is None:
        return Interval(quantile(0.5), math.nan, math.nan)
    part = (place - 0.5) / worth
    return Interval(quantile(0.5), quantile(part), quantile(1 - part))


@functools.lru_cache(maxsize=4096)
def _place(count: int, confidence: float) -> float | None:
    """Which of the ordered values is the lower bound, from 1, or None if none covers enough."""
    if count > _EXACT_UP_TO:
        z = NormalDist().inv_cdf((1 + confidence) / 2)
        return (count + 1 - z * math.sqrt(count)) / 2
    outside = 0.0  # P(Binomial(count, 1/2) < k)
    for k in range(1, count // 2 + 1):
        outside += math.comb(count, k - 1) / 2**count
        further = outside + math.comb(count, k) / 2**count
        covered, next_covered = 1 - 2 * outside, 1 - 2 * further
        if covered < confidence:
            return None
        if next_covered < confidence:
            # The coverage of interpolated bounds is not linear in the place; this form is close
            # to it for every distribution that was tried.
            part = (covered - confidence) / (covered - next_covered)
            inner: float = (count - k) * part / (k + (count - 2 * k) * part)
            return k + inner
    return None
