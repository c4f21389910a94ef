"""The table as wide as a terminal: nccl-tests' fields as narrow as they can be, then what fits.

A row is printed when it is measured, so that widths follow from the header alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from itertools import groupby

from tcpx_mpi.patterns import PROGRAMS
from tcpx_mpi.records import RunHeader
from tcpx_mpi.report.table import UNKNOWN, VOID, Column, our_columns, standard_columns
from tcpx_mpi.stats import RowSummary
from tcpx_mpi.stats.ratios import Ratio, strongest
from tcpx_mpi.units import format_time_us

#: Of ours by title, in the order in which they get room: what was asked for comes before these.
_LAST = ("p95", "p99", "p50_low", "p50_high", "net_bw", "cpu_s_per_GB")
#: What the percentiles are of: the slowest rank, iteration by iteration.
_MAXIMUM = "maximum"
#: Our own patterns run nothing in place: four times N/A, under titles that take no more room.
_NOTHING_IN_PLACE = (("time", 4), ("alg", 3), ("bus", 3), ("#", 3))
_IN_PLACE = slice(9, 13)
#: Where even nccl-tests' fields are too many, these are left out first, by their place.
_DISPENSABLE = (1, 4, 3, 2)


class Fitted:
    """The columns of a run that fit, and what is left out."""

    def __init__(self, header: RunHeader, columns: int) -> None:
        standard = _standard(header)
        if _width(standard) > columns and not _may_be_in_place(header):
            standard = standard[: _IN_PLACE.start]
        for place in _DISPENSABLE:
            if _width(standard) > columns:
                standard = [each for each in standard if each.title != _NAMES[place]]
        self.columns = standard
        wanted = _wanted(header)
        chosen: set[int] = set()
        for place in sorted(range(len(wanted)), key=lambda place: _importance(wanted[place])):
            tried = [wanted[each] for each in sorted({*chosen, place})]
            if _width([*standard, *tried]) <= columns:
                chosen.add(place)
        self.columns = [*standard, *(wanted[place] for place in sorted(chosen))]
        #: Titles of those that a pipe has beside these.
        self.left_out = [each.title for i, each in enumerate(wanted) if i not in chosen]

    def title_lines(self) -> list[str]:
        """Groups, titles and units: three comment lines."""
        groups = ""
        for label, members in _grouped(self.columns):
            gap = "  " if groups and label else " " if groups else ""
            groups += gap + label.center(_width(members))
        lines = [
            groups,
            _joined([column.title for column in self.columns], self.columns),
            _joined([column.unit for column in self.columns], self.columns),
        ]
        return ["#" + line[1:].rstrip() for line in lines]

    def row_line(self, summary: RowSummary) -> str:
        """One row; its first fields are nccl-tests', as far as they fit."""
        return _joined([column.text(summary) for column in self.columns], self.columns)


_NAMES = ("size", "count", "type", "redop", "root")


def _standard(header: RunHeader) -> list[Column]:
    """nccl-tests' 13 columns, as wide as the sizes of this run ask for."""
    plan = header.plan
    digits = len(str(max(plan.sizes, default=0)))
    # Beside the sign of a comment the title of the first needs 6.
    widths = (max(6, digits), max(5, digits), len("uint8"), 5, 4)
    columns = standard_columns()
    if _may_be_in_place(header):  # of any type and operation
        widths = (*widths[:2], 8, 6, 4)
    narrow = [
        dataclasses.replace(
            column, width=width, unit=column.unit if len(column.unit) <= width else ""
        )
        for column, width in zip(columns, widths, strict=False)
    ]
    narrow += columns[len(widths) : _IN_PLACE.start]
    in_place = columns[_IN_PLACE]
    if not _may_be_in_place(header):
        in_place = [
            dataclasses.replace(column, title=title, unit="", width=width)
            for column, (title, width) in zip(in_place, _NOTHING_IN_PLACE, strict=True)
        ]
    return [*narrow, *(dataclasses.replace(column, group="in-place") for column in in_place)]


def _may_be_in_place(header: RunHeader) -> bool:
    """Only nccl-tests' programs have that side, ours of that name and the imported ones."""
    return header.averages_only or header.pattern in PROGRAMS


def _wanted(header: RunHeader) -> list[Column]:
    """Ours in the order in which they get room."""
    if header.averages_only:
        return []
    ours = {(c.group, c.title, c.unit): c for c in our_columns(header) if not _is_ratio(c, header)}
    first = [_slowest(header.world)]
    p50 = next(column for column in ours.values() if column.title == "p50")
    first.append(dataclasses.replace(p50, width=8, group=_MAXIMUM))
    names: dict[str, list[str]] = {}
    for baseline in header.baselines:
        names.setdefault(baseline.kind, []).append(baseline.name)
    first += [_beside(f"beside {kind}", _of(kind)) for kind in names]
    first += [_beside(f"{kind} best", _best(all_)) for kind, all_ in names.items() if len(all_) > 1]
    rest = [
        dataclasses.replace(column, group=_MAXIMUM if column.title in _LAST[:4] else column.group)
        for column in ours.values()
        if column.title not in ("t_max", "@rank", "p50")
    ]
    rest.sort(key=lambda column: column.title in _LAST)  # what an option asked for comes first
    return first + rest


def _importance(column: Column) -> int:
    """Who gets room first: the slowest rank, then peers that were asked for, then the median."""
    if column.title == "slowest":
        return 0
    if column.title.startswith("beside "):
        return 1
    return 2 if column.title == "p50" else 3


def _is_ratio(column: Column, header: RunHeader) -> bool:
    kinds = {baseline.kind for baseline in header.baselines}
    return column.group in {f"beside {kind}" for kind in kinds} | {
        f"{kind} at its best" for kind in kinds
    }


def _slowest(world: int) -> Column:
    """The time of the slowest rank and its number, in one."""

    def text(summary: RowSummary) -> str:
        if summary.t_max_rank < 0:
            return UNKNOWN
        return f"{format_time_us(summary.t_max_ns, 7, UNKNOWN)} @{summary.t_max_rank}"

    return Column("slowest", "(us) rank", 9 + len(str(world - 1)), text, "slowest")


def _of(name: str) -> Callable[[RowSummary], Ratio | None]:
    return lambda summary: summary.against.get(name)


def _best(names: Sequence[str]) -> Callable[[RowSummary], Ratio | None]:
    return lambda summary: strongest(summary.against, names)


def _beside(title: str, find: Callable[[RowSummary], Ratio | None]) -> Column:
    """A ratio with its interval, in one."""

    def text(summary: RowSummary) -> str:
        found = find(summary)
        if found is None or found.ratio != found.ratio:
            return VOID if found is not None and found.void else UNKNOWN
        return VOID if found.void else f"{found.ratio:.2f} [{found.ci_low:.2f} {found.ci_high:.2f}]"

    return Column(title, "ratio [95 %]", 16, text, title)


def _grouped(columns: Sequence[Column]) -> list[tuple[str, list[Column]]]:
    """Neighbours of one group; one whose title says it all has no label of its own."""
    return [
        ("" if label == members[0].title else label, members)
        for label, members in (
            (label, list(each)) for label, each in groupby(columns, key=lambda c: c.group)
        )
    ]


def _joined(texts: Sequence[str], columns: Sequence[Column]) -> str:
    """Two blanks between groups, one within: each width is that of the widest text already."""
    line, before = "", None
    for text, column in zip(texts, columns, strict=True):
        gap = "" if before is None else " " if before.group == column.group else "  "
        line += gap + text.rjust(column.width)
        before = column
    return line


def _width(columns: Sequence[Column]) -> int:
    return len(_joined(["" for _ in columns], columns))
