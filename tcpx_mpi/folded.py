"""Lines that are wider than the terminal that they are printed on."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterable

#: A narrower terminal is written to as if it had these.
LEAST_COLUMNS = 40


def folded(line: str, columns: int, indent: str, cut: bool = True) -> list[str]:
    """A line as several that fit, the second and later ones behind `indent`; a word that fits into
    none is cut, or stays whole."""
    width = max(columns, LEAST_COLUMNS)
    if len(line) <= width:
        return [line]
    return textwrap.wrap(
        line, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=cut
    )


def show(lines: Iterable[str], indent: str | None = None) -> None:
    """Prints lines. On a terminal one that does not fit goes on below itself: behind `indent`, by
    default 4 columns farther than it begins, and as a comment if it is one; nearer to the edge, if
    its longest word has no room there. A path that is wider stays whole, to be copied."""
    columns = terminal_columns()
    for line in lines:
        if columns is None:
            print(line)
            continue
        hang = indent
        if hang is None:
            text = line.removeprefix("#").lstrip()
            hang = line[: len(line) - len(text)] + " " * 4
        room = columns - max(map(len, line.split()), default=0)
        hang = hang[: max(room, 2)]
        print("\n".join(folded(line, columns, hang, cut=False)))
    sys.stdout.flush()


def terminal_columns() -> int | None:
    """The columns of standard output; None if it is no terminal."""
    if not sys.stdout.isatty():
        return None
    return os.get_terminal_size(sys.stdout.fileno()).columns or None
