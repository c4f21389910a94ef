"""A row whose pattern has a load: its latency under load beside its latency alone. Pure.

Both took turns in blocks, so the ratio and its interval are made as those to a baseline are
(`ratios`). The bandwidth of the mesh is that of one iteration by itself: what a rank received but
for the ping-pong's own messages, over the time from the start of the iteration until all was there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tcpx_mpi.records import LOADED, Row, SideKey
from tcpx_mpi.stats.ratios import Ratio, ratio_to

#: Messages of the size that a rank receives in an iteration, beside those of the mesh.
_OWN_MESSAGES = 2
#: Times of one way that both round trips of an iteration take together.
_WAYS = 4


@dataclass(frozen=True)
class LoadFigures:
    """The load of a row: its effect and its amount."""

    #: Time under load over time alone.
    ratio: Ratio
    #: GB/s that a rank received of the mesh, averaged over ranks; NaN if it sent nothing.
    mesh_gbps: float
    #: Ratio of 2 times: of an iteration until all of the mesh was there (median over ranks and
    #: iterations), and of both round trips. Below 1 the end of the ping-pong had no load.
    covers: float


def load_figures(row: Row, average: int) -> LoadFigures | None:
    """The load figures of a row; None if its pattern has no load."""
    if (loaded := row.sides.get(SideKey(place=LOADED))) is None:
        return None
    # Its time is a latency: a factor of bandwidth does not matter.
    ratio = ratio_to(row, LOADED, loaded, average, busbw_factor=1.0, time_divisor=2)
    if not loaded.iterations:
        return LoadFigures(ratio, math.nan, math.nan)
    until_there = loaded.samples["receive"]
    own = _OWN_MESSAGES * loaded.size_bytes
    of_mesh = loaded.payload_bytes_received / loaded.iterations - own
    means = np.array([np.asarray(times).mean() for times in until_there])
    both_trips = _WAYS * ratio.theirs * 1e3
    return LoadFigures(
        ratio,
        float((of_mesh / means).mean()) if (means > 0).all() and (of_mesh > 0).all() else math.nan,
        float(np.median(until_there)) / both_trips if both_trips > 0 else math.nan,
    )
