"""When the messages of each peer were there: one rank's arrivals of a row, in means over blocks.

Pure, and as large after 10^8 iterations as after 100: blocks that are too many are joined by twos.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

#: A batch is cut into so many blocks, where it has as many iterations.
BLOCKS_A_BATCH = 8
#: A row has no more; they are joined beyond.
MOST_BLOCKS = 16


class Arrivals:
    """Of one rank; `world` ranks may be its peers."""

    def __init__(self, world: int) -> None:
        self._world = world
        self._counts: list[int] = []
        #: Of each block the sums by rank, ns; NaN for a rank that sends nothing here.
        self._sums: list[NDArray[np.float64]] = []

    def add(self, sources: Sequence[int], arrival_ns: NDArray[np.int64]) -> None:
        """One batch: int64[iteration, source], from the start of the iteration, signed."""
        if not sources:
            return
        for block in np.array_split(arrival_ns, min(BLOCKS_A_BATCH, len(arrival_ns))):
            sums = np.full(self._world, np.nan)
            sums[list(sources)] = block.sum(axis=0, dtype=np.float64)
            self._sums.append(sums)
            self._counts.append(len(block))
        while len(self._counts) > MOST_BLOCKS:
            # An odd one at the end waits for the next.
            pairs = range(0, len(self._counts), 2)
            self._sums = [np.sum(self._sums[n : n + 2], axis=0) for n in pairs]
            self._counts = [sum(self._counts[n : n + 2]) for n in pairs]

    @property
    def counts(self) -> NDArray[np.int64]:
        """Iterations in each block."""
        return np.array(self._counts, dtype=np.int64)

    @property
    def means_ns(self) -> NDArray[np.float64]:
        """float64[peer, block]; no blocks where this rank does not tell its sources apart."""
        if not self._sums:
            return np.zeros((0, 0))
        return np.stack(self._sums, axis=1) / self.counts
