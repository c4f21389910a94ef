"""The lines of a log: unpacked, in any encoding, without what is for terminals."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from itertools import chain

from tcpx_mpi.inputs.opening import Input, Limits

#: A log of 2,000 ranks with NCCL_DEBUG=INFO has 150 MiB.
LOG = Limits(bytes=256 << 20, lines=8 << 20, archives=True)
#: What a line has beyond these letters says nothing to us, and is passed over.
LINE_LETTERS = 8192
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_GUESSED_BY = 4096
#: Colours and cursor movements of a terminal, its titles, and what a log has of a bell.
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|[\x00\x07]")
_LINE_END = re.compile("\r+\n?")


class Log:
    """A log as it is read, once: by its lines, or as a text."""

    def __init__(self, path: str, named: str = "", remedy: str = "") -> None:
        """Raises UsageError, as all here do, for what cannot be read, and for more than LOG."""
        self.source = Input(path, LOG, named, remedy)
        self._texts = _with_one_end(_decoded(self.source.pieces()))
        #: The first letters of it, or all.
        self.start = next(self._texts)

    def lines(self, letters: int = LINE_LETTERS) -> Iterator[str]:
        """Its lines, each cut after so many letters. The last is what follows the last line's end:
        "" in a whole log."""
        most = self.source.limits.lines
        for number, line in enumerate(_lines(chain([self.start], self._texts), letters)):
            if number >= most:
                raise self.source.refused(f"has more than {most} lines")
            yield clean_line(line)

    def text(self, most: int) -> str:
        """All of it, of at most so many letters: of what is no log of lines."""
        parts: list[str] = []
        for line in self.lines(most + 1):
            parts.append(line)
            most -= len(line) + 1
            if most < -1:
                raise self.source.refused("is too large for what it should be")
        return "\n".join(parts)


def clean_line(line: str) -> str:
    """A line without what is for terminals; blanks of every kind are a blank."""
    if not line.isprintable() or "\xa0" in line:
        line = _ESCAPES.sub("", line).replace("\t", " ").replace("\xa0", " ")
    return line


def _decoded(pieces: Iterator[bytes]) -> Iterator[str]:
    """A log has what ranks print, too, in any encoding: what is none becomes U+FFFD."""
    start = b""
    while len(start) < _GUESSED_BY and (more := next(pieces, b"")):
        start += more
    mark, encoding = next(
        ((mark, name) for mark, name in _BOMS if start.startswith(mark)), (b"", _guessed(start))
    )
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    yield decoder.decode(start[len(mark) :])
    yield from map(decoder.decode, pieces)
    yield decoder.decode(b"", final=True)


def _guessed(start: bytes) -> str:
    """The encoding of a text without a mark: every second byte of English in UTF-16 is 0."""
    start = start[:_GUESSED_BY]
    for odd, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        if len(start) > 1 and start[odd::2].count(0) > 0.9 * len(start[odd::2]):
            return encoding
    return "utf-8"


def _with_one_end(texts: Iterable[str]) -> Iterator[str]:
    """The same with LF at each line's end, also where CR LF is in two of the texts."""
    held = ""
    for text in texts:
        text = held + text
        held = "\r" if text.endswith("\r") else ""
        yield _LINE_END.sub("\n", text.rstrip("\r") if held else text)
    yield "\n" if held else ""


def _lines(texts: Iterable[str], letters: int) -> Iterator[str]:
    kept: list[str] = []
    room = letters

    def line() -> str:
        nonlocal room
        found = "".join(kept)
        kept.clear()
        room = letters
        return found

    def take(part: str) -> None:
        nonlocal room
        if part and room > 0:
            kept.append(part[:room])
            room -= len(part)

    for text in texts:
        first, *others = text.split("\n")
        take(first)
        for part in others:
            yield line()
            take(part)
    yield line()
