"""The ranks that begin their iterations last, on the time of all ranks: in a ring or an all-reduce
the late rank has the shortest time inside, because the others wait for it. Pure.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Of a row no more iterations are looked at, evenly spread.
MOST = 4096


def chosen(iterations: int) -> NDArray[np.int64]:
    """The iterations that are looked at."""
    step = -(-iterations // MOST) if iterations else 1
    return np.arange(0, iterations, step, dtype=np.int64)


def behind_first_ns(starts: NDArray[np.int64]) -> NDArray[np.float64]:
    """By rank, of int64[rank, iteration] on one time: the median of how long after the first rank
    it began."""
    behind: NDArray[np.float64] = np.median(starts - starts.min(axis=0), axis=1)
    return behind
