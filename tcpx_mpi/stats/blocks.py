"""A series of iterations in blocks, because neighbouring iterations are not independent.

A stream of small messages arrives in bursts, so that single iterations say little and their mean
over a block says much; and an interval for independent values is too narrow for those that are not.
"""

from __future__ import annotations

import math

import numpy as np

from tcpx_mpi.arrays import Float64s, Int64s
from tcpx_mpi.records import Row
from tcpx_mpi.stats.series import (
    average_over_ranks,
    rank_times_ns,
    samples_received,
    times_over_ranks_ns,
)

#: Blocks into which a row is cut for its typical time, and for what it did over time.
BLOCKS = 100
#: Merging stops where fewer than this many blocks would be left to judge by.
_LEAST_BLOCKS = 12
#: Who ranks a whole series does it with so many means of a longer one.
_MOST_RANKED = 1 << 18
#: How far neighbours resemble each other is judged by so many at the beginning of a long series.
_LOOKED_AT = 1 << 16


def block_means(values: Float64s, blocks: int = BLOCKS) -> Float64s:
    """The means of at most `blocks` stretches of a series, equally long but for 1: float64[...]."""
    if values.size <= blocks:
        return values.astype(np.float64)
    bounds = np.linspace(0, values.size, blocks + 1, dtype=np.int64)
    means: Float64s = np.add.reduceat(values, bounds[:-1], dtype=np.float64)
    means /= np.diff(bounds)
    return means


def batch_means(values: Float64s, batches: Int64s) -> Float64s:
    """The mean of each batch of a series, whose lengths are `batches`: float64[batch]; NaN if
    the series is not as long as they are.
    """
    if values.size == 0 or values.size != batches.sum():
        return np.full(batches.size, math.nan)
    return np.add.reduceat(values, np.cumsum(batches) - batches) / batches


def in_outline(values: Float64s) -> Float64s:
    """A series to be ranked as a whole, bounded in time and memory: itself, or beyond 2^18 values
    the means of stretches, the shortest that leave at most 2^18.
    """
    stretch = -(-values.size // _MOST_RANKED)
    return values if stretch <= 1 else block_means(values, values.size // stretch)


def independent_means(values: Float64s) -> Float64s:
    """The means of blocks long enough that neighbours do not resemble each other.

    The length doubles, from 1, while neighbours are correlated beyond chance (Fishman's batch
    means, on ranks), as far as 12 blocks are left. Iterations of a rest are left out.
    """
    means = values
    while means.size >= 2 * _LEAST_BLOCKS and _are_correlated(means):
        half = means.size // 2
        means = means[: 2 * half].reshape(half, 2).mean(axis=1)
    return means


def independent_count(values: Float64s | Int64s) -> int:
    """The number of independent values in a series; 0 for an empty one."""
    if values.size == 0:
        return 0
    looked_at = values[:_LOOKED_AT].astype(np.float64)
    return int(values.size * independent_means(looked_at).size / looked_at.size)


def _are_correlated(values: Float64s) -> bool:
    """Whether neighbours are correlated, by rank, more than independent ones in 20 cases."""
    ranks = mid_ranks(values)
    ranks -= ranks.mean()
    # Not by `@`: BLAS has threads, which wait for processors that the ranks of a run are using.
    spread = float(np.einsum("i,i", ranks, ranks))
    if spread <= 0:
        return False
    neighbours = float(np.einsum("i,i", ranks[:-1], ranks[1:]))
    return abs(neighbours / spread) > 2 / math.sqrt(values.size)


def mid_ranks(values: Float64s) -> Float64s:
    """The rank of each value from 1; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    middle: Float64s = (last - (counts - 1) / 2)[inverse]
    return middle


def iteration_times_ns(row: Row, average: int, time_divisor: int) -> Float64s:
    """The time of one copy of the pattern in each iteration, over the ranks that receive as `-a`
    asks: float64[iterations]; empty if nobody receives or the row is an imported one.
    """
    if not row.receives.any() or "iteration" not in row.samples:
        return np.empty(0)
    return times_over_ranks_ns(samples_received(row), average, row.agg * time_divisor, row.spool)


def only_in_place(row: Row) -> bool:
    """Whether another program ran this row in place, and not out of place."""
    told = {a.side for a in row.averages if not math.isnan(a.time_ns)}
    return told == {"in_place"}


def typical_time_ns(row: Row, average: int, time_divisor: int, back_to_back: bool) -> float:
    """The time by which a launch counts, the median of `stretch_times_ns`; NaN if unknown. An
    imported row has its one average: out of place, or of one that was run in place only that.
    """
    if row.averages:
        side = "in_place" if only_in_place(row) else "out_of_place"
        return next((a.time_ns for a in row.averages if a.side == side), math.nan)
    times = stretch_times_ns(row, average, time_divisor, back_to_back)
    return float(np.median(times)) if times.size else math.nan


def stretch_times_ns(row: Row, average: int, time_divisor: int, back_to_back: bool) -> Float64s:
    """The times of one copy of the pattern in stretches of a row: float64[stretch].

    Back to back these are its batches, which begin and end with empty buffers. Within a batch a
    sender runs ahead of its receiver by what buffers hold, perhaps a whole row: between two
    arrivals lies a gap, not a time. Where an iteration waits for the one before, they are 100 equal
    parts.
    """
    if back_to_back:
        return _batch_times_ns(row, average, time_divisor)
    return block_means(iteration_times_ns(row, average, time_divisor))


def _batch_times_ns(row: Row, average: int, time_divisor: int) -> Float64s:
    """The time of one copy of the pattern in each batch: a rank's mean, and of those that receive
    as `-a` asks; float64[batch], NaN if a time is unknown."""
    if not row.receives.any() or "iteration" not in row.samples:
        return np.empty(0)
    copies = row.agg * time_divisor
    times = (rank_times_ns(samples, copies, row.spool) for samples in samples_received(row))
    means = [batch_means(of_rank, row.batches) for of_rank in times]
    return np.array([average_over_ranks(of_ranks, average) for of_ranks in np.transpose(means)])
