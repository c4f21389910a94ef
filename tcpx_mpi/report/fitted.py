"""The table fitted to the width of a terminal.

A row is printed when it is measured, so that widths follow from the header alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from tcpx_mpi.patterns import PROGRAMS, find_program
from tcpx_mpi.records import RunHeader
from tcpx_mpi.report.field import Field
from tcpx_mpi.report.fields import (
    ALGBW,
    COUNT,
    IDENTITY,
    POINT,
    REDOP,
    ROOT,
    SIDE,
    SIDE_IN_PLACE,
    TYPE,
    terminal_fields,
)
from tcpx_mpi.stats import RowSummary

#: Of nccl-tests' fields these are left out first; `algbw` only where they alone have no room.
_DISPENSABLE = (COUNT, ROOT, REDOP, TYPE, ALGBW)
#: The settings by which rows of a program differ in one of them.
_IN_TURN = {ROOT.name: "root", REDOP.name: "op", TYPE.name: "datatype"}


class Fitted:
    """The columns of a run that fit, and what is left out."""

    def __init__(self, header: RunHeader, columns: int) -> None:
        wanted = terminal_fields(header)
        point = [each for each in wanted if each.turn <= POINT]
        # As much of the point as there can be room for; nothing gives way for what has none.
        for kept in (point[:most] for most in range(len(point), -1, -1)):
            standard, dropped = _baseline_columns(kept, header, columns)
            if _width([*standard, *kept]) <= columns:
                break
        chosen: set[int] = set()
        for place in sorted(range(len(wanted)), key=lambda place: wanted[place].turn):
            tried = [wanted[each] for each in sorted({*chosen, place})]
            if _width([*standard, *tried]) <= columns:
                chosen.add(place)
        self.fields = [*standard, *(wanted[place] for place in sorted(chosen))]
        #: Names of those that a pipe has beside these.
        self.left_out = dropped + [x.name for i, x in enumerate(wanted) if i not in chosen]

    def title_lines(self) -> list[str]:
        """Groups, titles and units: three comment lines."""
        groups, so_far = "", []
        for label, members in _grouped(self.fields):
            so_far += members
            text, end = label.center(_width(members)), _width(so_far)
            # One that is wider than its columns begins before them, or is its last word.
            if len(text) >= end - len(groups.rstrip()):
                text = label.rpartition(" ")[2]
            groups = groups.ljust(end)[: end - len(text)] + text
        lines = [
            groups,
            _joined([field.name for field in self.fields], self.fields),
            _joined([field.beneath for field in self.fields], self.fields),
        ]
        return ["#" + line[1:].rstrip() for line in lines]

    def row_line(self, summary: RowSummary) -> str:
        """One row; its first fields are nccl-tests', as far as they fit."""
        return _joined([field.text(summary) for field in self.fields], self.fields)


def _baseline_columns(
    kept: Sequence[Field], header: RunHeader, columns: int
) -> tuple[list[Field], list[str]]:
    """nccl-tests' fields for which these leave room, and the names of those that gave way."""
    standard, dropped = _standard(header), []
    # What tells rows apart gives way last, and only where not even nccl-tests' fields have room.
    for dispensable in sorted(_DISPENSABLE, key=lambda field: _differs(header, field)):
        ours = [] if dispensable is ALGBW or _differs(header, dispensable) else kept
        if _width([*standard, *ours]) > columns:
            standard = [each for each in standard if each.name != dispensable.name]
            dropped.append(dispensable.name)
    return standard, dropped


def _standard(header: RunHeader) -> list[Field]:
    """nccl-tests' 13 columns, as wide as the sizes of this run ask for; where nothing runs in
    place, those 9 that are not N/A in every row."""
    plan = header.plan
    digits = len(str(max(plan.sizes, default=0)))
    # Those of nccl-tests, ours of that name and the imported ones.
    programs = header.averages_only or header.pattern in PROGRAMS
    # Beside the sign of a comment the title of the first needs 6; programs have any type and
    # operation.
    words = (8, 6, 4) if programs else (len("uint8"), 5, 4)
    widths = (max(6, digits), max(5, digits), *words)
    narrow = [
        replace(field, width=width, under=field.beneath if len(field.beneath) <= width else "")
        for field, width in zip(IDENTITY, widths, strict=True)
    ]
    in_place = [replace(field, group="in-place") for field in SIDE_IN_PLACE]
    if not (header.averages_only or (programs and find_program(header.pattern).in_place)):
        in_place = []
    return [*narrow, *SIDE, *in_place]


def _differs(header: RunHeader, field: Field) -> bool:
    """Whether it tells rows of this run apart."""
    name = _IN_TURN.get(field.name)
    return any(name == setting and value == "all" for setting, value, _ in header.settings)


def _grouped(fields: Sequence[Field]) -> list[tuple[str, list[Field]]]:
    """Neighbours of one group; one whose name says it all has no label of its own."""
    groups = [(label, list(each)) for label, each in groupby(fields, key=lambda f: f.group)]
    return [("" if label == members[0].name else label, members) for label, members in groups]


def _joined(texts: Sequence[str], fields: Sequence[Field]) -> str:
    """Two blanks between groups, one within: each width is that of the widest text already."""
    line, before = "", None
    for text, field in zip(texts, fields, strict=True):
        gap = "" if before is None else " " if before.group == field.group else "  "
        line += gap + text.rjust(field.columns)
        before = field
    return line


def _width(fields: Sequence[Field]) -> int:
    return len(_joined(["" for _ in fields], fields))
