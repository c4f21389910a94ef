"""Launches on a page: the time of each one, of a file of several and of two files compared."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tcpx_mpi.arrays import Float64s
from tcpx_mpi.compare import launch_times
from tcpx_mpi.records import Run
from tcpx_mpi.report.field import UNKNOWN
from tcpx_mpi.report.html.axes import Plot, empty_axes, legend, plain_number
from tcpx_mpi.report.html.svg import COLOURS
from tcpx_mpi.report.html.tables import LINES_SHOWN, Column, Line, Table, left_out
from tcpx_mpi.report.launches import SPREAD, rows_over_launches
from tcpx_mpi.units import format_size, format_time_us

#: Rows that have a column of their own, the first ones.
COLUMNS_SHOWN = 12
#: Dots of a picture: more of them hide each other.
DOTS_SHOWN = 2000
_MARKERS = (("series-1", "o"), ("series-2", "s"))


@dataclass(frozen=True)
class Side:
    """The launches of a file; `name` tells two files apart, "" if there is one."""

    name: str
    #: When each of them began.
    starts: list[str]
    #: The typical time of each row in each launch, ns, float64[launch]; NaN if there is none.
    times_ns: Mapping[str, Float64s]


def side_of(run: Run, name: str = "") -> Side:
    """The launches of a run, by rows in the order of their sizes."""
    starts = [launch.header.start_time for launch in run.all_launches]
    return Side(name, starts, {str(key): times for key, times in launch_times(run).items()})


def launches_table(sides: Sequence[Side]) -> Table:
    """A line a launch, in the order in which they were begun, with its time of each row."""
    rows = _rows(sides)
    launches = _in_order_of_time(sides)
    shown, columns = launches[:LINES_SHOWN], rows[:COLUMNS_SHOWN]
    lines = tuple(
        Line(
            (
                f"{side.name} {number + 1}".strip(),
                side.starts[number],
                *(_time(_at(side, row, number)) for row in columns),
            )
        )
        for side, number in shown
    )
    notes = (
        left_out(len(shown), len(launches), "launches, the earliest"),
        left_out(len(columns), len(rows), "rows, the smallest"),
    )
    return Table(
        "Time of each launch, in the order of time",
        (
            Column("launch", is_text=True),
            Column("begun", is_text=True),
            *(Column(row, "us") for row in columns),
        ),
        lines,
        " ".join(note for note in notes if note),
    )


def spread_table(run: Run) -> Table:
    """Each row over the launches: its median with the interval, and how launches vary."""
    size, *spread = SPREAD
    rows = rows_over_launches(run)
    shown = rows[:LINES_SHOWN]
    lines = tuple(
        Line((format_size(row.size_bytes), *(field.page_text(row) for field in spread)))
        for row in shown
    )
    note = (
        "The interval holds the median launch in 95 % of cases (n/a below 6 launches). Within and "
        "between: the deviation of stretches of a launch, and of launches, over the median. "
    )
    return Table(
        f"{len(run.all_launches):,} launches",
        (Column(size.name), *(Column(field.name, field.unit.name) for field in spread)),
        lines,
        note + left_out(len(shown), len(rows), "rows"),
    )


def launches_plot(sides: Sequence[Side]) -> Plot | None:
    """The time of each launch beside the others, in the order of time; None without any.

    Each row is taken over its median in the first file, so that all are seen in one picture.
    """
    from matplotlib.ticker import MaxNLocator

    order = _in_order_of_time(sides)
    rows = _rows(sides)
    drawn = rows[:: max(1, math.ceil(len(rows) * len(order) / DOTS_SHOWN))]
    usual = {row: _median(sides[0].times_ns.get(row, np.empty(0))) for row in drawn}
    drawn = [row for row in drawn if usual[row] > 0]
    if not drawn:
        return None
    heading = "Time of each launch"
    farthest: tuple[float, str] = (1.0, "")
    with empty_axes("launches", 230) as plot:
        plot.axes.axhline(1, color=COLOURS["ceiling"], linestyle=(0, (4, 3)), linewidth=1.2)
        for side, (colour, marker) in zip(sides, _MARKERS, strict=False):
            places = [place for place, (of, _) in enumerate(order, start=1) if of is side]
            numbers = [number for of, number in order if of is side]
            shares = np.array(
                [[_at(side, row, number) / usual[row] for number in numbers] for row in drawn]
            )
            plot.axes.plot(
                places, shares.T, marker, color=COLOURS[colour], markersize=3.5, alpha=0.45,
                markeredgewidth=0,
            )  # fmt: skip
            middle = np.array([_median(column) for column in shares.T])
            plot.axes.plot(
                places, middle, color=COLOURS[colour], linewidth=1.6,
                label=f"launches of {side.name}" if side.name else "median over rows",
            )  # fmt: skip
            for number, share in zip(numbers, middle, strict=True):
                if share > 0 and abs(math.log(share)) > abs(math.log(farthest[0])):
                    farthest = (float(share), f"{side.name} {number + 1}".strip())
        plot.axes.set_xlabel("launch, in the order of time")
        plot.axes.set_ylabel("time over the median" + (" of A" if len(sides) > 1 else ""))
        plot.axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        plot.axes.yaxis.set_major_formatter(plain_number)
        legend(plot.axes)
        description = (
            f"Farthest: launch {farthest[1]}, {farthest[0]:.3g} x the median" if farthest[1] else ""
        ) or "All launches take the same time"
        svg = plot.finished(heading, description)
    caption = f"A dot is a row of a launch, the line their median. {description}."
    if len(drawn) < len(rows):
        caption += f" {len(drawn):,} of {len(rows):,} rows are drawn."
    return Plot(heading, svg, caption)


def _rows(sides: Sequence[Side]) -> list[str]:
    return list(dict.fromkeys(row for side in sides for row in side.times_ns))


def _in_order_of_time(sides: Sequence[Side]) -> list[tuple[Side, int]]:
    """(side, number of its launch from 0)."""
    launches = [(side, number) for side in sides for number in range(len(side.starts))]
    return sorted(launches, key=lambda launch: launch[0].starts[launch[1]])


def _at(side: Side, row: str, number: int) -> float:
    times = side.times_ns.get(row)
    return float(times[number]) if times is not None else math.nan


def _median(values: Float64s) -> float:
    known = values[~np.isnan(values)]
    return float(np.median(known)) if known.size else math.nan


def _time(time_ns: float) -> str:
    return format_time_us(time_ns, 9, UNKNOWN)
