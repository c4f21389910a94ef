"""Whether a row was steady: a warm-up that was too short, a drift, a sudden change. By ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tcpx_mpi.arrays import Float64s
from tcpx_mpi.stats.blocks import block_means, in_outline, independent_count, mid_ranks

#: Smaller changes than this, of the median, are not worth a line.
WORTH_TELLING = 0.05
#: One steady row in so many may be called unsteady.
_FALSE_ALARMS = 1 / 1000
#: MSER-5 (White 1997): the series is looked at in means of so many iterations.
_MSER_BLOCK = 5
_AS_GOOD = 1.1
#: A head shorter than this is no evidence of a warm-up.
_LEAST_HEAD = 2 * _MSER_BLOCK
#: Of fewer it cannot be said how far neighbours resemble each other.
_LEAST_ITERATIONS = 200
_LEAST_POINTS = 24
#: Fewer values have no trend.
_LEAST_LAUNCHES = 9
_MOST_POINTS = 400


@dataclass(frozen=True)
class Change:
    """The change of a row over its iterations: "warm-up", "drift" or "step".

    `at` is the iteration at which the rest begins (of a drift: 0); `before` and `after` are the
    medians on both sides of it, in ns; of a drift, of the first and the last third.
    """

    kind: str
    at: int
    before: float
    after: float

    @property
    def relative(self) -> float:
        """The change, of what was before."""
        return self.after / self.before - 1 if self.before > 0 else math.nan


def find_change(times_ns: Float64s) -> Change | None:
    """The change of a row that a reader should know of, or None; float64[iterations].

    None too where the times are too few (below 200) or one is unknown. A change counts that a
    steady series shows once in 1000 and that moves the median by 5 % or more.
    """
    series = in_outline(times_ns)
    if series.size < _LEAST_ITERATIONS or bool(np.isnan(series).any()):
        return None
    # Iterations that resemble their neighbours are merged, by the half in which a warm-up is over.
    # A drift or a step would look like resemblance: what a line or a step explains is taken out
    # first.
    settled = series[series.size // 2 :]
    worth = independent_count(_fit(settled).left) / settled.size
    means = block_means(series, max(int(series.size * worth), _LEAST_POINTS))
    head = warm_up(means)
    if head:
        before, after = float(np.median(means[:head])), float(np.median(means[head:]))
        if after * (1 + WORTH_TELLING) <= before:
            return Change("warm-up", round(head * times_ns.size / means.size), before, after)
    return _step_or_drift(times_ns.size, means)


def find_drift(values: Float64s) -> Change | None:
    """The drift, or step, of values that are too few for `find_change`, such as launches.

    By Mann's test of a trend (1945), which ten values can pass. `at` is 0, as of a drift.
    """
    count = values.size
    if count < _LEAST_LAUNCHES or bool(np.isnan(values).any()):
        return None
    rising = float(np.triu(np.sign(values[None, :] - values[:, None])).sum())
    deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    if math.erfc(abs(rising) / deviation / math.sqrt(2)) > _FALSE_ALARMS:
        return None
    third = count // 3
    found = Change("drift", 0, float(np.median(values[:third])), float(np.median(values[-third:])))
    return found if abs(found.relative) >= WORTH_TELLING else None


def warm_up(times_ns: Float64s) -> int:
    """Values at the beginning that are slower than the rest; 0 for none, or where the row does
    not settle within its first half.

    Where MSER-5 (White 1997) would cut the series, if the ranks of what it cuts off are too high
    to be chance.
    """
    blocks = times_ns.size // _MSER_BLOCK
    means = times_ns[: blocks * _MSER_BLOCK].reshape(blocks, _MSER_BLOCK).mean(axis=1)
    # Variance of the mean of what is left, for every cut in the first half, from the end backwards.
    left = np.arange(blocks, 0, -1)
    sums = np.cumsum(means[::-1])[::-1]
    squares = np.cumsum((means**2)[::-1])[::-1]
    marginal = (squares - sums**2 / left) / left**2
    # Beyond the end of the warm-up nearly every cut is as good: the first of them.
    good = marginal[: max(blocks // 2, 1)]
    cut = int(np.argmax(good <= _AS_GOOD * good.min())) * _MSER_BLOCK
    if cut < _LEAST_HEAD:
        return 0
    ranks = mid_ranks(times_ns)
    rest = times_ns.size - cut
    expected = cut * (times_ns.size + 1) / 2
    deviation = math.sqrt(cut * rest * (times_ns.size + 1) / 12)
    # Cutting where it pays best makes a lucky head likelier than one that was chosen before: hence
    # 5 deviations, which the tests' steady series do not reach.
    return cut if float(ranks[:cut].sum()) - expected > 5 * deviation else 0


@dataclass(frozen=True)
class _Fit:
    """A series as two levels or as a line, whichever is nearer; `left` is what neither explains."""

    is_step: bool
    split: int
    left: Float64s


def _step_or_drift(iterations: int, means: Float64s) -> Change | None:
    """Pettitt's test (1979) finds that the series changes, what fits it better tells how."""
    means = block_means(means, _MOST_POINTS)
    count = means.size
    if 2 * math.exp(-6 * _pettitt(means)[1] ** 2 / (count**3 + count**2)) > _FALSE_ALARMS:
        return None
    fit = _fit(means)
    third = count // 3
    if fit.is_step:
        found = Change(
            "step", round(fit.split * iterations / count),
            float(np.median(means[: fit.split])), float(np.median(means[fit.split :])),
        )  # fmt: skip
    else:
        found = Change(
            "drift", 0, float(np.median(means[:third])), float(np.median(means[-third:]))
        )
    return found if abs(found.relative) >= WORTH_TELLING else None


def _pettitt(values: Float64s) -> tuple[int, float]:
    """The place at which the ranks before and after differ most, and Pettitt's statistic of it."""
    walk = 2 * np.cumsum(mid_ranks(values))
    walk -= np.arange(1, values.size + 1) * (values.size + 1)
    split = int(np.argmax(np.abs(walk[:-1]))) + 1
    return split, float(abs(walk[split - 1]))


def _fit(values: Float64s) -> _Fit:
    split, _ = _pettitt(values)
    place = np.arange(values.size)
    slope, start = np.polyfit(place, values, 1)
    low, high = np.median(values[:split]), np.median(values[split:])
    of_line = values - start - slope * place
    of_step = values - np.where(place < split, low, high)
    if np.abs(of_step).sum() <= np.abs(of_line).sum():
        return _Fit(True, split, of_step)
    return _Fit(False, split, of_line)
