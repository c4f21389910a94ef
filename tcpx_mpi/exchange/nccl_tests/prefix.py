"""The text before each line of a log, the rank of srun -l, a host, a time, a number, a quote's
mark; and what mpirun wrote into the middle of one.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

#: A longer one is no prefix.
_LONGEST = 200
_WORD = re.compile(r"[\w.+-]+")
_PART = re.compile(_WORD.pattern + r"|\s+|.")
#: Parts of a prefix that change from line to line and tell no rank.
_TIMES = re.compile(
    r"\d{4}-\d\d-\d\d|\d{1,2}:\d\d:\d\d(?:[.,]\d+)?|(?:[+-]\d\d:?\d\d|Z)\b|\b\d{9,10}\.\d+"
    r"|\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b|\b[A-Z][a-z]{2} +\d{1,2}\b|\b20\d\d\b"
    r"|\bstd(?:out|err|diag)\b|\s+|T"
)
_NUMBER = re.compile(r"\d{1,18}")
#: As Open MPI tags what a rank wrote, and writes again where the rank did in the middle of a line.
#: Version 5 has a blank behind it.
_TAG = re.compile(
    r"(?:[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4})?"
    r"(\[\d+,\d+\]<stdout>:|\[[\w.-]+@\d+,\d+\]<stdout>: ?)"
)
#: A line that has begun: a comment, or size and count.
_BEGUN = re.compile(r"\s*(?:#|\d+ +\d+(?: |$))")


def without_inner_tags(line: str) -> str:
    """A line of one rank without the tags that stand in it; what stands before it stays."""
    tags = list(_TAG.finditer(line)) if "<stdout>:" in line else []
    if not tags or len({tag[1].strip() for tag in tags}) > 1:
        return line
    start = 0 if _BEGUN.match(line[: tags[0].start()]) else tags[0].end()
    return line[:start] + _TAG.sub("", line[start:])


class Prefix:
    """The form of a prefix, from the line that certainly has one."""

    def __init__(self, example: str) -> None:
        """Words of the example stand for any words, blanks for blanks, all else for itself."""
        parts = _PART.findall(example[:_LONGEST])
        form = ""
        for before, part, after in zip(["", *parts], parts, [*parts[1:], ""], strict=False):
            if _WORD.fullmatch(part):
                form += _WORD.pattern
            elif not part.isspace():
                form += re.escape(part)
            else:
                # Between two words none would do: where the first ends could be anywhere in it.
                apart = _WORD.fullmatch(before) and _WORD.fullmatch(after)
                form += r"\s+" if apart else r"\s*"
        self._form = re.compile(form)

    def split(self, line: str) -> tuple[str, str] | None:
        """(whose line it is, the line without its prefix); None for a line that has none.

        Whose: the prefix without times, so that lines of one rank have one name.
        """
        found = self._form.match(line)
        if found is None:
            # An empty line may have lost the blanks at its end.
            found = self._form.match(f"{line} ")
            if found is None:
                return None
        return _TIMES.sub("", found[0]), line[found.end() :]


def split_by_owner(prefix: Prefix, lines: Sequence[str]) -> dict[str, list[tuple[int, str]]]:
    """(number, text) of the lines of each owner, without their prefix; "" in place of an owner has
    the lines without one, unless none is expected."""
    found = [(number, prefix.split(line), line) for number, line in enumerate(lines, 1)]
    numbered = _are_numbered([parts[0] for _, parts, _ in found if parts])
    streams: dict[str, list[tuple[int, str]]] = {}
    for number, parts, line in found:
        owner, rest = parts or ("", line)
        owner = _NUMBER.sub("", owner, count=1) if parts and numbered else owner
        streams.setdefault(owner, []).append((number, rest))
    return streams


def _are_numbered(owners: Sequence[str]) -> bool:
    """Whether the first number of each is that of its line: it goes on rising, as no rank does."""
    numbers = [int(found[0]) if (found := _NUMBER.search(each)) else -1 for each in owners]
    return len(numbers) > 2 and all(a < b for a, b in itertools.pairwise(numbers))
