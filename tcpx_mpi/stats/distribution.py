"""The spread of one set of times: nearest-rank percentiles, hidden where there are too few."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tcpx_mpi.arrays import Float64s, Int64s
from tcpx_mpi.stats.blocks import independent_count
from tcpx_mpi.stats.interval import median_of_ordered
from tcpx_mpi.stats.series import deviation, in_order

#: How likely the sample's maximum must be to lie above a percentile before we print one.
_PERCENTILE_CONFIDENCE = 0.95


@dataclass(frozen=True, eq=False)
class Distribution:
    """The spread of one set of times in nanoseconds; NaN if there are too few of them."""

    count: int
    min: float
    max: float
    mean: float
    stdev: float
    cv: float
    p50: float
    #: The interval that holds the true median in 95 % of cases.
    p50_low: float
    p50_high: float
    p95: float
    p99: float
    p99_9: float


def minimum_samples(percentile: float) -> int:
    """Samples below which a percentile is not stated: 59 for 95, 299 for 99, 2995 for 99.9.

    With that many the largest sample exceeds the true percentile with a chance of 95 %. The
    median and below need one sample: they are not a claim about a tail. Raises ValueError
    outside 0 to 100; 100 itself is outside, for no number of samples bounds the maximum.
    """
    if not 0 <= percentile < 100:
        raise ValueError(f"percentile {percentile} is not within 0 and below 100")
    if percentile <= 50:
        return 1
    return math.ceil(math.log(1 - _PERCENTILE_CONFIDENCE) / math.log(percentile / 100))


def nearest_rank(ordered: Float64s, percentile: float) -> float | None:
    """The nearest-rank percentile of values in order, a value that occurred, or None if too few.

    A NaN among the values makes the result NaN: an unknown sample might be anywhere.
    """
    count = int(ordered.size)
    if count < minimum_samples(percentile):
        return None
    if math.isnan(ordered[-1]):
        return math.nan
    # The subtraction undoes the rounding of, say, 99.9 / 100 * 3000 = 2997.0000000000005.
    return float(ordered[max(math.ceil(percentile * count / 100 - 1e-9) - 1, 0)])


def describe(times_ns: Float64s | Int64s, spool: str | None = None) -> Distribution:
    """The spread of a set of times; NaN for each figure that so few samples cannot give."""
    count = int(times_ns.size)
    ordered = in_order(times_ns, spool)

    def percentile(p: float) -> float:
        value = nearest_rank(ordered, p)
        return math.nan if value is None else value

    middle = median_of_ordered(ordered, independent=independent_count(times_ns))
    mean = float(times_ns.mean()) if count else math.nan
    stdev = deviation(times_ns, mean)
    return Distribution(
        count=count,
        min=float(times_ns.min()) if count else math.nan,
        max=float(times_ns.max()) if count else math.nan,
        mean=mean,
        stdev=stdev,
        cv=stdev / mean if mean > 0 else math.nan,
        p50=percentile(50),
        p50_low=middle.low,
        p50_high=middle.high,
        p95=percentile(95),
        p99=percentile(99),
        p99_9=percentile(99.9),
    )
