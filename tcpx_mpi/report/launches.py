"""Several launches of a run: the representative one of each row, and the spread."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from tcpx_mpi.arrays import Float64s
from tcpx_mpi.records import Row, Run, RunHeader
from tcpx_mpi.report.field import Field
from tcpx_mpi.report.fields import BYTES, COUNTS, PERCENT, US
from tcpx_mpi.report.table import joined
from tcpx_mpi.stats import (
    Interval,
    Variation,
    median_interval,
    stretch_times_ns,
    typical_time_ns,
    variation,
)


@dataclass(frozen=True)
class RowOverLaunches:
    """A row of the table over all launches that have it."""

    index: int
    size_bytes: int
    #: The typical time of each launch in ns, in the order of the launches; NaN if unknown.
    times_ns: Float64s
    median_ns: Interval
    variation: Variation


#: The columns of such a row; those of JSON have a key.
SPREAD = (
    Field("size", BYTES, attrgetter("size_bytes"), 12, under=""),
    Field("launches", COUNTS, attrgetter("times_ns.size"), 8),
    Field("median", US, attrgetter("median_ns.estimate"), 12, "median_us"),
    Field("low", US, attrgetter("median_ns.low"), 12, "low_us"),
    Field("high", US, attrgetter("median_ns.high"), 12, "high_us"),
    Field("within", PERCENT, attrgetter("variation.within"), 9, "within_pct"),
    Field("between", PERCENT, attrgetter("variation.between"), 10, "between_pct"),
)


def rows_over_launches(run: Run) -> list[RowOverLaunches]:
    """Each row over the launches of a file, in the order of the table; [] for one launch."""
    if not run.launches:
        return []
    found = []
    for index, rows in sorted(_by_index(run).items()):
        times = np.array([_typical(header, row) for header, row in rows])
        stretches = [_stretches(header, row) for header, row in rows]
        found.append(
            RowOverLaunches(
                index, rows[0][1].size_bytes, times, median_interval(times), variation(stretches)
            )
        )
    return found


def representative(run: Run) -> Run:
    """The run whose rows are, each, those of the launch with the median time.

    A launch that found wrong bytes, or did not check, stands before all others: it must be seen.
    A file of one launch is what it is.
    """
    if not run.launches:
        return run
    rows = [_chosen(each) for _, each in sorted(_by_index(run).items())]
    return dataclasses.replace(run, rows=rows)


def launches_lines(run: Run) -> list[str]:
    """The table of launches, comments for scripts that read the rows; [] for one launch."""
    rows = rows_over_launches(run)
    if not rows:
        return []
    titles = joined([f"{field.name}{field.beneath}" for field in SPREAD], SPREAD)
    return [
        "#",
        f"## {1 + len(run.launches)} launches, sizes in an order of its own in each; the table has "
        "the launch with the median time",
        f"## {titles}",
        *(f"## {joined([field.text(row) for field in SPREAD], SPREAD)}" for row in rows),
    ]


def _by_index(run: Run) -> dict[int, list[tuple[RunHeader, Row]]]:
    rows: dict[int, list[tuple[RunHeader, Row]]] = {}
    for launch in run.all_launches:
        for row in launch.rows:
            rows.setdefault(row.index, []).append((launch.header, row))
    return rows


def _chosen(rows: Sequence[tuple[RunHeader, Row]]) -> Row:
    for _, row in rows:
        if any(bool((side.wrong > 0).any()) for side in row.of_plugin()):
            return row
    for _, row in rows:
        sides = row.of_plugin() if row.size_bytes > 0 else []
        if not all(bool(side.checked[side.receives].all()) for side in sides):
            return row
    times = np.array([_typical(header, row) for header, row in rows])
    order = np.argsort(times, kind="stable")  # NaN last
    return rows[int(order[(len(rows) - 1) // 2])][1]


def _typical(header: RunHeader, row: Row) -> float:
    return typical_time_ns(row, header.plan.average, header.time_divisor, header.back_to_back)


def _stretches(header: RunHeader, row: Row) -> Float64s:
    return stretch_times_ns(row, header.plan.average, header.time_divisor, header.back_to_back)
