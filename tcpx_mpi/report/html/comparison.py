"""A comparison as the text of one HTML page."""

from __future__ import annotations

import math

import numpy as np

from tcpx_mpi.arrays import Float64s
from tcpx_mpi.compare import Comparison, RowComparison, Verdict
from tcpx_mpi.compare.text import verdict_text
from tcpx_mpi.report.field import UNKNOWN
from tcpx_mpi.report.html.launches import launches_plot, launches_table, side_of
from tcpx_mpi.report.html.page import rendered
from tcpx_mpi.report.html.ratio_plot import ratio_plot
from tcpx_mpi.report.html.tables import LINES_SHOWN, Column, Line, Table
from tcpx_mpi.units import format_time_us

_LEVELS = {
    Verdict.SAME: "good",
    Verdict.BETTER: "good",
    Verdict.WORSE: "bad",
    Verdict.INCONCLUSIVE: "doubtful",
}
_MARKS = {Verdict.WORSE: "bad", Verdict.INCONCLUSIVE: "doubtful"}


def comparison_page(comparison: Comparison) -> str:
    """The page of a comparison; it refers to nothing outside of itself."""
    sides = [side_of(comparison.first, "A"), side_of(comparison.second, "B")]
    return rendered(
        "comparison.html",
        {
            "title": f"{comparison.second.path} beside {comparison.first.path}",
            "level": _LEVELS[comparison.verdict],
            "word": comparison.verdict.value.capitalize(),
            "sentences": [verdict_text(comparison).partition(": ")[2]],
            "files": _files_table(comparison),
            "rows": _rows_table(comparison),
            "plots": [plot for plot in (ratio_plot(comparison), launches_plot(sides)) if plot],
            "differences": _differences(comparison),
            "launches": launches_table(sides),
        },
    )


def _files_table(comparison: Comparison) -> Table:
    columns = ("file", "path", "pattern", "ranks", "plugin", "launches", "begun")
    lines = []
    for name, run in (("A", comparison.first), ("B", comparison.second)):
        header = run.header
        cells = (name, run.path, header.pattern, str(header.world), header.plugin_name,
                 str(len(run.all_launches)), header.start_time)  # fmt: skip
        lines.append(Line(cells))
    return Table("Files", tuple(Column(title, is_text=True) for title in columns), tuple(lines))


def _rows_table(comparison: Comparison) -> Table:
    texts = ("row", "verdict", "why")
    columns = tuple(
        Column(title, unit, title in texts)
        for title, unit in (
            ("row", ""), ("A", "us"), ("B", "us"), ("launches", ""), ("ratio", ""), ("low", ""),
            ("high", ""), ("p", ""), ("verdict", ""), ("why", ""),
        )
    )  # fmt: skip
    lines = [_row_line(row) for row in comparison.rows[:LINES_SHOWN]]
    lines += [
        Line((str(key), *[UNKNOWN] * 7, "inconclusive", "only in one file"), "doubtful")
        for key in comparison.unmatched[:LINES_SHOWN]
    ]
    note = (
        "Ratio: time of A over time of B, above 1 B is faster. The intervals hold for all rows "
        f"together in 95 % of comparisons, each alone with {100 * comparison.confidence:.4g} %."
    )
    return Table("Times, ratios and verdicts", columns, tuple(lines), note)


def _row_line(row: RowComparison) -> Line:
    ratio = row.shift.ratio
    figures = (ratio.estimate, ratio.low, ratio.high, row.shift.p_value)
    cells = (
        str(row.key),
        _time(row.first_ns),
        _time(row.second_ns),
        f"{row.first_ns.size}+{row.second_ns.size}",
        *(f"{value:.4f}" if math.isfinite(value) else UNKNOWN for value in figures),
        row.verdict.value,
        row.reason,
    )
    return Line(cells, _MARKS.get(row.verdict, ""))


def _differences(comparison: Comparison) -> Table:
    lines = tuple(
        Line((f"{each.section} {each.name}", each.first, each.second))
        for each in comparison.differences[:LINES_SHOWN]
    )
    titles = ("what", "A", "B")
    return Table(
        "What differs beside the times", tuple(Column(t, is_text=True) for t in titles), lines
    )


def _time(times_ns: Float64s) -> str:
    return format_time_us(float(np.median(times_ns)), 10, UNKNOWN)
