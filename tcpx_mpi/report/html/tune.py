"""A tune as the text of one HTML page: recommendations, and the front of each band."""

from __future__ import annotations

import math

from tcpx_mpi.report.html.axes import Plot, empty_axes, plain_number
from tcpx_mpi.report.html.page import rendered
from tcpx_mpi.report.html.svg import COLOURS
from tcpx_mpi.report.html.tables import Column, Line, Table
from tcpx_mpi.tune.answer import Finalist
from tcpx_mpi.tune.point import point_text
from tcpx_mpi.tune.text import Tuned, number_text, ratio_text, recommendation, remarks, titles

_SERIES = ("series-1", "series-2", "series-3", "series-4", "series-5")
_MARKERS = ("o", "s", "^", "D", "v")


def tune_page(tuned: Tuned) -> str:
    """The page of a tune; it refers to nothing outside of itself."""
    bands = range(len(tuned.bands))
    answer = tuned.answer
    found = answer.compromise is not None or any(answer.by_band)
    said = [f"{title}: {recommendation(tuned, n)}" for n, title in enumerate(titles(tuned))]
    plots = [_front_plot(tuned, n) for n in reversed(bands)]
    return rendered(
        "tune.html",
        {
            "title": tuned.what(),
            "level": "good" if answer.decided and answer.drift is None else "doubtful",
            "word": "Better found" if found else "No better than the default",
            "sentences": said,
            "remarks": [tuned.how(), *(f"{title}: {text}" for title, text in remarks(tuned))],
            "tables": [_table(tuned, n) for n in reversed(bands)],
            "plots": [plot for plot in plots if plot],
            "path": tuned.path,
        },
    )


def _table(tuned: Tuned, number: int) -> Table:
    band, scale = tuned.bands[number], tuned.scale
    texts = ("setting", "front", "verdict", "why")
    columns = tuple(
        Column(title, unit, title in texts)
        for title, unit in (
            ("setting", ""), ("front", ""), ("typical", scale.unit), ("CPU", "s/GB"),
            ("speed", "x the default"), ("CPU a GB", "x the default"), ("launches", ""),
            ("verdict", ""), ("why", ""),
        )
    )  # fmt: skip
    lines = []
    for place, each in enumerate(tuned.answer.finalists):
        contest = each.contests[number] if each.contests else None
        beside = (
            (ratio_text(contest.speed), ratio_text(contest.cost), str(contest.launches),
             contest.verdict.value, contest.reason)
            if contest is not None
            else ("", "", str(tuned.answer.race.final.rounds), "", "")
        )  # fmt: skip
        cells = (
            f"{place}: {point_text(each.point)}",
            "yes" if each.on_front[number] else "",
            scale.text(band, float(each.time_ns[number])),
            number_text(float(each.cpu_s_per_gb[number])),
            *beside,
        )
        lines.append(Line(cells))
    note = (
        "A speed is the default's time over the setting's. The intervals of speeds hold together "
        f"in 95 % of tunes, each alone with {100 * tuned.answer.confidence:.4g} %."
    )
    return Table(f"{band}: settings of the final", columns, tuple(lines), note)


def _front_plot(tuned: Tuned, number: int) -> Plot | None:
    """Speed over CPU cost, with the intervals beside the default's; None without known costs."""
    band, scale = tuned.bands[number], tuned.scale
    drawn = [each for each in tuned.answer.finalists if each.cpu_s_per_gb[number] > 0]
    if not drawn or drawn[0].contests:  # the default's is not known
        return None
    today = drawn[0]
    base = (float(today.cpu_s_per_gb[number]), scale.figure(band, float(today.time_ns[number])))
    heading = f"Front at {band}"
    with empty_axes(f"front-{number}", 230) as plot:
        axes = plot.axes
        for place, each in enumerate(drawn):
            colour = COLOURS[_SERIES[place % len(_SERIES)]]
            x, y = _place(tuned, each, number, base)
            contest = each.contests[number] if each.contests else None
            if contest is not None and math.isfinite(contest.speed.low):
                low, high = _speeds(tuned, base[1], contest.speed.low, contest.speed.high)
                axes.vlines(x, low, high, color=colour, linewidth=1.6)
            if contest is not None and math.isfinite(contest.cost.low):
                ends = (base[0] * contest.cost.low, base[0] * contest.cost.high)
                axes.hlines(y, *ends, color=colour, linewidth=1.6)
            axes.plot(x, y, _MARKERS[place % len(_MARKERS)], color=colour, markersize=6)
            axes.annotate(str(place), (x, y), xytext=(5, 4), textcoords="offset points")
        front = sorted(_place(tuned, each, number, base) for each in drawn if each.on_front[number])
        axes.plot(*zip(*front, strict=True), color=COLOURS["ceiling"], linewidth=1,
                  linestyle=(0, (4, 3)))  # fmt: skip
        axes.set_xlabel("CPU seconds a GB")
        axes.set_ylabel(scale.unit)
        axes.xaxis.set_major_formatter(plain_number)
        axes.yaxis.set_major_formatter(plain_number)
        description = f"{len(front)} of {len(drawn)} settings are on the front"
        svg = plot.finished(heading, description)
    lower = "below" if scale.by_time else "above"
    return Plot(
        heading, svg, f"{description}: nobody is both {lower} them and to their left. Lines are "
        "intervals beside the default, which is 0; the numbers are those of the table."
    )  # fmt: skip


def _place(
    tuned: Tuned, each: Finalist, number: int, base: tuple[float, float]
) -> tuple[float, float]:
    """The place of a setting: by its ratios to the default, whose intervals are drawn."""
    if not each.contests:
        return base
    contest = each.contests[number]
    cost = base[0] * contest.cost.estimate
    return cost, _speeds(tuned, base[1], contest.speed.estimate, 1)[0]


def _speeds(tuned: Tuned, base: float, *ratios: float) -> list[float]:
    return [base / ratio if tuned.scale.by_time else base * ratio for ratio in ratios]
