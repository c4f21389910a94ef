"""A timeline for Perfetto, whatever it is of: JSON of trace events, compressed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

Event = dict[str, Any]

#: The process that has no rank: the title.
TITLE = 1 << 20
#: What a slice lasts at least: an arrow begins and ends within one.
LEAST_NS = 2


def write_events(facts: Mapping[str, Any], events: Iterable[Event], file: BinaryIO) -> None:
    """The file, gzipped; `facts` are for a reader who has only it."""
    # No time of day in it: the same run is the same file.
    with gzip.GzipFile(fileobj=file, mode="wb", mtime=0, filename="") as packed:
        packed.write(b'{"displayTimeUnit": "ns", "otherData": ')
        packed.write(json.dumps(facts).encode("ascii"))
        packed.write(b',\n"traceEvents": [')
        for number, event in enumerate(events):
            packed.write(b",\n" if number else b"\n")
            packed.write(json.dumps(event, allow_nan=False).encode("ascii"))
        packed.write(b"\n]}\n")


def meta(pid: int, tid: int, what: str, **args: Any) -> Event:
    """What names or orders a process, or a thread of it."""
    return {"ph": "M", "pid": pid, "tid": tid, "name": what, "args": args}


@dataclass
class Tracks:
    """Threads of one process: a name each, and one more of it where slices would overlap."""

    rank: int
    #: (group, name) -> until when each of its threads is busy, and its number.
    busy: dict[tuple[int, str], list[tuple[int, int]]] = field(default_factory=dict)
    named: dict[int, tuple[int, str]] = field(default_factory=dict)

    def place(self, group: int, name: str, begin_ns: int, end_ns: int) -> int:
        """The number of the thread for a slice; those of a name come in the order of time."""
        threads = self.busy.setdefault((group, name), [])
        for index, (until, number) in enumerate(threads):
            if until <= begin_ns:
                threads[index] = (end_ns, number)
                return number
        number = len(self.named) + 1
        threads.append((end_ns, number))
        label = name if len(threads) == 1 else f"{name} #{len(threads)}"
        self.named[number] = (group, label)
        return number
