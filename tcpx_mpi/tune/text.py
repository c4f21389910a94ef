"""The answer of a tune as lines of text."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tcpx_mpi.compare import Verdict
from tcpx_mpi.records import RunHeader
from tcpx_mpi.stats import Interval
from tcpx_mpi.tune.answer import Answer, Contest, Finalist
from tcpx_mpi.tune.bands import Band, Scale
from tcpx_mpi.tune.point import point_text
from tcpx_mpi.tune.race import LOSS
from tcpx_mpi.units import counted

_UNKNOWN = "n/a"
_TITLE = 24
_INTERVAL = re.compile(r"\S+ x \[\S+ \S+\]")


@dataclass(frozen=True)
class Tuned:
    """An answer and what it is of: what text, JSON, page and profile are made of."""

    answer: Answer
    bands: Sequence[Band]
    scale: Scale
    header: RunHeader
    #: The command, as typed, and the file of all launches.
    command: Sequence[str]
    path: str
    seconds: float

    def what(self) -> str:
        """Pattern, ranks, plugin, memory."""
        header = self.header
        return (
            f"{header.pattern}, {counted(header.world, 'rank')}, {header.plugin_name}, "
            f"{header.memory}"
        )

    def how(self) -> str:
        """Launches, settings, time."""
        launched = self.answer.race.history
        settings = len({turn.point for turn, _ in launched})
        return (
            f"{counted(len(launched), 'launch')} of {counted(settings, 'setting')} in "
            f"{self.seconds:.0f} s, {counted(self.answer.race.final.rounds, 'round')} of them the "
            "final"
        )

    def beside_today(self, finalist: Finalist) -> str:
        """`1.31 x [1.22, 1.40] at 64 MiB; 0.99 x [0.95, 1.03] at 8 KiB`, the largest first."""
        pairs = list(zip(self.bands, finalist.contests, strict=True))
        return "; ".join(f"{ratio_text(c.speed)} at {band}" for band, c in reversed(pairs))


def ratio_text(ratio: Interval) -> str:
    """`1.31 x [1.22, 1.40]`."""
    if not math.isfinite(ratio.low):
        return f"{number_text(ratio.estimate)} x"
    return f"{ratio.estimate:.2f} x [{ratio.low:.2f}, {ratio.high:.2f}]"


def number_text(value: float) -> str:
    """A ratio or a cost."""
    return f"{value:.2f}" if math.isfinite(value) else _UNKNOWN


def recommendation(tuned: Tuned, number: int) -> str:
    """The recommendation in a band, or, as the last number, for all; beside today's settings."""
    answer = tuned.answer
    over_all = number == len(tuned.bands)
    found = answer.compromise if over_all else answer.by_band[number]
    nearest = answer.nearest[number]
    if found is not None:
        where = tuned.beside_today(found) if over_all else ratio_text(found.contests[number].speed)
        cost = _contest(found, number).cost
        cpu = f", CPU a GB {ratio_text(cost)}" if math.isfinite(cost.estimate) else ""
        return f"{point_text(found.point)}: {where}{cpu}"
    if nearest is None:
        return "no better than the default: no other setting came to the end"
    contest = _contest(nearest, number)
    verdict = nearest.verdict if over_all else contest.verdict
    why = f": {contest.reason}" if contest.reason else ""
    if over_all and verdict is Verdict.WORSE:
        why = f": {tuned.beside_today(nearest)}"
    undecided = not math.isfinite(contest.speed.low)
    start = "nothing was decided" if undecided else "no better than the default"
    return (
        f"{start} (nearest: {point_text(nearest.point)}, "
        f"{ratio_text(contest.speed)}, {verdict.value}{why})"
    )


def titles(tuned: Tuned) -> list[str]:
    """The titles of the recommendations: each band, the largest first, and all of several."""
    names = [f"Recommended, {band}" for band in tuned.bands]
    return [*names, "Recommended, all sizes"] if len(names) > 1 else names


def remarks(tuned: Tuned) -> list[tuple[str, str]]:
    """The remarks on the answer, (title, text); what is in doubt first."""
    answer, found = tuned.answer, []
    if answer.drift is not None:
        found.append(
            ("Machine drifted", f"launches of the last third took {1 + answer.drift.relative:.2f} "
             "x the time of those of the first; settings took turns, so their ratios hold; use a "
             "quieter machine for figures")
        )  # fmt: skip
    found += [
        ("Launch failed", f"{point_text(point)}: it is out; the standard error has why")
        for point in answer.failed
    ]
    if answer.race.left_out:
        found.append(
            ("Not launched", f"{counted(answer.race.left_out, 'setting')} of the space, for which "
             "there was no time: use a longer --within, or a smaller --space")
        )  # fmt: skip
    found.append(
        ("Errors", "a setting no better than the default is recommended in 2.5 % of tunes at most: "
         "the intervals hold together in 95 %, and are of launches of the final, which chose "
         f"nobody; heats drop the best of a band in {100 * LOSS:g} % at most")
    )  # fmt: skip
    return found


def answer_lines(tuned: Tuned, columns: int | None) -> list[str]:
    """The output of `tcpx-mpi tune`, the recommendations last; within `columns`, if given."""
    lines = [f"# tune: {tuned.what()}", f"# {tuned.how()}"]
    for number in reversed(range(len(tuned.bands))):
        lines += ["#", *_table(tuned, number, columns)]
    lines.append("#")
    said = list(remarks(tuned))
    order = [*reversed(range(len(tuned.bands))), len(tuned.bands)]
    said += [(titles(tuned)[n], recommendation(tuned, n)) for n in order[: len(titles(tuned))]]
    for title, text in said:
        lines += _folded(f"# {title:<{_TITLE - 2}} : ", text, columns)
    return [line for each in lines for line in _folded("", each, columns)]


def _table(tuned: Tuned, number: int, columns: int | None) -> Iterator[str]:
    """A band: the settings of the final, those of the front marked."""
    band, scale = tuned.bands[number], tuned.scale
    mean = " (geometric mean)" if len(band.sizes) > 1 else ""
    yield f"# {band}{mean}; *: on the front, nobody is both faster and cheaper"
    yield f"#   {scale.unit:>8}  {'s CPU/GB':>8}  {'x the default':<19}  {'verdict':<12}  setting"
    for finalist in tuned.answer.finalists:
        contest = finalist.contests[number] if finalist.contests else None
        mark = "*" if finalist.on_front[number] else " "
        start = (
            f"# {mark} {scale.text(band, float(finalist.time_ns[number])):>8}  "
            f"{_cost(float(finalist.cpu_s_per_gb[number])):>8}  "
            f"{ratio_text(contest.speed) if contest else '':<19}  "
            f"{contest.verdict.value if contest else '':<12}  "
        )
        yield from _folded(start, point_text(finalist.point), columns)


def _cost(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else _UNKNOWN


def _contest(finalist: Finalist, number: int) -> Contest:
    if number < len(finalist.contests):
        return finalist.contests[number]
    assert finalist.overall is not None
    return finalist.overall


def _folded(start: str, text: str, columns: int | None) -> list[str]:
    """A text behind a start, on lines of its own below it where it does not fit."""
    if columns is None or len(start) + len(text) <= columns:
        return [start + text]
    indent = "#".ljust(min(len(start), columns // 2) if start else 4)
    # An interval stays in one line: no blank within it is one to break at.
    whole = _INTERVAL.sub(lambda found: found[0].replace(" ", "\xa0"), start + text)
    lines = textwrap.wrap(whole, columns, subsequent_indent=indent, break_on_hyphens=False)
    return [line.replace("\xa0", " ") for line in lines]
