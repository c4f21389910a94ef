"""When the messages of each peer were there: one rank's arrivals of single iterations of a row.

Means would be those of whoever lost its CPU: one turn of another process is worth a hundred
iterations. So single iterations are kept, the same ones on all ranks, spread evenly over the row;
their medians do not mind. Pure, and as large after 10^8 iterations as after 1000.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

#: A row is cut into no more blocks, of each of which one iteration is kept.
MOST_BLOCKS = 4096
#: Of many ranks fewer, so that those of a row have no more values over all ranks and peers,
MOST_VALUES = 1 << 20
#: but not fewer than this.
LEAST_BLOCKS = 64

#: The arrival of nothing.
NOT_SENT = np.iinfo(np.int64).min
#: 2^64 over the golden ratio: its multiples' highest bits keep no step with anything.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class Arrivals:
    """The arrivals at one rank; `world` ranks may be its peers."""

    def __init__(self, world: int) -> None:
        self._most = min(MOST_BLOCKS, max(LEAST_BLOCKS, MOST_VALUES // world**2))
        self._iterations = 0
        #: Whether any batch told its sources apart.
        self._told = False
        #: All blocks are 2 ^ this long, but the last one.
        self._doublings = 0
        #: Block b is at b, the last one not before its iteration came; NaN for a rank that sends
        #: nothing here.
        self._kept = np.zeros((world, 0))

    def add(self, sources: Sequence[int], arrival_ns: NDArray[np.int64]) -> None:
        """One batch: int64[iteration, source], from the start of the iteration, signed; NOT_SENT
        where a source had nothing for this rank."""
        self._told |= bool(sources)
        first, end = self._iterations, self._iterations + len(arrival_ns)
        self._iterations = end
        while -(-end >> self._doublings) > self._most:
            self._join_by_twos()
        blocks = np.arange(first >> self._doublings, -(-end >> self._doublings))
        chosen = _chosen(blocks, self._doublings)
        chosen = chosen[(chosen >= first) & (chosen < end)]
        found = np.full((len(self._kept), chosen.size), np.nan)
        of_sources = arrival_ns[chosen - first].T
        found[list(sources)] = np.where(of_sources == NOT_SENT, np.nan, of_sources)
        self._kept = np.concatenate([self._kept, found], axis=1)

    def _join_by_twos(self) -> None:
        self._doublings += 1
        halves = _half(np.arange(-(-self._kept.shape[1] // 2)))
        self._kept = self._kept[:, halves[halves < self._kept.shape[1]]]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Iterations in each block; they are those of the row together."""
        if not self._told:
            return np.zeros(0, np.int64)
        counts = np.full(self._kept.shape[1], 1 << self._doublings, np.int64)
        counts[-1:] += self._iterations - counts.sum()
        return counts

    @property
    def arrival_ns(self) -> NDArray[np.float64]:
        """float64[peer, block]; no blocks where this rank does not tell its sources apart."""
        return self._kept if self._told else np.zeros((0, 0))


def _half(blocks: NDArray[np.int64]) -> NDArray[np.int64]:
    """The iteration that is kept of each block of two that are joined."""
    second = (blocks.astype(np.uint64) * _GOLDEN) >> np.uint64(63)
    return 2 * blocks + second.astype(np.int64)


def _chosen(blocks: NDArray[np.int64], doublings: int) -> NDArray[np.int64]:
    """The iteration of each block that is kept; what joins blocks chooses the same ones."""
    for _ in range(doublings):
        blocks = _half(blocks)
    return blocks
