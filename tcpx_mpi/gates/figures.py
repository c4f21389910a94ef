"""What a gate looks at in a row: medians and tails of the slowest rank, and what spoils them."""

from __future__ import annotations

from dataclasses import dataclass

from tcpx_mpi.records import Row, Run
from tcpx_mpi.stats import rate, summarise


@dataclass(frozen=True)
class Figures:
    """Of the time of an iteration, the maximum over the ranks that receive; ns, GB/s."""

    #: The median: one slow iteration moves it little, a slow row as a whole moves it fully.
    time_ns: float
    #: NaN below 299 iterations.
    p99_ns: float
    #: Of the median time; NaN where nothing was sent.
    busbw: float


def figures_of(run: Run, row: Row) -> Figures:
    """Busbw is size / median time x the pattern's factor; NaN for 0 bytes."""
    plan = run.header.plan
    summary = summarise(
        row, plan.average, run.header.busbw_factor, run.header.time_divisor, plan.per_iter_skip
    )
    median = summary.per_iteration.p50
    busbw = rate(row.size_bytes, median) * run.header.busbw_factor
    return Figures(median, summary.per_iteration.p99, busbw if row.size_bytes else float("nan"))


def flaws(run: Run, row: Row) -> list[str]:
    """Why no figure of this row may be believed; empty: nothing known against it."""
    world = run.header.world
    found = []
    if (ranks := row.samples["iteration"].shape[0]) != world:
        found.append(f"{ranks} of {world} ranks have samples")
    if row.iterations < 1:
        found.append("no timed iteration")
    if not row.receives.any():
        found.append("no rank receives")
    if row.size_bytes > 0 and not row.checked[row.receives].all():
        found.append("its bytes were not checked by every rank that receives")
    if (row.wrong > 0).any():
        found.append(f"{int(row.wrong[row.wrong > 0].sum())} wrong bytes")
    if (row.samples["iteration"][row.receives] < 0).any():
        found.append("an iteration has no time")
    return found
