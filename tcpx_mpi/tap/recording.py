"""The files of a job as a recording that is sent again: its messages, and what posts waited for.

Of a message both ends must be there, and done. What a rank knew when it posted is by its own clock;
clocks of two hosts are compared only where a pause would be behind a send.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.arrays import Int64s
from tcpx_mpi.errors import UsageError
from tcpx_mpi.patterns.recording import MESSAGE, Post, Recording
from tcpx_mpi.tap.file import TapFile, files_of
from tcpx_mpi.tap.joined import NONE, Job, Link, read_job
from tcpx_mpi.tap.ways import matched
from tcpx_mpi.units import counted, format_size

#: Their schedules take 400 bytes of memory a message and end, and 5 s to make.
MOST_MESSAGES = 1 << 19
#: Of an int32 of microseconds.
_LONGEST_IDLE_S = 2000.0


@dataclass(frozen=True)
class Part:
    """What of a record is sent again: by when it was sent, since the first message."""

    from_s: float = 0.0
    for_s: float = 0.0  # 0: to the end

    def of(self, posted_ns: Int64s) -> NDArray[np.bool_]:
        since = (posted_ns - posted_ns.min(initial=np.iinfo(np.int64).max)) / 1e9
        chosen: NDArray[np.bool_] = since >= self.from_s
        return chosen & (since < self.from_s + self.for_s) if self.for_s else chosen


@dataclass(frozen=True, eq=False)
class _Times:
    """When each message was posted and done, at both ends; within a connection never back."""

    sent: Int64s
    left: Int64s
    awaited: Int64s
    came: Int64s

    def of(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> _Times:
        return _Times(*(each[chosen] for each in (self.sent, self.left, self.awaited, self.came)))

    def end(self, sends: NDArray[np.bool_], numbers: NDArray[np.intp]) -> tuple[Int64s, Int64s]:
        """(posted, done) of the ends of these messages that are a send, or a receive."""
        posted = np.where(sends, self.sent[numbers], self.awaited[numbers])
        done = np.where(sends, self.left[numbers], self.came[numbers])
        return posted, done


def read_recording(folder: str, gaps: float = 1.0, part: Part = Part()) -> Recording:  # noqa: B008 - frozen
    """What the files of a folder have recorded; idle times are multiplied by `gaps`.

    Raises UsageError, one line, for what cannot be sent again.
    """
    job = read_job(files_of([folder]))
    ranks, world = _ranks(folder, job.files)
    messages, times, left_out = _messages(folder, job, ranks)
    chosen = part.of(times.sent)
    if not chosen.any():
        first = "" if len(chosen) else ", whole at both ends"
        raise UsageError(
            f"--replay ({folder}) has no message{first} in what is asked for: give the files of "
            "all ranks, or a smaller --replay-from"
        )
    messages, times = messages[chosen], times.of(chosen)
    if len(messages) > MOST_MESSAGES:
        span = (times.sent.max() - times.sent.min()) / 1e9
        most = span * MOST_MESSAGES / len(messages)
        raise UsageError(
            f"--replay ({folder}) has {len(messages)} messages in {span:.3g} s, more than the "
            f"{MOST_MESSAGES} of a schedule: take a part by --replay-from and --replay-for, "
            f"like --replay-for {most:.2g}s"
        )
    events = [_Rank(number, messages, times) for number in range(world)]
    idle_s = [rank.idle_ns.sum() * gaps / 1e9 for rank in events]
    longest = max(float(rank.idle_ns.max(initial=0)) for rank in events) * gaps / 1e9
    if longest > _LONGEST_IDLE_S:
        raise UsageError(
            f"--replay ({folder}) has a rank idle for {longest:.0f} s, more than the "
            f"{_LONGEST_IDLE_S:.0f} of a pause: use a smaller --gaps, or 0"
        )
    whole = hashlib.sha256(repr((world, gaps)).encode())
    for each in (messages, times.sent, times.left, times.awaited, times.came):
        whole.update(np.ascontiguousarray(each).tobytes())
    return Recording(
        world,
        messages,
        functools.cache(lambda rank: list(events[rank].posts(gaps))),
        longest,
        max(rank.depth() for rank in events),
        tuple(_notes(messages, events, gaps, max(idle_s), left_out)),
        whole.hexdigest(),
    )


def _ranks(folder: str, files: Sequence[TapFile]) -> tuple[list[int], int]:
    """The rank of each file, and how many there are: as a launcher numbered them, else by host and
    process."""
    if all(file.rank >= 0 for file in files):
        ranks = [file.rank for file in files]
        world = max(*ranks, *(file.ranks - 1 for file in files)) + 1
    else:
        names = sorted({(file.host, file.process) for file in files})
        ranks = [names.index((file.host, file.process)) for file in files]
        world = len(names)
    missing = sorted(set(range(world)) - set(ranks)) if world <= len(files) * 4096 else [world - 1]
    if world < 2:
        raise UsageError(
            f"--replay ({folder}) has records of one rank only: give the files of all ranks"
        )
    if missing:
        raise UsageError(
            f"--replay ({folder}) has no records of rank {missing[0]}, and records of "
            f"{counted(len(set(ranks)), 'rank')} of {world}: give the files of all ranks"
        )
    return ranks, world


def _messages(
    folder: str, job: Job, ranks: Sequence[int]
) -> tuple[NDArray[np.void], _Times, list[str]]:
    """What can be sent again, connection by connection, and what is left out, in words."""
    lost = sum(max(file.lost, 0) for file in job.files)
    found, times, halves, own = [np.zeros(0, MESSAGE)], [_Times(*[np.zeros(0, np.int64)] * 4)], 0, 0
    lanes: dict[tuple[int, int], int] = {}
    for number, link in sorted(enumerate(job.links), key=lambda each: _opened(each[1])):
        sent, received = matched(job, number)
        if lost and (received["parts"] > 1).any():
            raise UsageError(
                f"--replay ({folder}) lacks {counted(lost, 'record')}, and receives of several "
                "parts cannot be matched without them: record with a larger TCPX_TAP_MEMORY and "
                "TCPX_TAP_FILES"
            )
        whole = (sent["kind"] != 0) & (received["kind"] != 0)
        for end in (sent, received):
            whole &= (end["done_ns"] != NONE) & (end["code"] == 0)
        halves += int((~whole).sum())
        if not whole.any():
            continue
        ends = ranks[link.sender], ranks[link.receiver]
        if ends[0] == ends[1]:
            own += int(whole.sum())
            continue
        sent, received = _in_order(sent[whole]), _in_order(received[whole])
        messages = np.zeros(len(sent), MESSAGE)
        messages["sender"], messages["receiver"] = ends
        lanes[ends] = lanes.get(ends, -1) + 1
        messages["lane"], messages["bytes"] = lanes[ends], sent["bytes"]
        found.append(messages)
        times.append(_Times(*_forward(sent), *_forward(received)))
    fields = ("sent", "left", "awaited", "came")
    joined = _Times(*(np.concatenate([getattr(one, name) for one in times]) for name in fields))
    left_out = [f"{counted(lost, 'record')} that the tap dropped"] if lost else []
    if halves:
        left_out.append(f"{counted(halves, 'message')} that were not whole or not done")
    if own:
        left_out.append(f"{counted(own, 'message')} of a rank to itself")
    return np.concatenate(found), joined, left_out


def _opened(link: Link) -> tuple[int, int, int]:
    """The order in which lanes are numbered."""
    comm = link.send_comm or link.receive_comm
    assert comm is not None
    return comm.opened_ns, link.sender, comm.number


def _in_order(ends: NDArray[np.void]) -> NDArray[np.void]:
    """As they were posted."""
    return ends[np.lexsort((ends["part"], ends["request"]))]


def _forward(ends: NDArray[np.void]) -> tuple[Int64s, Int64s]:
    """(posted, done) of a connection's ends: a queue, so that none is before the one before it."""
    posted = np.maximum.accumulate(ends["posted_ns"])
    done = np.maximum.accumulate(np.maximum(ends["done_ns"], posted))
    return posted, done


class _Rank:
    """The posts of a rank in the order of its clock."""

    def __init__(self, rank: int, messages: NDArray[np.void], times: _Times) -> None:
        self._messages, self._times = messages, times
        out = np.flatnonzero(messages["sender"] == rank)
        come = np.flatnonzero(messages["receiver"] == rank)
        numbers = np.concatenate([out, come])
        sends = np.arange(len(numbers)) < len(out)
        posted, done = times.end(sends, numbers)
        order = np.lexsort((numbers, posted))
        self._numbers, self._sends = numbers[order], sends[order]
        self._posted, self._done = posted[order], done[order]
        busy = np.maximum.accumulate(self._done)
        #: Before each post, while nothing was under way.
        self.idle_ns = np.zeros(len(numbers), np.int64)
        self.idle_ns[1:] = np.maximum(self._posted[1:] - busy[:-1], 0)

    @property
    def span_ns(self) -> int:
        return int(self._done.max() - self._posted.min()) if len(self._done) else 0

    def depth(self) -> int:
        """The most requests that were under way on a connection, in one direction."""
        names = ("sender", "receiver", "lane")
        of = [self._messages[name][self._numbers] for name in names]
        order = np.lexsort((self._numbers, *of))
        most = 1
        edges = np.flatnonzero(np.any([np.diff(each[order]) != 0 for each in of], axis=0)) + 1
        for part in np.split(order, edges):
            posted, done = self._posted[part], self._done[part]
            under_way = np.arange(1, len(part) + 1) - np.searchsorted(done, posted)
            most = max(most, int(under_way.max(initial=1)))
        return most

    def posts(self, gaps: float) -> Iterator[Post]:
        # What is done at an instant is known to what is posted after it.
        times = np.concatenate([self._posted, self._done])
        kinds = np.repeat([0, 1], len(self._posted))
        places = np.tile(np.arange(len(self._posted)), 2)
        order = np.lexsort((self._numbers[places], kinds, times))
        idle_us = np.rint(self.idle_ns * gaps / 1e3).astype(np.int64).tolist()
        names = ("sender", "receiver", "lane")
        ends = list(zip(*(self._messages[name].tolist() for name in names), strict=True))
        numbers, sends = self._numbers.tolist(), self._sends.tolist()
        settled = (self._times.awaited <= self._times.left).tolist()
        arrived: dict[tuple[int, ...], int] = {}
        left: dict[tuple[int, ...], int] = {}
        own: dict[tuple[int, ...], int] = {}
        for is_done, place in zip(kinds[order].tolist(), places[order].tolist(), strict=True):
            number = numbers[place]
            connection = ends[number]
            if is_done and not sends[place]:
                arrived[connection] = number
            elif is_done:
                own[connection] = number
                if settled[number]:
                    left[connection] = number
            else:
                idle = idle_us[place]
                yield Post(
                    number,
                    sends[place],
                    tuple(arrived.values()),
                    own.get(connection, -1) if sends[place] else -1,
                    idle,
                    tuple(left.values()) if idle else (),
                )
                arrived.clear()
                if idle:
                    left.clear()


def _notes(
    messages: NDArray[np.void],
    ranks: Sequence[_Rank],
    gaps: float,
    idle_s: float,
    left_out: Sequence[str],
) -> Iterator[str]:
    span = max(rank.span_ns for rank in ranks) / 1e6
    total = int(messages["bytes"].sum())
    yield (
        f"recorded: {counted(len(messages), 'message')} of {format_size(total)} between "
        f"{len(ranks)} ranks in {span:.3f} ms; the size is what the busiest of them sends or "
        "receives"
    )
    yield (
        f"--gaps {gaps:g}: the rank that was idle most pauses {idle_s * 1e3:.3f} ms of an iteration"
    )
    if left_out:
        yield f"left out: {', '.join(left_out)}"
