"""Latency of an open loop: from when each iteration was intended to begin, not from when it did.

An iteration that begins late because the one before held it has waited, and so would a caller that
comes by the clock: what is timed from the actual start leaves that out (coordinated omission).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tcpx_mpi.arrays import Int64s
from tcpx_mpi.records import Row
from tcpx_mpi.stats.distribution import Distribution, describe

#: A loop whose latency grows by more of the time that passes does not keep up.
_KEEPS_UP = 0.05


@dataclass(frozen=True, eq=False)
class OpenLoop:
    """A row that was begun by the clock."""

    #: Iterations a second as asked for, and as they went.
    offered: float
    achieved: float
    #: From the intended start until the last rank had all; nothing in it where the loop did not
    #: keep up, for then it is as long as the row.
    latency: Distribution
    bound_ns: int
    keeps_up: bool = True


def open_loop(
    row: Row, begin: Sequence[int], hear: Sequence[int], clocks: Sequence[int], skip: int = 0
) -> OpenLoop | None:
    """The latency from the intended start in a row in which some ranks begin iterations and some
    `hear` the end of them; `clocks` are those of all ranks. None if these have no time in common,
    or nothing was measured."""
    rate = row.rate_per_s
    if row.clock is None and len({clocks[rank] for rank in (*begin, *hear)}) > 1:
        return None
    if not row.iterations or not begin or not hear:
        return None
    interval = 1e9 / rate
    within = np.concatenate([np.arange(count) for count in row.batches.tolist()])
    started = np.array([_common(row, clocks[rank], row.batch_start[rank]) for rank in begin])
    # All begin at one agreed instant, to the bound of their clocks.
    intended = np.repeat(started.max(axis=0), row.batches) + (
        within * interval  # as the engine has it
    ).astype(np.int64)
    ended = np.array([
        _common(row, clocks[rank], row.samples["start"][rank] + row.samples["iteration"][rank])
        for rank in hear
    ])  # fmt: skip
    latency = ended.max(axis=0) - intended
    last = np.cumsum(row.batches) - 1
    took_ns = float((latency[last] + (row.batches - 1) * interval).sum())
    achieved = min(rate, 1e9 * row.iterations / max(took_ns, interval))
    slower = _growth(latency, row.batches) / interval
    bound = 0
    if row.clock is not None:
        tree = row.clock.tree
        bound = max(tree.bound_between_ns(clocks[a], clocks[b]) for a in begin for b in hear)
    if slower > _KEEPS_UP:
        return OpenLoop(rate, achieved, describe(np.empty(0)), bound, keeps_up=False)
    return OpenLoop(rate, achieved, describe(latency[skip:], row.spool), bound)


def _common(row: Row, clock: int, times: Int64s) -> Int64s:
    return times if row.clock is None else row.clock.tree.to_common(clock, times)


def _growth(latency: Int64s, batches: Int64s) -> float:
    """The time that each iteration of a batch takes longer than the one before: between the medians
    of the first and the last quarter, and over batches the median again."""
    found = []
    for first, count in zip((np.cumsum(batches) - batches).tolist(), batches.tolist(), strict=True):
        part = max(count // 4, 1)
        if count >= 4:
            of_batch = latency[first : first + count]
            longer = float(np.median(of_batch[-part:]) - np.median(of_batch[:part]))
            found.append(longer / (count - part))
    return float(np.median(found)) if found else 0.0
