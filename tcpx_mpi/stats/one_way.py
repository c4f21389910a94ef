"""One-way latency by direction, by the clocks of both ends: what a half of a round trip hides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tcpx_mpi.arrays import Int64s
from tcpx_mpi.records import Row


@dataclass(frozen=True)
class OneWay:
    """Medians over the iterations of a row, of the pair of ranks that is the slowest."""

    #: From the start of an iteration on the sender until all was received; NaN where unknown.
    there_ns: float
    #: From then until the answer was received; NaN where there is none.
    back_ns: float
    #: Each is off by at most this; their sum is not. 0: both ranks read one clock.
    bound_ns: int


def one_way(
    row: Row, pairs: Sequence[tuple[int, int]], clocks: Sequence[int], answered: bool, skip: int = 0
) -> OneWay | None:
    """The one-way latency of (sender, receiver) of a row, whose ranks read these clocks;
    `answered`: the receiver sends back as soon as it has all. None if clocks have no time in
    common, or nothing was measured.
    """
    found = []
    for sender, receiver in pairs:
        if clocks[sender] != clocks[receiver] and row.clock is None:
            return None
        begun, heard = (_common(row, clocks[sender], sender, what, skip) for what in (False, True))
        got = _common(row, clocks[receiver], receiver, True, skip)
        if not got.size:
            return None
        bound = 0
        if row.clock is not None:
            bound = row.clock.tree.bound_between_ns(clocks[sender], clocks[receiver])
        back = float(np.median(heard - got)) if answered else math.nan
        found.append(OneWay(float(np.median(got - begun)), back, bound))
    return max(found, key=lambda each: each.there_ns, default=None)


def _common(row: Row, clock: int, rank: int, received: bool, skip: int) -> Int64s:
    """When each iteration began on a rank, or had all of its bytes, on the time of clock 0."""
    times: Int64s = row.samples["start"][rank][skip:]
    if received:
        times = times + np.maximum(row.samples["receive"][rank][skip:], 0)
    return times if row.clock is None else row.clock.tree.to_common(clock, times)
