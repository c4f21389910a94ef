"""What the tap recorded of a job as the text of one HTML page."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tcpx_mpi.report.html.axes import Plot, empty_axes, plain_number
from tcpx_mpi.report.html.page import rendered
from tcpx_mpi.report.html.svg import COLOURS
from tcpx_mpi.report.html.tables import LINES_SHOWN, Column, Line, Table
from tcpx_mpi.tap import text
from tcpx_mpi.tap.joined import Job
from tcpx_mpi.tap.ways import Summary, Way
from tcpx_mpi.units import counted

#: Ways of most bytes, a plot each.
_PLOTS = 12
_NOTE = (
    "Time is the caller's (NCCL's) while nothing is posted, the receiver's while a message has no "
    "receive yet, else the plugin's and the network's."
)
_OF_TEXT = {"from", "to", "NIC", "of", "way"}


def tap_page(job: Job, summary: Summary) -> str:
    """The page of a job; it refers to nothing outside of itself."""
    problems = list(text.problems(job))
    by_bytes = sorted(summary.ways, key=lambda way: -way.bytes)
    ways = [text.way_cells(way) for way in summary.ways]
    return rendered(
        "tap.html",
        {
            "title": text.heading(job),
            "level": "doubtful" if problems else "good",
            "word": "Not whole" if problems else "Whole",
            "sentences": problems or ["every record is there, and both ends of every connection"],
            "ways": _table("Ways", text.WAYS, ways, _NOTE),
            "nics": _table("NICs", text.NICS, [text.nic_cells(nic) for nic in summary.nics], ""),
            "plots": [_plot(number, way) for number, way in enumerate(by_bytes[:_PLOTS])],
            "remarks": [*map(text.way_line, by_bytes[:LINES_SHOWN]), *text.log_lines(job)],
        },
    )


def _table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[str]], note: str) -> Table:
    more = len(rows) - LINES_SHOWN
    left_out = f" {counted(more, 'row')} more: tcpx-mpi tap --json has all." if more > 0 else ""
    columns = tuple(Column(head, "", head in _OF_TEXT) for head in heads)
    lines = tuple(Line(tuple(row)) for row in rows[:LINES_SHOWN])
    return Table(caption, columns, lines, note + left_out)


def _plot(number: int, way: Way) -> Plot:
    """The bandwidth of a way over its time."""
    heading = f"{way.sender} > {way.receiver}"
    edges = np.linspace(0, way.span_ns / 1e6, len(way.over_time) + 1)
    with empty_axes(f"way-{number}", 200) as plot:
        axes = plot.axes
        axes.stairs(way.over_time, edges, color=COLOURS["series-1"], linewidth=1.6)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("ms since its first message")
        axes.set_ylabel("GB/s")
        axes.xaxis.set_major_formatter(plain_number)
        axes.yaxis.set_major_formatter(plain_number)
        svg = plot.finished(heading, f"bandwidth from {way.sender} to {way.receiver} over time")
    shares = (
        f"{100 * way.caller:.0f} % of the time is the caller's, "
        f"{100 * way.receiver_late:.0f} % the receiver's, "
        f"{100 * way.plugin:.0f} % the plugin's and the network's."
    )
    return Plot(heading, svg, f"{way.messages} messages over {way.sender_nic}; {shares}")
