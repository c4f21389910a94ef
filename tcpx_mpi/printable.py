"""Other people's text made safe for a terminal: control and hidden characters are spelled out.

It leaves by the standard streams, and `show_printable` makes these do so, whoever prints. What is
ours and means a terminal, as colours do, is written by `write_own`. Files for people, such as the
HTML report, take the functions themselves.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from typing import Any, TextIO, cast

#: C0 but for line breaks and tabs, DEL, C1, characters that reverse the direction of writing or
#: have no width, ends of lines that only some programs know, and halves of characters. Those that
#: stand for a byte from 0xa0 on are left to the stream, so that CSV has the very bytes of a name.
_UNSHOWN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udc9f\udd00-\udfff"
)
_IN_LINES = re.compile(f"[{_UNSHOWN}]")
_IN_A_LINE = re.compile(f"[\t\n{_UNSHOWN}]")


def printable(text: str) -> str:
    """A text on one line of which every letter can be seen: others as \\x1b, \\u202e."""
    return _IN_A_LINE.sub(_spelled, text)


def printable_lines(text: str) -> str:
    """The same of a text that has line breaks and tabs of ours."""
    return _IN_LINES.sub(_spelled, text)


def _spelled(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode("ascii")


class _Printable:
    """A stream that spells out what is not printable, in every other way the one within it."""

    def __init__(self, stream: TextIO) -> None:
        self.own = stream

    def write(self, text: str) -> int:
        self.own.write(printable_lines(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)


def show_printable() -> None:
    """From now on the standard output and the standard error of this process are printable."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, _Printable):
            setattr(sys, name, cast(TextIO, _Printable(stream)))


def write_own(stream: TextIO, text: str) -> None:
    """Writes text that is printable but for escapes of ours."""
    own = stream.own if isinstance(stream, _Printable) else stream
    own.write(text)
    own.flush()
