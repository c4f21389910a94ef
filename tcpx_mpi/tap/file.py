"""A file of the tap, of one process: native/tap/layout.h has the same numbers.

It may be anybody's, and cut off anywhere: what is whole is read.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.errors import UsageError
from tcpx_mpi.inputs import Input, Limits, parse_json

ENDING = ".tap"
#: As long as 50 million records; TCPX_TAP_FILES has 256M unless it is set.
LIMITS = Limits(bytes=2 << 30)
#: Of one process, as many as its plugin could have open many times over.
_MOST_LINES = 1 << 18
_MOST_TICKS = 1 << 62
_MAGIC = b"TCPXTAP1"
_BLOCK_MAGIC = 0x42504154
_HEADER = struct.Struct("<8sII")
_BLOCK = struct.Struct("<IIII")
_LINES, _RECORDS, _CLOCK = 1, 2, 3

SEND, RECEIVE, FLUSH, DONE, ERROR = range(1, 6)
RECORD = np.dtype(
    [
        ("kind", "u1"),
        ("part", "u1"),
        ("parts", "u1"),
        ("code", "u1"),
        ("comm", "<u4"),
        ("request", "<u4"),
        ("word", "<i4"),
        ("ticks", "<u8"),
        ("bytes", "<u8"),
        ("plugin", "<f4"),
        ("took", "<f4"),
    ]
)
_PAIR = np.dtype([("ticks", "<u8"), ("monotonic_ns", "<i8"), ("real_ns", "<i8")])

_REMEDY = "give files of the tap, which TCPX_TAP_DIR makes"


@dataclass(frozen=True)
class Comm:
    """One end of a connection; `handle` is the hash that the other end has, too."""

    number: int
    sends: bool
    device: int
    handle: str
    opened_ns: int


@dataclass(frozen=True)
class TapFile:
    """The file of a process. Instants are nanoseconds of its host's wall clock."""

    path: str
    rank: int  # -1: no launcher said
    ranks: int
    host: str
    process: int
    abi: int
    plugin: str
    plugin_path: str
    #: Of RECORD, in the order of each thread.
    records: NDArray[np.void]
    times_ns: NDArray[np.int64]
    ns_a_tick: float
    comms: Mapping[int, Comm]
    devices: Mapping[int, str]
    said: Sequence[str]
    #: Records that are not in it; -1: the process died before it could say.
    lost: int


@dataclass
class _Content:
    """The blocks of a file."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    records: list[NDArray[np.void]] = field(default_factory=list)
    clocks: list[NDArray[np.void]] = field(default_factory=list)


def files_of(paths: Sequence[str]) -> list[str]:
    """The files themselves, and those of the tap in what is a folder. Raises UsageError for a
    folder without one."""
    found: list[str] = []
    for path in paths:
        if not os.path.isdir(path):
            found.append(path)
            continue
        try:
            inside = sorted(name for name in os.listdir(path) if name.endswith(ENDING))
        except OSError as error:
            raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
        if not inside:
            raise UsageError(f"{path}: has no file of the tap (*{ENDING}); {_REMEDY}")
        found += [os.path.join(path, name) for name in inside]
    return found


def read_tap(path: str) -> TapFile:
    """A file. Raises UsageError, one line, for what is none."""
    source = Input(path, LIMITS, remedy=_REMEDY)
    content = source.content()
    if len(content) < _HEADER.size or content[: len(_MAGIC)] != _MAGIC:
        raise source.refused("is no file of the tap")
    _, record_bytes, abi = _HEADER.unpack_from(content)
    if record_bytes != RECORD.itemsize:
        raise source.refused(f"has records of {record_bytes} bytes, not of {RECORD.itemsize}")
    try:
        return _read(path, abi, _blocks(content))
    except (ValueError, KeyError, TypeError) as error:
        raise source.refused(f"is damaged: {_cause(error)}") from None


def _cause(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())


def _blocks(content: bytes) -> _Content:
    found = _Content()
    at = _HEADER.size
    while at + _BLOCK.size <= len(content):
        magic, kind, _, size = _BLOCK.unpack_from(content, at)
        if magic != _BLOCK_MAGIC:
            raise ValueError(f"at byte {at} there is no block")
        begin, at = at + _BLOCK.size, at + _BLOCK.size + size
        if at > len(content):  # it was being written when the process ended
            break
        if kind == _LINES:
            text = content[begin:at].decode()
            found.lines += [_object(line) for line in text.splitlines()]
            if len(found.lines) > _MOST_LINES:
                raise ValueError(f"more than {_MOST_LINES} lines")
        elif kind == _RECORDS and size % RECORD.itemsize == 0:
            found.records.append(np.frombuffer(content, RECORD, size // RECORD.itemsize, begin))
        elif kind == _CLOCK and size == _PAIR.itemsize:
            found.clocks.append(np.frombuffer(content, _PAIR, 1, begin))
        else:
            raise ValueError(f"at byte {at - size} there is a block of another version")
    return found


def _object(line: str) -> dict[str, Any]:
    found = parse_json(line)
    if not isinstance(found, dict):
        raise ValueError("a line is no object")
    return found


def _read(path: str, abi: int, content: _Content) -> TapFile:
    process = next((line for line in content.lines if "process" in line), None)
    if process is None or not content.clocks:
        raise ValueError("it does not say whose it is")
    clock = _Clock(np.concatenate(content.clocks))
    joined = np.concatenate([np.zeros(0, RECORD), *content.records])
    comms = {comm.number: comm for comm in _comms(content.lines, clock)}
    known = np.isin(joined["comm"], list(comms)) & (joined["kind"] >= SEND)
    records = joined[known & (joined["kind"] <= ERROR)]
    lost = [_number(line, "lost") for line in content.lines if "lost" in line]
    return TapFile(
        path=path,
        rank=_number(process, "rank", least=-1),
        ranks=_number(process, "ranks", least=-1),
        host=str(process["host"]),
        process=_number(process, "process"),
        abi=abi,
        plugin=str(process["plugin"]),
        plugin_path=str(process["path"]),
        records=records,
        times_ns=clock.times(records["ticks"]),
        ns_a_tick=clock.ns_a_tick,
        comms=comms,
        devices={
            _number(line, "device"): str(line["name"])
            for line in content.lines
            if "device" in line and "name" in line
        },
        said=[str(line["said"]) for line in content.lines if "said" in line],
        lost=lost[-1] if lost else -1,
    )


def _comms(lines: Sequence[Mapping[str, Any]], clock: _Clock) -> Iterator[Comm]:
    for line in lines:
        if "comm" not in line:
            continue
        ticks = np.array([_number(line, "ticks", most=_MOST_TICKS)], np.uint64)
        yield Comm(
            _number(line, "comm"),
            line["side"] == "send",
            _number(line, "device"),
            str(line["handle"]),
            int(clock.times(ticks)[0]),
        )


def _number(line: Mapping[str, Any], name: str, least: int = 0, most: int = (1 << 63) - 1) -> int:
    found = line[name]
    if not isinstance(found, int) or isinstance(found, bool) or not least <= found <= most:
        raise ValueError(f"{name} is {found!r}")
    return found


class _Clock:
    """Ticks as time: between two pairs by a straight line, beyond them by that of all."""

    def __init__(self, pairs: NDArray[np.void]) -> None:
        ticks, ns = pairs["ticks"], pairs["monotonic_ns"]
        if (ticks > _MOST_TICKS).any() or (np.diff(ticks.astype(np.int64)) < 0).any():
            raise ValueError("its clock goes back")
        if (np.abs(ns) > _MOST_TICKS).any() or (np.abs(pairs["real_ns"]) > _MOST_TICKS).any():
            raise ValueError("its clock is beyond all time")
        self._first = int(ticks[0])
        self._ticks = (ticks.astype(np.int64) - self._first).astype(np.float64)
        self._ns = (ns - ns[0]).astype(np.float64)
        self._real_ns = int(pairs["real_ns"][0])
        span = self._ticks[-1]
        self.ns_a_tick = float(self._ns[-1] / span) if span > 0 and self._ns[-1] > 0 else 1.0

    def times(self, ticks: NDArray[np.uint64]) -> NDArray[np.int64]:
        if (ticks > _MOST_TICKS).any():
            raise ValueError("a record is beyond all time")
        since = (ticks.astype(np.int64) - self._first).astype(np.float64)
        ns = np.interp(since, self._ticks, self._ns)
        beyond = since - np.clip(since, 0.0, self._ticks[-1])
        times: NDArray[np.int64] = self._real_ns + (ns + beyond * self.ns_a_tick).astype(np.int64)
        return times
