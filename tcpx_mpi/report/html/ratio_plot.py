"""The ratios of a comparison as a picture: each row with its interval, beside no difference."""

from __future__ import annotations

import math

import numpy as np

from tcpx_mpi.compare import Comparison, RowComparison, Verdict
from tcpx_mpi.report.html.axes import Plot, empty_axes, legend, plain_number
from tcpx_mpi.report.html.svg import COLOURS

#: Rows of the picture: those that differ most.
ROWS_SHOWN = 24
_LONGEST_NAME = 24
_COLOURS = {
    Verdict.SAME: "series-1",
    Verdict.BETTER: "series-3",
    Verdict.WORSE: "bad",
    Verdict.INCONCLUSIVE: "doubtful",
}
_MARKERS = {
    Verdict.SAME: "o",
    Verdict.BETTER: "^",
    Verdict.WORSE: "v",
    Verdict.INCONCLUSIVE: "D",
}


def ratio_plot(comparison: Comparison) -> Plot | None:
    """Each row's ratio, its interval where it has one, and the verdict; None without a ratio."""
    known = [row for row in comparison.rows if row.shift.ratio.estimate > 0]
    if not known:
        return None
    farthest = sorted(range(len(known)), key=lambda n: -abs(math.log(_ratio(known[n]))))
    rows = [known[n] for n in sorted(farthest[:ROWS_SHOWN])]
    most = known[farthest[0]]
    heading = "Ratio of each row"
    tolerance = comparison.limits.tolerance
    with empty_axes("ratios", 70 + 20 * len(rows)) as plot:
        axes = plot.axes
        axes.axvspan(1 - tolerance, 1 + tolerance, color=COLOURS["grid"], linewidth=0)
        axes.axvline(1, color=COLOURS["ceiling"], linestyle=(0, (4, 3)), linewidth=1.2)
        for verdict in Verdict:
            places = [n for n, row in enumerate(rows) if row.verdict is verdict]
            if not places:
                continue
            colour = COLOURS[_COLOURS[verdict]]
            lows, highs = (
                [getattr(rows[n].shift.ratio, bound) for n in places] for bound in ("low", "high")
            )
            bounded = ~np.isnan(np.array(lows))
            axes.hlines(
                np.array(places)[bounded], np.array(lows)[bounded], np.array(highs)[bounded],
                color=colour, linewidth=2,
            )  # fmt: skip
            axes.plot(
                [_ratio(rows[n]) for n in places], places, _MARKERS[verdict], color=colour,
                markersize=6, label=verdict.value,
            )  # fmt: skip
        axes.set_yticks(range(len(rows)), [_name(row) for row in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.grid(visible=False, axis="y")
        axes.xaxis.set_major_formatter(plain_number)
        axes.set_xlabel("time of A over time of B: above 1 B is faster")
        legend(axes)
        description = f"Most: {_ratio(most):.4g} at {most.key}"
        svg = plot.finished(heading, description)
    share = f"{100 * comparison.confidence:.4g} %"
    caption = f"{description}. The lines are intervals of {share}, the band is the tolerance."
    if not all(math.isfinite(row.shift.ratio.low) for row in rows):
        caption += " A row without a line had too few launches for an interval."
    if len(rows) < len(comparison.rows):
        caption += f" The {len(rows)} of {len(comparison.rows):,} rows that differ most are drawn."
    return Plot(heading, svg, caption)


def _ratio(row: RowComparison) -> float:
    return row.shift.ratio.estimate


def _name(row: RowComparison) -> str:
    name = str(row.key)
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 3] + "..."
