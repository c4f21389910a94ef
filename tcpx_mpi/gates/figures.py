"""Figures of a row that a gate limits: medians, tails of the slowest rank, what voids them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping

import numpy as np

from tcpx_mpi.findings.placement import line_rate_percent
from tcpx_mpi.records import Row, Run, SideKey
from tcpx_mpi.stats import rate, samples_received, summarise
from tcpx_mpi.stats.bursts import without_gaps
from tcpx_mpi.stats.ratios import block_times_ns, other_network, ratios, strongest
from tcpx_mpi.stats.series import elapsed_ns
from tcpx_mpi.stats.spread import node_spread
from tcpx_mpi.units import counted

#: `-a 3`: the maximum over ranks.
_SLOWEST = 3


class Figures:
    """The figures of one row, each worked out on demand: ns, GB/s, NaN if unknown."""

    def __init__(self, run: Run, row: Row) -> None:
        self._header, self._row = run.header, row

    @functools.cached_property
    def time_ns(self) -> float:
        """The time of the slowest of the ranks that receive: the median over batches of a batch's
        time an iteration. Not of single iterations: these run back to back, and one that found its
        bytes already there took no time."""
        times_ns = block_times_ns(self._row, _SLOWEST, self._header.time_divisor)
        return float(np.median(times_ns)) if times_ns.size else math.nan

    @functools.cached_property
    def p99_ns(self) -> float:
        """The 99th percentile of single iterations; NaN below 299 of them, and if they came in
        bursts."""
        header, skip = self._header, self._header.plan.per_iter_skip
        summary = summarise(self._row, _SLOWEST, header.busbw_factor, header.time_divisor, skip)
        return without_gaps(header, self._row, summary).per_iteration.p99

    @property
    def busbw(self) -> float:
        """Size / `time_ns` times the pattern's factors; NaN if nothing was sent."""
        size = self._row.size_bytes
        return rate(size, self.time_ns) * self._header.size_factor if size else math.nan

    def ratio_to(self, kind: str) -> float:
        """To the baseline of this kind that was fastest beside the row; NaN where it is void or
        received wrong bytes."""
        header, row = self._header, self._row
        beside = [each for each in header.baselines if each.kind == kind]
        sides = [SideKey(each.name) for each in beside]
        found = ratios(
            row, {side: row.sides[side] for side in sides if side in row.sides}, _SLOWEST,
            header.size_factor, header.time_divisor,
            {each.name: each.floor_gbps for each in beside},
            {each.name: other_network(header, each) for each in beside},
        )  # fmt: skip
        best = strongest(found, [each.name for each in beside])
        return math.nan if best is None or best.void or best.wrong else best.ratio

    @property
    def line_rate_percent(self) -> float:
        """The least share of its rate that a NIC came to, of those whose ranks have peers on other
        nodes; NaN if one of them is unknown."""
        elapsed = float(elapsed_ns(self._row.samples["iteration"]).max(initial=0))
        found = [
            line_rate_percent(info, proof, elapsed)
            for info, proof in zip(self._header.ranks, self._row.proof, strict=False)
            if proof.remote_bytes > 0
        ]
        known = [each for each in found if each is not None]
        return min(known) if known and len(known) == len(found) else math.nan

    @property
    def node_spread(self) -> float:
        """`stats.spread`."""
        by_rank = sorted(self._header.ranks, key=lambda info: info.rank)
        return node_spread(self._row, [info.node for info in by_rank])


#: What a key of `gate.BOUNDS` bounds, in the unit of that.
FIGURES: Mapping[str, Callable[[Figures], float]] = {
    "busbw_min": lambda figures: figures.busbw,
    "time_us_max": lambda figures: figures.time_ns / 1e3,
    "p99_us_max": lambda figures: figures.p99_ns / 1e3,
    "ratio_raw_min": lambda figures: figures.ratio_to("raw"),
    "ratio_mpi_min": lambda figures: figures.ratio_to("mpi"),
    "ratio_nccl_min": lambda figures: figures.ratio_to("nccl"),
    "line_rate_percent_min": lambda figures: figures.line_rate_percent,
    "node_spread_max": lambda figures: figures.node_spread,
}


def figures_of(run: Run, row: Row) -> Figures:
    """The figures of a row that a gate can ask for."""
    return Figures(run, row)


def flaws(row: Row) -> list[str]:
    """Why no figure of this row may be believed, though nothing of it is missing (`Run.missing`);
    empty: nothing known against it."""
    found = []
    for side in row.of_plugin():
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
