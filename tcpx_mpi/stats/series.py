"""Arithmetic over all iterations of a row, piece by piece; long results are memory-mapped.

So a row takes as little memory with 10^8 iterations as with 10^6
(`tcpx_mpi.records.mapped_arrays`), in the directory `spool`; None: the system's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence

import numpy as np

from tcpx_mpi.arrays import Float64s, Int64s
from tcpx_mpi.records import Row, mapped_arrays

#: Over ranks, by `-a`; 0 takes the first.
_JOINED = {1: np.add, 2: np.minimum, 3: np.maximum}


def samples_received(row: Row) -> list[Int64s]:
    """The iterations of each rank that receives, in rank order: int64[iteration], ns."""
    samples = row.samples["iteration"]  # once: it may be read from a file
    return [samples[rank] for rank in np.flatnonzero(row.receives)]


def rank_times_ns(samples: Int64s, copies: int, spool: str | None = None) -> Float64s:
    """One rank's iterations as times of one of their `copies`: float64[iteration], NaN for "none",
    which must not enter a mean as if it were a time.
    """
    times = mapped_arrays.empty(samples.size, spool=spool)
    for part in mapped_arrays.pieces(samples.size):
        times[part] = _known(samples[part]) / copies
    return times


def times_over_ranks_ns(
    by_rank: Sequence[Int64s], average: int, copies: int, spool: str | None = None
) -> Float64s:
    """The same of several ranks, iteration by iteration as `-a` asks: their first, mean, minimum
    or maximum; NaN if one of those is "none". At least one rank.
    """
    if average == 0:
        return rank_times_ns(by_rank[0], copies, spool)
    times = mapped_arrays.empty(by_rank[0].size, spool=spool)
    for part in mapped_arrays.pieces(times.size):
        # One rank after the other: a piece of 1000 ranks would be large, too.
        joined = functools.reduce(_JOINED[average], (_known(rank[part]) for rank in by_rank))
        times[part] = joined / (len(by_rank) if average == 1 else 1) / copies
    return times


def average_over_ranks(times_ns: Float64s, average: int) -> float:
    """One time out of the receiving ranks' times in rank order, as `-a` asks.

    `average` is 0 for rank 0 (the lowest receiving rank where rank 0 receives nothing), 1 for
    the mean, 2 for the minimum, 3 for the maximum. NaN if nobody receives, and for 1 to 3 if
    one of the times is unknown.
    """
    if times_ns.size == 0:
        return math.nan
    choose = {0: times_ns[0], 1: times_ns.mean(), 2: times_ns.min(), 3: times_ns.max()}
    return float(choose[average])


def _known(samples: Int64s) -> Float64s:
    times = samples.astype(np.float64)
    times[samples < 0] = math.nan
    return times


def elapsed_ns(by_rank: Iterable[Int64s]) -> Int64s:
    """The time that the iterations of each rank took together: int64[rank]; "none" adds nothing."""
    totals = [
        sum(int(np.maximum(samples[part], 0).sum()) for part in mapped_arrays.pieces(samples.size))
        for samples in by_rank
    ]
    return np.array(totals, dtype=np.int64)


def deviation(values: Float64s | Int64s, mean: float) -> float:
    """The standard deviation of a sample with this mean (n - 1); NaN for fewer than 2 values."""
    if values.size < 2:
        return math.nan
    squares = sum(float(((values[p] - mean) ** 2).sum()) for p in mapped_arrays.pieces(values.size))
    return math.sqrt(squares / (values.size - 1))


def in_order(values: Float64s | Int64s, spool: str | None = None) -> Float64s:
    """A copy of the values from least to largest; NaN comes last.

    Sorted whole: that is faster than to ask numpy for the few places that one looks at.
    """
    ordered = mapped_arrays.empty(values.size, spool=spool)
    ordered[:] = values
    ordered.sort()
    return ordered


def at_place(ordered: Float64s, place: float) -> float:
    """The value at a place from 0, between two of them on the line that joins them."""
    below = min(max(math.floor(place), 0), ordered.size - 1)
    above = min(below + 1, ordered.size - 1)
    low, high = float(ordered[below]), float(ordered[above])
    return low + (high - low) * min(max(place - below, 0.0), 1.0)
