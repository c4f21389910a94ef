"""The plots of a page: each from the numbers of the rows to an inline SVG with its words.

A plot's caption says what is drawn, and what is left out of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tcpx_mpi.arrays import Float64s
from tcpx_mpi.findings.rows import is_unchecked
from tcpx_mpi.records import Row, RunHeader, SetupTimes
from tcpx_mpi.report.fields import P50, P99
from tcpx_mpi.report.html.axes import Plot, empty_axes, legend, plain_log_ticks, plain_number
from tcpx_mpi.report.html.ceilings import LineRate
from tcpx_mpi.report.html.svg import COLOURS
from tcpx_mpi.stats import RowSummary, at_place, in_order, rank_times_ns
from tcpx_mpi.stats.ratios import strongest
from tcpx_mpi.units import fit_number, format_size, format_size_option

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Ranks in a picture of all ranks: more are too narrow to read. The slowest are taken.
RANKS_SHOWN = 32
#: Marks of a phase of the set-up, the slowest: beyond that they hide each other.
MARKS_SHOWN = 256
#: Rows whose ranks are shown, spread over the sizes.
DISTRIBUTIONS_SHOWN = 4
#: A ceiling this many times the highest bandwidth is named, not drawn: it would flatten all else.
_CEILING_IN_SIGHT = 4
_MARKERS_UP_TO = 40
_SIZE_TICKS = 8
_SERIES = ("series-1", "series-2", "series-3", "series-4", "series-5")


@dataclass(frozen=True)
class Line:
    """A line over sizes: one value a size, with the least and largest over cycles around it."""

    label: str
    sizes: list[int]
    middle: list[float]
    low: list[float]
    high: list[float]


def bandwidth_plot(
    header: RunHeader, summaries: Sequence[RowSummary], ceiling: LineRate
) -> Plot | None:
    """Bus bandwidth over size, with baselines and the NIC's line rate; None without a bandwidth."""
    ours = line_over_sizes("bus bandwidth", summaries, lambda s: s.busbw)
    if not ours.sizes:
        return None
    baselines = _baselines_over_sizes(header, summaries)
    highest = max(max(line.high) for line in (ours, *baselines))
    drawn = ceiling.gb_per_s <= _CEILING_IN_SIGHT * highest
    heading = "Bandwidth over size"
    with empty_axes("bandwidth", 250) as plot:
        _draw_line(plot.axes, ours, _SERIES[0])
        for line, colour in zip(baselines, itertools.cycle(_SERIES[1:]), strict=False):
            _draw_line(plot.axes, line, colour, dashed=True)
        _mark_rows(plot.axes, summaries)
        if drawn:
            plot.axes.axhline(
                ceiling.gb_per_s, color=COLOURS["ceiling"], linestyle=(0, (4, 3)), linewidth=1.5,
                label="NIC line rate",
            )  # fmt: skip
        plot.axes.set_ylim(0, 1.08 * max(highest, ceiling.gb_per_s if drawn else 0))
        _size_axis(plot.axes, ours.sizes)
        legend(plot.axes)
        plot.axes.set_ylabel("GB/s a rank (1e9 bytes a second)")
        best = ours.sizes[int(np.argmax(ours.middle))]
        description = (
            f"{_figure(ours.middle[0])} GB/s at {format_size(ours.sizes[0])}, at most "
            f"{_figure(max(ours.middle))} GB/s at {format_size(best)}"
        )
        svg = plot.finished(heading, description)
    beside = "Dashed: peers that took turns with it. " if baselines else ""
    caption = f"{description}. {_cycles_note(ours)}{beside}{_ceiling_note(ceiling, drawn)}"
    return Plot(heading, svg, caption + _zero_note(summaries))


def time_plot(summaries: Sequence[RowSummary]) -> Plot | None:
    """Time over size, and its percentiles by iteration; None without a time."""
    lines = [
        line_over_sizes("time", summaries, lambda s: s.time_ns / 1e3),
        line_over_sizes("slowest rank", summaries, lambda s: s.t_max_ns / 1e3),
        line_over_sizes(P50.name, summaries, P50.data),
        line_over_sizes(P99.name, summaries, P99.data),
    ]
    lines = [line for line in lines if line.sizes]
    if not lines:
        return None
    heading = "Time over size"
    with empty_axes("time", 250) as plot:
        for line, colour in zip(lines, _SERIES, strict=False):
            _draw_line(plot.axes, line, colour)
        # Often on top of another line: dashed, so that both are seen. An imported run has one.
        for second in plot.axes.lines[1:2]:
            second.set(linestyle=(0, (3, 2.5)), zorder=3)
        plot.axes.set_yscale("log")
        plain_log_ticks(plot.axes, "y")
        _size_axis(plot.axes, lines[0].sizes)
        legend(plot.axes)
        plot.axes.set_ylabel("us")
        first = lines[0]
        description = (
            f"{_figure(first.middle[0])} us at {format_size(first.sizes[0])}, "
            f"{_figure(first.middle[-1])} us at {format_size(first.sizes[-1])}"
        )
        svg = plot.finished(heading, description)
    percentiles = (
        " p50 and p99 are of the slowest rank, iteration by iteration; p99 needs 299 iterations."
        if len(lines) > 1
        else ""
    )
    return Plot(heading, svg, f"{description}.{percentiles} {_cycles_note(first)}".strip())


def distribution_plots(
    header: RunHeader, rows: Sequence[Row], summaries: Sequence[RowSummary]
) -> list[Plot]:
    """The spread of each rank's iterations, in a few rows from the smallest to the largest."""
    # The first of each size: cycles repeat the sizes.
    by_size: dict[int, tuple[Row, RowSummary]] = {}
    for row, summary in zip(rows, summaries, strict=True):
        if row.size_bytes not in by_size and _is_timed(summary):
            by_size[row.size_bytes] = (row, summary)
    sizes = sorted(by_size)
    positions = np.linspace(0, len(sizes) - 1, min(DISTRIBUTIONS_SHOWN, len(sizes)))
    return [
        _distribution_plot(header, *by_size[sizes[round(float(position))]])
        for position in positions
    ]


def setup_plot(setup: SetupTimes) -> Plot | None:
    """The longest call of each phase on each rank; None without set-up times."""
    phases = setup.phases()
    if not phases:
        return None
    heading = "Longest call of each rank"
    slowest = []
    with empty_axes("setup", 60 + 34 * len(phases)) as plot:
        for position, phase in enumerate(phases):
            longest = longest_by_rank(setup, phase)
            times = sorted(longest.values(), reverse=True)[:MARKS_SHOWN]
            plot.axes.plot(
                np.array(times) / 1e3, [position] * len(times), "|", markersize=14,
                color=COLOURS["series-1"], markeredgewidth=1.6,
            )  # fmt: skip
            rank = max(longest, key=lambda r, of=longest: of[r])  # type: ignore[misc]  # mypy cannot infer a lambda's default
            slowest.append(f"{phase} {_figure(longest[rank] / 1e3)} us (rank {rank})")
        plot.axes.set_xscale("log")
        plain_log_ticks(plot.axes, "x")
        plot.axes.set_xlabel("us")
        plot.axes.set_yticks(range(len(phases)), phases)
        plot.axes.set_ylim(len(phases) - 0.4, -0.6)
        plot.axes.grid(visible=False, axis="y")
        description = f"Slowest: {', '.join(slowest)}"
        svg = plot.finished(heading, description)
    ranks = len(set(setup.table["rank"].tolist()))
    note = (
        f" Of {ranks:,} ranks the {MARKS_SHOWN} slowest are drawn." if ranks > MARKS_SHOWN else ""
    )
    return Plot(heading, svg, f"A mark is a rank. {description}.{note}")


def longest_by_rank(setup: SetupTimes, phase: str) -> dict[int, int]:
    """Nanoseconds of each rank's longest call of a phase, by rank."""
    longest: dict[int, int] = {}
    table = setup.of(phase)
    for rank, ns in zip(table["rank"].tolist(), table["ns"].tolist(), strict=True):
        longest[rank] = max(ns, longest.get(rank, ns))
    return longest


def line_over_sizes(
    label: str, summaries: Sequence[RowSummary], value: Callable[[RowSummary], float]
) -> Line:
    """A value over sizes: the median over cycles; sizes of 0 and unknown values are left out."""
    by_size: dict[int, list[float]] = {}
    for summary in summaries:
        number = value(summary)
        if summary.size_bytes > 0 and math.isfinite(number):
            by_size.setdefault(summary.size_bytes, []).append(number)
    sizes = sorted(by_size)
    return Line(
        label=label,
        sizes=sizes,
        middle=[float(np.median(by_size[size])) for size in sizes],
        low=[min(by_size[size]) for size in sizes],
        high=[max(by_size[size]) for size in sizes],
    )


def _is_timed(summary: RowSummary) -> bool:
    times = summary.iteration_max_ns()
    return times.size > 0 and not math.isnan(times.max())


def _distribution_plot(header: RunHeader, row: Row, summary: RowSummary) -> Plot:
    receiving = np.flatnonzero(row.receives)
    by_time = receiving[np.argsort(-summary.time_ns_by_rank[receiving], kind="stable")]
    shown = np.sort(by_time[:RANKS_SHOWN])
    copies = row.agg * header.time_divisor
    samples = row.samples["iteration"]
    boxes = [_box(rank_times_ns(samples[rank], copies, row.spool), row.spool) for rank in shown]
    middle = float(np.median(summary.time_ns_by_rank[receiving]) / 1e3)
    heading = f"{format_size(row.size_bytes)}, row {row.index}"
    with empty_axes(f"ranks-{row.index}", 210) as plot:
        plot.axes.bxp(
            boxes,
            positions=range(len(shown)),
            widths=0.6,
            showfliers=False,
            patch_artist=True,
            boxprops={"facecolor": COLOURS["series-1"], "edgecolor": "none", "alpha": 0.55},
            medianprops={"color": COLOURS["ink"], "linewidth": 1.6},
            whiskerprops={"color": COLOURS["series-1"], "linewidth": 1.2},
            capprops={"color": COLOURS["series-1"], "linewidth": 1.2},
        )
        means = summary.time_ns_by_rank[shown] / 1e3
        plot.axes.plot(
            range(len(shown)), means, "D", markersize=4, color=COLOURS["series-2"],
            label="mean of a rank",
        )  # fmt: skip
        plot.axes.axhline(
            middle, color=COLOURS["ceiling"], linestyle=(0, (4, 3)), linewidth=1.2,
            label="median of the means",
        )  # fmt: skip
        highest = max(box["whishi"] for box in boxes)
        usual = float(np.median([box["med"] for box in boxes]))
        if highest > 10 * usual and min(box["whislo"] for box in boxes) > 0:
            plot.axes.set_yscale("log")
            plain_log_ticks(plot.axes, "y")
        else:
            plot.axes.set_ylim(0, 1.06 * highest)
            plot.axes.yaxis.set_major_formatter(plain_number)
        every = math.ceil(len(shown) / 12)
        plot.axes.set_xticks(range(0, len(shown), every), [str(rank) for rank in shown[::every]])
        plot.axes.grid(visible=False, axis="x")
        plot.axes.set_xlabel("rank")
        plot.axes.set_ylabel("us")
        legend(plot.axes)
        ratio = summary.t_max_ns / 1e3 / middle
        slowest = (
            f"Slowest: rank {summary.t_max_rank}, {_figure(summary.t_max_ns / 1e3)} us, "
            f"{ratio:.3g} x the median rank"
        )
        svg = plot.finished(f"Times of the ranks at {heading}", slowest)
    note = ""
    if len(receiving) > RANKS_SHOWN:
        note = f" Of {len(receiving):,} ranks that receive the {RANKS_SHOWN} slowest are drawn."
    return Plot(heading, svg, f"{slowest}. {row.iterations:,} iterations a rank.{note}")


def _box(times_ns: Float64s, spool: str | None) -> dict[str, float]:
    """In us: from the least to the largest, with the quartiles between."""
    ordered = in_order(times_ns, spool)
    parts = {"whislo": 0.0, "q1": 0.25, "med": 0.5, "q3": 0.75, "whishi": 1.0}
    last = ordered.size - 1
    return {name: at_place(ordered, part * last) / 1e3 for name, part in parts.items()}


def _baselines_over_sizes(header: RunHeader, summaries: Sequence[RowSummary]) -> list[Line]:
    """The bandwidth of every kind of baseline, set as the plugin is and at its best.

    Beside a ping-pong they have none.
    """
    variants: dict[str, list[str]] = {}
    for baseline in header.baselines:
        variants.setdefault(baseline.kind, []).append(baseline.name)
    drawn = {kind: [kind] for kind, names in variants.items() if kind in names}
    drawn |= {f"{kind} at its best": names for kind, names in variants.items() if len(names) > 1}
    lines = [
        line_over_sizes(label, summaries, partial(_baseline_bandwidth, drawn[label]))
        for label in sorted(drawn)
    ]
    return [line for line in lines if line.sizes]


def _baseline_bandwidth(names: Sequence[str], summary: RowSummary) -> float:
    """That of the best of these baselines beside a row."""
    best = strongest(summary.ratios, names)
    return best.theirs if best is not None and best.metric == "bus_bw" else math.nan


def _draw_line(axes: Axes, line: Line, colour: str, *, dashed: bool = False) -> None:
    axes.plot(
        line.sizes,
        line.middle,
        label=line.label,
        color=COLOURS[colour],
        marker="o" if len(line.sizes) <= _MARKERS_UP_TO else "",
        markersize=3 if dashed else 4,
        linestyle=(0, (4, 2)) if dashed else "-",
        linewidth=1.4 if dashed else 2,
    )
    if line.low != line.high:
        axes.fill_between(
            line.sizes, line.low, line.high, color=COLOURS[colour], alpha=0.18, linewidth=0
        )


def _mark_rows(axes: Axes, summaries: Sequence[RowSummary]) -> None:
    """A cross on every bandwidth of wrong bytes, a ring around every one of unchecked bytes."""
    marks = {
        "wrong bytes": ("x", "bad", [s for s in summaries if s.wrong_found > 0]),
        "unchecked": ("o", "doubtful", [s for s in summaries if is_unchecked(s)]),
    }
    for label, (marker, colour, rows) in marks.items():
        if rows:
            axes.plot(
                [s.size_bytes for s in rows], [s.busbw for s in rows], marker, label=label,
                color=COLOURS[colour], markersize=10, markeredgewidth=2.2, fillstyle="none",
            )  # fmt: skip


def _size_axis(axes: Axes, sizes: Sequence[int]) -> None:
    """A logarithmic axis with powers of 2 as its ticks, or the one size where there is none."""
    axes.set_xscale("log", base=2)
    low, high = min(sizes), max(sizes)
    axes.set_xlim(low / 1.4, high * 1.4)
    exponents = range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)
    steps = [step for step in range(1, len(exponents) + 1) if len(exponents[::step]) <= _SIZE_TICKS]
    # Rather the step that ends at the last power, if it is not much wider.
    step = next((s for s in steps[:3] if (len(exponents) - 1) % s == 0), steps[0] if steps else 1)
    ticks = [2**exponent for exponent in exponents[::step]] or [low]
    axes.set_xticks(ticks, [format_size_option(tick) for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_xlabel("bytes (1K = 1024)")


def _cycles_note(line: Line) -> str:
    return "" if line.low == line.high else "The band is least to most over rows of a size. "


def _ceiling_note(ceiling: LineRate, drawn: bool) -> str:
    if math.isnan(ceiling.gb_per_s):
        return f"Drawn without ceiling: {ceiling.text}."
    where = "" if drawn else ", above this picture"
    return f"NIC line rate {_figure(ceiling.gb_per_s)} GB/s a rank ({ceiling.text}){where}."


def _zero_note(summaries: Sequence[RowSummary]) -> str:
    return " Size 0 is in the table only." if any(s.size_bytes == 0 for s in summaries) else ""


def _figure(value: float) -> str:
    return fit_number(value, 8, "n/a")
