"""Rows whose mean is far above the median because of a few iterations, and the row without them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tcpx_mpi.arrays import Float64s
from tcpx_mpi.records import Row, RunHeader, mapped_arrays
from tcpx_mpi.stats.bursts import sent_ahead
from tcpx_mpi.stats.distribution import describe
from tcpx_mpi.stats.row_summary import RowSummary
from tcpx_mpi.stats.series import average_over_ranks

#: A mean that is so many times the median is not that of a usual iteration.
_FAR = 1.5
#: So many times the median is a spike. If there are more than a few, of all iterations and in
#: number, those are that stand so far above the others; if none do, it is the row's usual tail.
_SPIKE, _APART = 5.0, 2.0
#: Without its spikes so much of what the mean has above the median may be left.
_SHARE = 0.5
_FEW, _FEW_IN, _MOST = 3, 20, 64


@dataclass(frozen=True)
class LongIteration:
    """One iteration: how long it took on its slowest rank, from the start of the row's first one.

    `ranks` are those that receive and took more than half as long; none if all did.
    """

    iteration: int
    ranks: tuple[int, ...]
    took_ns: int
    at_ns: int


@dataclass(frozen=True)
class Spikes:
    """The spikes of a row, in order; its mean over its median, and its time without them: NaN if
    the others are too few, or if they `waited`: most had been sent when they began."""

    found: tuple[LongIteration, ...]
    mean_over_median: float
    time_ns: float
    waited: bool


def find_spikes(header: RunHeader, row: Row, summary: RowSummary) -> Spikes | None:
    """The spikes that a reader of a row's mean should know.

    All iterations count, as in the row's time, also those that `-K` keeps out of percentiles. None
    too where a time is unknown, and where most iterations came in bursts.
    """
    spread, times = summary.per_iteration, summary.iteration_max_ns()
    if header.plan.per_iter_skip and math.isnan(summary.burst_gap_ns):
        spread = describe(times, row.spool)
    if not spread.mean >= _FAR * spread.p50:
        return None
    places = _longest(times, _SPIKE * spread.p50)
    left = times.size - len(places)
    mean = (times.sum() - times[places].sum()) / left
    if not places or mean - spread.p50 > _SHARE * (spread.mean - spread.p50):
        return None
    samples, starts = row.samples["iteration"], row.samples["start"]
    receiving = np.flatnonzero(row.receives).tolist()
    copies = row.agg * header.time_divisor
    without = [
        (summary.time_ns_by_rank[rank] * times.size - samples[rank][places].sum() / copies) / left
        for rank in receiving
    ]
    found = []
    for place in places:
        took = {rank: int(samples[rank][place]) for rank in receiving}
        rank = max(took, key=took.__getitem__)
        long = tuple(each for each, ns in took.items() if 2 * ns > took[rank])
        everybody = len(long) == len(took) > 1
        at_ns = int(starts[rank][place]) - int(starts[rank][0])
        found.append(LongIteration(place, () if everybody else long, took[rank], at_ns))
    waited = sent_ahead(header, row)
    time_ns = math.nan
    if left > _FEW and not waited:
        time_ns = average_over_ranks(np.array(without), header.plan.average)
    return Spikes(tuple(found), spread.mean / spread.p50, time_ns, waited)


def _longest(times: Float64s, above: float) -> list[int]:
    """The places of the few times that stand out, in order."""
    few = min(max(_FEW, times.size // _FEW_IN), _MOST)
    places = np.empty(0, np.int64)
    for part in mapped_arrays.pieces(times.size):
        places = np.append(places, np.flatnonzero(times[part] > above) + part.start)
        places = places[np.argsort(-times[places], kind="stable")][: few + 1]
    if places.size > few:
        ratios = times[places[:-1]] / times[places[1:]]
        count = int(ratios.argmax()) + 1
        places = places[: count if ratios[count - 1] >= _APART else 0]
    return sorted(places.tolist())
