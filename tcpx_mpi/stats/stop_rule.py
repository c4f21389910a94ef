"""When a row has enough iterations: the interval of its median is narrow enough. Pure."""

from __future__ import annotations

import math

import numpy as np

from tcpx_mpi.arrays import Float64s
from tcpx_mpi.stats.blocks import block_means, in_outline, independent_means
from tcpx_mpi.stats.interval import median_interval

#: Looks at fewer iterations than this are taken in by luck too often.
LEAST_ITERATIONS = 30
#: From one look to the next there are so many times as many iterations: each look is a chance to
#: be lucky, and costs a pass over all of them.
GROWTH = 1.25
#: A median by this factor below the mean is not what iterations take.
_MUCH_LESS = 2


def half_width(times_ns: Float64s) -> float:
    """Half of the width of the 95 % interval of the median, over the median; infinite if unknown.

    Of blocks without correlation, since iterations that resemble their neighbours count less. They
    are long enough that their median tells the time of the row: if senders run ahead, most
    iterations complete at once, and their short time is known soon.
    """
    if times_ns.size < LEAST_ITERATIONS:
        return math.inf
    means = independent_means(in_outline(times_ns))
    while means.size > 1 and _MUCH_LESS * float(np.median(means)) < means.mean():
        means = block_means(means, means.size // 2)
    found = median_interval(means).relative_half_width
    return math.inf if np.isnan(found) else found
