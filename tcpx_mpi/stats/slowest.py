"""The slowest rank over a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tcpx_mpi.stats.row_summary import RowSummary


@dataclass(frozen=True)
class SlowestRank:
    """The rank that was slowest most often, and how far behind it was at its worst.

    `ratio` is its time over the median of the receiving ranks, in the row at this `place` of the
    rows that were given.
    """

    rank: int
    rows: int
    of_rows: int
    ratio: float
    place: int


def slowest_rank(summaries: Sequence[RowSummary]) -> SlowestRank | None:
    """The slowest rank over a run; None if no row has two receiving ranks to compare."""
    comparable = {
        place: s
        for place, s in enumerate(summaries)
        # Of no time at all there is no ratio.
        if int((~np.isnan(s.time_ns_by_rank)).sum()) > 1 and np.nanmedian(s.time_ns_by_rank) > 0
    }
    if not comparable:
        return None
    times_slowest = Counter(summary.t_max_rank for summary in comparable.values())
    # Of equally often slowest ranks the lowest, so that the same file gives the same answer.
    rank = min(times_slowest, key=lambda r: (-times_slowest[r], r))
    ratios = {
        place: s.t_max_ns / float(np.nanmedian(s.time_ns_by_rank))
        for place, s in comparable.items()
        if s.t_max_rank == rank
    }
    worst = max(ratios, key=ratios.__getitem__)
    return SlowestRank(
        rank=rank,
        rows=times_slowest[rank],
        of_rows=len(comparable),
        ratio=ratios[worst],
        place=worst,
    )
