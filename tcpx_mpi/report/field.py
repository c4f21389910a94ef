"""What a column of a row is: a name, a unit, the figure in it, and how that is written."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: What a field holds for programs. MAYBE_INT is the one kind of integer that may be None.
INT, MAYBE_INT, FLOAT, BOOL, TEXT = "int64", "Int64", "float64", "bool", "text"
#: Where we have no figure.
UNKNOWN = "n/a"
#: A ratio to what was weakened; the footer says why.
VOID = "void"

#: Of a row's summary; a simulation has rows with some of its attributes.
Figure = Callable[[Any], Any]


@dataclass(frozen=True)
class Unit:
    """A unit: how a figure in it is written for people, and what programs get."""

    name: str
    #: (figure, width, word for an unknown one) -> text.
    text: Callable[[Any, int, str], str]
    width: int = 8
    data: Callable[[Any], Any] = lambda figure: figure
    kind: str = FLOAT
    #: As the reference has it.
    long: str = ""


@dataclass(frozen=True)
class Field:
    """A column: the name over it, its unit, and what a row has in it (None: nothing)."""

    name: str
    unit: Unit
    of: Figure
    #: 0: that of its unit.
    width: int = 0
    #: What CSV and JSON call it; theirs alone have no name over a column.
    key: str = ""
    #: What stands over it and its neighbours.
    group: str = ""
    unknown: str = UNKNOWN
    #: For the reference; neighbours with one meaning share a line there.
    meaning: str = ""
    #: What stands under the name in place of the unit.
    under: str | None = None
    #: On a terminal: lower gets room first.
    turn: int = 3

    @property
    def columns(self) -> int:
        """Characters in a table."""
        return self.width or self.unit.width

    @property
    def beneath(self) -> str:
        """The line under the name."""
        if self.under is not None:
            return self.under
        return f"({self.unit.name})" if self.unit.name else ""

    def text(self, row: Any) -> str:
        """For a table."""
        return self._text(row, self.columns, self.unknown)

    def page_text(self, row: Any) -> str:
        """For the page, which has room and no scripts that read it."""
        return self._text(row, self.unit.width, UNKNOWN)

    def data(self, row: Any) -> Any:
        """For programs."""
        figure = self.of(row)
        if figure is None and self.unit.kind == FLOAT:
            return math.nan
        return self.unit.data(figure)

    def _text(self, row: Any, width: int, unknown: str) -> str:
        figure = self.of(row)
        return unknown if figure is None else self.unit.text(figure, width, unknown)
