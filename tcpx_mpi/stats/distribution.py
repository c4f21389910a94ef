"""The spread of one set of times: nearest-rank percentiles, hidden where there are too few."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tcpx_mpi.stats.blocks import independent_count
from tcpx_mpi.stats.interval import median_interval
from tcpx_mpi.stats.row_like import Float64s, Int64s

#: How likely the sample's maximum must be to lie above a percentile before we print one.
_PERCENTILE_CONFIDENCE = 0.95


@dataclass(frozen=True, eq=False)
class Distribution:
    """The spread of one set of times in nanoseconds; NaN where there are too few of them."""

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


def percentile_nearest_rank(values: Float64s | Int64s, percentile: float) -> float | None:
    """The nearest-rank percentile of `values`, a value that occurred, or None if too few.

    A NaN among the values makes the result NaN: an unknown sample might be anywhere.
    """
    count = int(values.size)
    if count < minimum_samples(percentile):
        return None
    # The subtraction undoes the rounding of, say, 99.9 / 100 * 3000 = 2997.0000000000005.
    position = max(math.ceil(percentile * count / 100 - 1e-9) - 1, 0)
    ordered = np.sort(values.astype(np.float64))
    if math.isnan(float(ordered[-1])):
        return math.nan
    return float(ordered[position])


def describe(times_ns: Float64s | Int64s) -> Distribution:
    """The spread of a set of times; NaN for each figure that so few samples cannot give."""
    values = times_ns.astype(np.float64)
    count = int(values.size)

    def percentile(p: float) -> float:
        value = percentile_nearest_rank(values, p)
        return math.nan if value is None else value

    middle = median_interval(values, independent=independent_count(values))
    mean = float(values.mean()) if count else math.nan
    # The sample's standard deviation (n - 1): of a single time it is unknown, not 0.
    stdev = float(values.std(ddof=1)) if count > 1 else math.nan
    return Distribution(
        count=count,
        min=float(values.min()) if count else math.nan,
        max=float(values.max()) if count else math.nan,
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
