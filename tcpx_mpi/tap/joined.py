"""The files of all ranks as one: every request once, and both ends of every connection."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.errors import UsageError
from tcpx_mpi.tap.file import DONE, ERROR, RECEIVE, SEND, Comm, TapFile, read_tap

#: Of all files together: they take 150 bytes each.
_MOST_RECORDS = 1 << 26
#: Nobody: not done, or an end whose file is not there.
NONE = -1

#: Of one request; of a grouped receive, of one part.
REQUEST = np.dtype(
    [
        ("process", "<i4"),  # the number of its file
        ("comm", "<u4"),
        ("request", "<u4"),
        ("kind", "u1"),
        ("part", "u1"),
        ("parts", "u1"),
        ("code", "u1"),  # of the last error
        ("tag", "<i4"),
        ("polls", "<i4"),
        ("bytes", "<u8"),
        ("posted_ns", "<i8"),
        ("done_ns", "<i8"),  # NONE: never
        ("plugin_ns", "<f8"),  # within the plugin's calls
    ]
)


@dataclass(frozen=True)
class Link:
    """The two ends of a connection: the file of each, NONE where it is not there, and its comm."""

    sender: int
    send_comm: Comm | None
    receiver: int
    receive_comm: Comm | None


@dataclass(frozen=True)
class Job:
    """All that was recorded. Requests are in the order of their posts, comm by comm."""

    files: Sequence[TapFile]
    requests: Sequence[NDArray[np.void]]  # by file
    links: Sequence[Link]

    def name(self, file: int) -> str:
        """The name of a file's process."""
        found = self.files[file]
        return f"rank {found.rank}" if found.rank >= 0 else f"{found.host}:{found.process}"

    def of(self, file: int, comm: Comm | None) -> NDArray[np.void]:
        """The requests of a comm, without flushes, in the order of their posts."""
        requests = self.requests[file] if file != NONE else np.zeros(0, REQUEST)
        if comm is None:
            return requests[:0]
        begin, end = np.searchsorted(requests["comm"], [comm.number, comm.number + 1])
        mine = requests[begin:end]
        messages: NDArray[np.void] = mine[(mine["kind"] == SEND) | (mine["kind"] == RECEIVE)]
        return messages


def read_job(paths: Sequence[str]) -> Job:
    """The files of a job. Raises UsageError, one line, for what is none, or too much."""
    files: list[TapFile] = []
    total = 0
    for path in paths:
        files.append(read_tap(path))
        total += len(files[-1].records)
        if total > _MOST_RECORDS:
            raise UsageError(
                f"{path}: with it there are more than {_MOST_RECORDS} records: give fewer files, or"
                " record with a smaller TCPX_TAP_FILES"
            )
    return Job(
        files, [_requests(number, file) for number, file in enumerate(files)], list(_links(files))
    )


def _requests(process: int, file: TapFile) -> NDArray[np.void]:
    """Each post, with what came of it."""
    records = file.records
    key = records["comm"].astype(np.uint64) << np.uint64(32) | records["request"]
    kind = records["kind"]
    posts = np.flatnonzero(kind < DONE)
    posts = posts[np.lexsort((records["part"][posts], key[posts]))]
    found = np.zeros(len(posts), REQUEST)
    found["process"] = process
    for name in ("comm", "request", "kind", "part", "parts", "bytes"):
        found[name] = records[name][posts]
    found["tag"] = records["word"][posts]
    found["posted_ns"] = file.times_ns[posts]
    found["plugin_ns"] = records["plugin"][posts] * file.ns_a_tick
    found["done_ns"] = NONE
    for of, names in ((DONE, ("polls", "done_ns", "plugin_ns")), (ERROR, ("code",))):
        ends = np.flatnonzero(kind == of)
        ends = ends[np.argsort(key[ends], kind="stable")]
        # The last of a request: an error may come before its end.
        place = np.searchsorted(key[ends], key[posts], side="right") - 1
        there = (place >= 0) & (key[ends][np.maximum(place, 0)] == key[posts]) if len(ends) else []
        if not np.any(there):
            continue
        end = ends[place[there]]
        values = {
            "polls": records["word"][end],
            "done_ns": file.times_ns[end],
            "plugin_ns": records["plugin"][end] * file.ns_a_tick,
            "code": records["code"][end],
        }
        for name in names:
            found[name][there] = values[name]
    return found


def _links(files: Sequence[TapFile]) -> list[Link]:
    """Each handle is one connection; if it was used again, ends pair in the order of their time."""
    ends: dict[str, tuple[list[tuple[int, int, Comm]], list[tuple[int, int, Comm]]]] = {}
    for number, file in enumerate(files):
        for comm in file.comms.values():
            sides = ends.setdefault(comm.handle, ([], []))
            sides[0 if comm.sends else 1].append((comm.opened_ns, number, comm))
    links = []
    for senders, receivers in ends.values():
        pairs = itertools.zip_longest(
            _in_time(senders), _in_time(receivers), fillvalue=(NONE, None)
        )
        links += [Link(*one, *other) for one, other in pairs]
    return links


def _in_time(ends: list[tuple[int, int, Comm]]) -> list[tuple[int, Comm | None]]:
    return [(file, comm) for _, file, comm in sorted(ends, key=lambda end: end[:2])]
