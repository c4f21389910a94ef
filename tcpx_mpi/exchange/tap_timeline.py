"""What the tap recorded of a job as a timeline for Perfetto.

A process is a rank, a track a connection: each request from its post until it was done. Arrows lead
from a send to its receive. Every host counts by its own clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.errors import UsageError
from tcpx_mpi.exchange.timeline import LEAST_NS, TITLE, Event, Tracks, meta, write_events
from tcpx_mpi.tap import text
from tcpx_mpi.tap.file import SEND
from tcpx_mpi.tap.joined import NONE, Job
from tcpx_mpi.tap.ways import matched
from tcpx_mpi.units import format_size

#: Perfetto takes minutes with more.
MOST_REQUESTS = 1 << 20

Requests = NDArray[np.void]


def write_tap_timeline(job: Job, file: BinaryIO) -> None:
    """The timeline of a job, gzipped. Raises UsageError, before anything is written, for more
    requests than can be shown."""
    count = sum(len(requests) for requests in job.requests)
    if count > MOST_REQUESTS:
        raise UsageError(
            f"--perfetto: these files have {count} requests, and {MOST_REQUESTS} can be shown: "
            "give fewer files, or record with a smaller TCPX_TAP_FILES"
        )
    hosts = len({each.host for each in job.files})
    how = "one clock" if hosts == 1 else f"{hosts} hosts, each by its own clock"
    title = f"{text.heading(job)}: {how}"
    write_events({"title": title}, _Timeline(job, title).events(), file)


class _Timeline:
    def __init__(self, job: Job, title: str) -> None:
        self._job, self._title = job, title
        self._tracks = [Tracks(number) for number in range(len(job.files))]
        firsts = [each["posted_ns"].min() for each in job.requests if len(each)]
        self._zero = int(min(firsts, default=0))

    def events(self) -> Iterator[Event]:
        """Slices and arrows, and last what names processes and threads."""
        for number, link in enumerate(self._job.links):
            sent, received = matched(self._job, number)
            ends = [self._name(link.sender), self._name(link.receiver)]
            begins = list(self._slices(link.sender, number, f"send to {ends[1]}", sent))
            yield from (event for event in begins if event is not None)
            comes = list(self._slices(link.receiver, number, f"receive from {ends[0]}", received))
            yield from (event for event in comes if event is not None)
            for place, (one, other) in enumerate(zip(begins, comes, strict=True)):
                if one is None or other is None or received["done_ns"][place] == NONE:
                    continue
                arrow = {"cat": "message", "name": "message", "id": f"{number}.{place}"}
                yield {"ph": "s", "pid": one["pid"], "tid": one["tid"], "ts": one["ts"], **arrow}
                end = other["ts"] + other["dur"] - LEAST_NS / 2e3
                yield {"ph": "f", "bp": "e", "pid": other["pid"], "tid": other["tid"], "ts": end,
                       **arrow}  # fmt: skip
        yield from self._names()

    def _name(self, file: int) -> str:
        return "?" if file == NONE else self._job.name(file)

    def _slices(
        self, file: int, link: int, track: str, requests: Requests
    ) -> Iterator[Event | None]:
        """Of each request one; None where this end has no record of it. What was never done lasts
        as long as it must."""
        for one in requests:
            if one["kind"] == 0:
                yield None
                continue
            begin = int(one["posted_ns"])
            end = max(int(one["done_ns"]), begin + LEAST_NS)
            name = f"{track}, connection {link}"
            thread = self._tracks[file].place(0 if one["kind"] == SEND else 1, name, begin, end)
            size = format_size(int(one["bytes"]))
            args = {"bytes": int(one["bytes"]), "request": int(one["request"]),
                    "polls": int(one["polls"]), "done": bool(one["done_ns"] != NONE),
                    "plugin_us": float(one["plugin_ns"]) / 1e3}  # fmt: skip
            yield {"ph": "X", "pid": file, "tid": thread, "name": size, "cat": name,
                   "ts": (begin - self._zero) / 1e3, "dur": (end - begin) / 1e3,
                   "args": args}  # fmt: skip

    def _names(self) -> Iterator[Event]:
        yield meta(TITLE, 0, "process_name", name=self._title)
        yield meta(TITLE, 0, "process_sort_index", sort_index=-1)
        for file, tracks in enumerate(self._tracks):
            name = f"{self._job.name(file)} on {self._job.files[file].host}"
            yield meta(file, 0, "process_name", name=name)
            yield meta(file, 0, "process_sort_index", sort_index=file)
            for number, (_, label) in tracks.named.items():
                yield meta(file, number, "thread_name", name=label)
