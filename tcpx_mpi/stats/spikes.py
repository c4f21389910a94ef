"""Rows whose mean is far above the median because of a few iterations, and the row without them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tcpx_mpi.records import Row, mapped_arrays
from tcpx_mpi.stats.row_summary import RowSummary
from tcpx_mpi.stats.series import average_over_ranks

#: A mean that is so many times the median is not that of a usual iteration.
_FAR = 1.5
#: So many times the median is a spike; more of them, of all iterations and in number, are its usual
#: tail.
_SPIKE = 5.0
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
    """The spikes of a row, in order; its mean over its median, and its time without them."""

    found: tuple[LongIteration, ...]
    mean_over_median: float
    time_ns: float


def find_spikes(row: Row, summary: RowSummary, average: int, time_divisor: int) -> Spikes | None:
    """The spikes that a reader of a row's mean should know; `average` and the divisor as
    `summarise`.

    None too where a time is unknown, and where most iterations came in bursts.
    """
    spread = summary.per_iteration
    if not spread.mean >= _FAR * spread.p50:
        return None
    times = summary.iteration_max_ns()
    few = min(max(_FEW, times.size // _FEW_IN), _MOST)
    places: list[int] = []
    for part in mapped_arrays.pieces(times.size):
        places += (np.flatnonzero(times[part] > _SPIKE * spread.p50) + part.start).tolist()
        if len(places) > few:
            return None
    left = times.size - len(places)
    if not places or not (times.sum() - times[places].sum()) < _FAR * spread.p50 * left:
        return None
    samples, starts = row.samples["iteration"], row.samples["start"]
    receiving = np.flatnonzero(row.receives).tolist()
    copies = row.agg * time_divisor
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
    time_ns = average_over_ranks(np.array(without), average)
    return Spikes(tuple(found), spread.mean / spread.p50, time_ns)
