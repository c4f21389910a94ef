"""The titles of the table: which column is what. nccl-tests has had many, and rccl-tests others."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

#: Titles of other versions, by the one of today.
_ALIASES = {"bytes": "size", "n": "count", "op": "redop", "res": "error", "wrong": "#wrong"}
_LEADING = ("size", "count", "type", "redop", "root")
_FIGURES = ("time", "algbw", "busbw")
_PER_ITERATION = "i_min"
#: As nccl-tests prints a time: never an integer that is short, which would be a root.
_TIME = re.compile(r"\d+\.\d+(?:e[+-]\d+)?|\d{5,}|\d+e\+\d+|N/A|-?nan|inf", re.IGNORECASE)
#: In place of a side that was not run, as where `alltoallv` replays a trace.
_BLANK_SIDE = re.compile(r"(?<=\S) {32,}(?=\S)")
_TIMESTAMP = re.compile(r"(\d{4}-\d\d-\d\d) +(\d\d:\d\d:\d\d)")


@dataclass(frozen=True)
class RowWords:
    """The words of a row, by what they are; of each side its name, and time to #wrong."""

    size: str
    count: str
    type_name: str
    redop: str
    root: str
    sides: tuple[tuple[str, tuple[str | None, ...]], ...]


@dataclass(frozen=True)
class Titles:
    """The columns of a table."""

    leading: tuple[str, ...]
    #: From the first time on.
    figures: tuple[str, ...]
    #: "out_of_place", "in_place", or both.
    sides: tuple[str, ...]

    @property
    def cpu_time(self) -> bool:
        return "cputime" in self.figures

    @classmethod
    def read(cls, line: str, above: str) -> Titles | None:
        """The titles in a line, or None; `above` is the line above, which names the sides."""
        words = [_ALIASES.get(word.lower(), word) for word in line.lstrip("# ").split()]
        if words[:2] != ["size", "count"] or "algbw" not in words or "busbw" not in words:
            return None
        first = next((n for n, word in enumerate(words) if word in ("time", "cputime")), 0)
        if not first:
            return None
        sides: tuple[str, ...] = ("out_of_place", "in_place")
        if sum(word in ("time", "cputime") for word in words) == 1:
            only_in = "in-place" in above and "out-of-place" not in above
            sides = sides[1:] if only_in else sides[:1]
        return cls(tuple(words[:first]), tuple(words[first:]), sides)

    def words(self, line: str) -> RowWords | None:
        """A row by its columns; None for a line that is none, or has less than all of them."""
        if len(self.sides) == 2:
            one_side = self.figures.index("time", 1)
            line = _BLANK_SIDE.sub(" N/A" * one_side + " ", line)
        words = _TIMESTAMP.sub(r"\1T\2", line).split()
        # Operations without one leave the column of redop or root blank.
        leading = min(len(self.leading), len(words) - len(self.figures))
        if leading < 3 or not (words[0].isdecimal() and words[1].isdecimal()):
            return None
        told = self._leading(words[:leading])
        figures = words[leading : leading + len(self.figures)]
        starts = [n for n, title in enumerate(self.figures) if title == "time"]
        if told is None or len(figures) < len(self.figures):
            return None
        if leading < len(self.leading) and not all(_TIME.fullmatch(figures[n]) for n in starts):
            return None
        sides = [
            (side, self._side(figures[start:end], self.figures[start:end]))
            for side, start, end in zip(
                self.sides, starts, [*starts[1:], len(figures)], strict=True
            )
        ]
        if self.sides == ("in_place",):
            sides.insert(0, ("out_of_place", (None,) * 4))
        return RowWords(told["size"], told["count"], told["type"], told["redop"], told["root"],
                        tuple(sides))  # fmt: skip

    def notes(self) -> list[str]:
        """The columns of the table that are not imported, or mean something else."""
        notes = []
        if _PER_ITERATION in self.figures:
            notes.append("the per-iteration columns of the log (-I) are not imported")
        known = {*_FIGURES, "#wrong", "error", "i_min", "i_max", "i_p99", "i_cv%"}
        others = [title for title in dict.fromkeys(self.figures) if title not in known]
        if others:
            notes.append(f"columns of the log that are not imported: {', '.join(others)}")
        if "error" in self.figures:
            notes.append(
                "the log has the largest deviation of a result (error), not how many elements are "
                "#wrong"
            )
        return notes

    def _leading(self, words: Sequence[str]) -> dict[str, str] | None:
        told = {"redop": "none", "root": "-1"}
        rest = list(words)
        for title in self.leading:
            if title not in _LEADING:
                return None
            fits = r"-?\d+" if title in ("size", "count", "root") else r"[a-z]\w*"
            if rest and re.fullmatch(fits, rest[0]):
                told[title] = rest.pop(0)
            elif title not in ("redop", "root") or len(words) == len(self.leading):
                return None
        return None if rest else told

    def _side(self, words: Sequence[str], titles: Sequence[str]) -> tuple[str | None, ...]:
        """time, algbw, busbw and #wrong, wherever they stand; None for one that is not there."""
        by_title = dict(zip(titles, words, strict=True))
        return tuple(by_title.get(title) for title in (*_FIGURES, "#wrong"))
