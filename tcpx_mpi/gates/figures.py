"""What a gate looks at in a row: medians and tails of the slowest rank, and what spoils them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from tcpx_mpi.records import Row, Run
from tcpx_mpi.stats import rate, samples_received, summarise
from tcpx_mpi.stats.bursts import without_gaps
from tcpx_mpi.stats.ratios import block_times_ns
from tcpx_mpi.units import counted

#: `-a 3`: the maximum over ranks.
_SLOWEST = 3


@dataclass(frozen=True)
class Figures:
    """Of the slowest of the ranks that receive; ns, GB/s."""

    #: The median over batches of a batch's time an iteration. Not of single iterations: these run
    #: back to back, and one that found its bytes already there took no time.
    time_ns: float
    #: Of single iterations; NaN below 299 of them, and where they came in bursts.
    p99_ns: float
    #: Of `time_ns`; NaN where nothing was sent.
    busbw: float


def figures_of(run: Run, row: Row) -> Figures:
    """Busbw is size / time x the pattern's factors; NaN for 0 bytes."""
    header = run.header
    times_ns = block_times_ns(row, _SLOWEST, header.time_divisor)
    time_ns = float(np.median(times_ns)) if times_ns.size else math.nan
    busbw = rate(row.size_bytes, time_ns) * header.size_factor
    skip = header.plan.per_iter_skip
    summary = without_gaps(
        header, summarise(row, _SLOWEST, header.busbw_factor, header.time_divisor, skip)
    )
    return Figures(time_ns, summary.per_iteration.p99, busbw if row.size_bytes else math.nan)


def flaws(row: Row) -> list[str]:
    """Why no figure of this row may be believed, though nothing of it is missing (`Run.missing`);
    empty: nothing known against it."""
    found = []
    for side in row.sides():
        if side.iterations < 1:
            found.append("no timed iteration")
        if not side.receives.any():
            found.append("no rank receives")
        if side.size_bytes > 0 and not side.checked[side.receives].all():
            found.append("its bytes were not checked by every rank that receives")
        if (side.wrong > 0).any():
            found.append(counted(int(side.wrong[side.wrong > 0].sum()), "wrong byte"))
        if any(times.min(initial=0) < 0 for times in samples_received(side)):
            found.append("an iteration has no time")
    return list(dict.fromkeys(found))
