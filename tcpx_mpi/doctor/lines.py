"""The lines of a log of NCCL: who says what, whatever stands before it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

#: host:pid:tid [device] [file:line] NCCL LEVEL text
_LINE = re.compile(
    r"(?P<host>[A-Za-z0-9][\w.-]*):(?P<pid>\d+):(?P<tid>\d+) \[(?P<device>-?\d+)\] "
    r"(?:\S+:\d+ )?NCCL (?P<level>[A-Z]+) ?(?P<text>.*)"
)


@dataclass(frozen=True, order=True)
class Rank:
    """A rank as a log knows it: NCCL prints no rank number before its lines."""

    host: str
    pid: int
    device: int

    def __str__(self) -> str:
        return f"{self.host} pid {self.pid} [{self.device}]"


@dataclass(frozen=True)
class Line:
    """One line of a log; `rank` is None and `level` "" where NCCL did not write it."""

    source: str
    number: int
    rank: Rank | None
    level: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.source}:{self.number}"


def read_lines(logs: Iterable[tuple[str, str]]) -> Iterator[Line]:
    """The lines that say something, of (name, text) of each log."""
    for name, text in logs:
        for number, line in enumerate(text.split("\n"), 1):
            found = _LINE.search(line)
            if found is not None:
                rank = Rank(found["host"], int(found["pid"]), int(found["device"]))
                yield Line(name, number, rank, found["level"], found["text"].strip())
            elif line.strip():
                yield Line(name, number, None, "", line.strip())
