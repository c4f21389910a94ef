"""The table in the format of nccl-tests: 13 standard columns first, ours to their right."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from itertools import groupby

from tcpx_mpi.findings.stragglers import ends_of, ways_of
from tcpx_mpi.records import IN_PLACE, Row, RunHeader, SideKey
from tcpx_mpi.report.field import Field
from tcpx_mpi.report.fields import STANDARD, pipe_fields
from tcpx_mpi.stats import RowSummary, summarise
from tcpx_mpi.stats.bursts import without_gaps
from tcpx_mpi.stats.load import load_figures
from tcpx_mpi.stats.one_way import one_way
from tcpx_mpi.stats.open_loop import open_loop
from tcpx_mpi.stats.ratios import Ratio, other_network, ratios


def summarise_row(header: RunHeader, row: Row) -> RowSummary:
    """The numbers of a row as this run's options ask for them."""
    plan = header.plan
    summary = summarise(
        row, plan.average, header.busbw_factor, header.time_divisor, plan.per_iter_skip,
        header.algbw_factor,
    )  # fmt: skip
    summary = without_gaps(header, row, summary)
    if header.unpack == "none":
        # An ablation: time without a part of the work is no bandwidth of anything.
        nan = math.nan
        return dataclasses.replace(summary, algbw=nan, busbw=nan, mmsg_per_s=nan, net_bw=nan)
    if (load := load_figures(row, plan.average)) is not None:
        # What is timed is a part of an iteration, and what crosses the network all of it.
        summary = dataclasses.replace(summary, load=load, net_bw=math.nan)
    if plan.one_way:
        pairs, answered = ways_of(header, row)
        clocks = [max(info.clock, 0) for info in header.ranks]
        one = one_way(row, pairs, clocks, answered, plan.per_iter_skip)
        summary = dataclasses.replace(summary, one_way=one)
    if row.rate_per_s:
        begin, hear = ends_of(header, row)
        clocks = [max(info.clock, 0) for info in header.ranks]
        loop = open_loop(row, begin, hear, clocks, plan.per_iter_skip)
        summary = dataclasses.replace(summary, open_loop=loop)
    voids = {each.name: other_network(header, each) for each in header.baselines}
    found: dict[SideKey, Ratio] = {}
    for ours, place in ((row, ""), (row.sides.get(SideKey(place=IN_PLACE)), IN_PLACE)):
        if ours is None:
            continue
        beside = {s: each for s, each in row.sides.items() if s.transport and s.place == place}
        found |= ratios(
            ours, beside, plan.average, header.size_factor,
            header.time_divisor,
            {baseline.name: baseline.floor_gbps for baseline in header.baselines},
            voids,
        )  # fmt: skip
    return dataclasses.replace(summary, ratios=found)


def title_lines(header: RunHeader) -> list[str]:
    """The three heading lines over the rows, all comments."""
    first, *lines = heading(pipe_fields(header))
    # The trailing blanks are nccl-tests' own.
    return [first, *(f"{line} " for line in lines)]


def heading(ours: Sequence[Field]) -> list[str]:
    """The line over nccl-tests' columns, and over those to their right."""
    fields = [*STANDARD, *ours]
    groups = f"{'#':<63}out-of-place{'':<23}in-place".ljust(_width(STANDARD))
    for label, members in groupby(ours, key=lambda field: field.group):
        groups += "  " + label.center(_width(list(members)))
    names = joined([field.name for field in fields], fields)
    units = joined([field.beneath for field in fields], fields)
    return ["#", groups.rstrip(), "#" + names[1:], "#" + units[1:]]


def row_line(header: RunHeader, summary: RowSummary) -> str:
    """One row of the table; splitting it at blanks gives the 13 fields of nccl-tests first."""
    fields = [*STANDARD, *pipe_fields(header)]
    return joined([field.text(summary) for field in fields], fields)


def joined(texts: Sequence[str], fields: Sequence[Field]) -> str:
    """A line of these columns."""
    pairs = zip(texts, fields, strict=True)
    return "  ".join(text.rjust(field.columns) for text, field in pairs)


def _width(fields: Sequence[Field]) -> int:
    return sum(field.columns for field in fields) + 2 * (len(fields) - 1)
