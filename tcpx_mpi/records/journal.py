"""A rank's journal on its own node: what it measured and rank 0 has not yet written.

A plain binary file, so that ranks other than 0 never load HDF5. It is a sequence of records, each
appended by one `write`: what a killed process had written is in the page cache and survives it.
A record is

    magic "TJR1" | u32 bytes of the header | u64 bytes of the data | u32 CRC-32 of both
    header: JSON, UTF-8, with "record" and, for arrays, [name, dtype, length] in order
    data: the arrays, little-endian, one after the other

in little-endian. The first record is "open"; a torn last record is passed over by the reader.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from tcpx_mpi.arrays import Int64s, np
from tcpx_mpi.errors import OutputFailed, UsageError
from tcpx_mpi.inputs import open_regular
from tcpx_mpi.records.gpu import GpuRow
from tcpx_mpi.records.header import RunHeader, header_to_plain
from tcpx_mpi.records.mapped_arrays import Growing
from tcpx_mpi.records.row import (
    FLUSH,
    ITSELF,
    PHASES,
    ObservedPlacement,
    RankRow,
    RowFacts,
    SideKey,
    facts_of,
)
from tcpx_mpi.records.sound import MOST_RANKS, dataclass_of, header_from_plain
from tcpx_mpi.records.trace import CHUNK_COLUMNS, no_chunks

if TYPE_CHECKING:
    from numpy.typing import NDArray

_REMEDY = "give the journal of a rank"
MAGIC = b"TJR1"
_SUFFIX = ".journal"
VERSION = 4
_PREFIX = struct.Struct("<4sIQI")

#: The parts of a RankRow that travel in batches, or as arrays beside the JSON.
_SAMPLED = ("samples", "warmup", "sides", "proof", "gpu")
_ARRAYS = ("batches", "batch_start", "late", "arrivals", "arrival_blocks", "trace")

#: Of a record: none has more, and all of it is in memory while it is read.
_MOST_TEXT, _MOST_DATA = 16 << 20, 128 << 20
_DTYPES = ("<i8", "<f8", "|b1")

#: A record of a journal: its header and its arrays by name.
Record: TypeAlias = "tuple[dict[str, Any], dict[str, NDArray[Any]]]"


def journal_path(spool: str, run_id: str, rank: int) -> str:
    """The path of a rank's journal; the name tells runs and ranks of one node apart."""
    return os.path.join(spool, f"tcpx-mpi-{run_id}-rank{rank:06d}{_SUFFIX}")


class Journal:
    """One rank's journal while the run goes on; only this rank touches it."""

    def __init__(
        self, spool: str, run_id: str, rank: int, world: int,
        writing: Callable[[str], AbstractContextManager[None]] | None = None,
    ) -> None:  # fmt: skip
        """Create the file in the directory `spool`; raises UsageError if that fails. `writing`
        is entered around each write, with the path: a disk may take long."""
        self._writing = writing or (lambda path: contextlib.nullcontext())
        self.path = journal_path(spool, run_id, rank)
        self._unacknowledged: set[int] = set()
        try:
            # Exclusively: the temporary directory belongs to everybody, links included.
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._fd = os.open(self.path, flags, 0o600)
        except OSError as error:
            raise UsageError(
                f"--spool: cannot create the journal {self.path}: {error.strerror}"
            ) from error
        self._end = 0
        self._append({"record": "open", "version": VERSION, "run_id": run_id, "rank": rank,
                      "world": world}, {})  # fmt: skip
        #: Everything before this stays when rows are acknowledged.
        self._kept = self._end

    def write_header(self, header: RunHeader) -> None:
        """Keep the run's header, before any batch. Rank 0's journal then suffices for a merge
        that has lost the run's file."""
        self._append({"record": "header", "header": header_to_plain(header)}, {})
        self._kept = self._end

    def append_batch(
        self,
        row_index: int,
        size_bytes: int,
        kind: str,
        first_iteration: int,
        arrays: Mapping[str, Int64s],
        side: SideKey = ITSELF,
    ) -> None:
        """The samples of one batch, by phase; `kind` is "timed" or "warmup", `side` whose."""
        self._unacknowledged.add(row_index)
        header = {
            "record": "batch",
            "row": row_index,
            "size_bytes": size_bytes,
            "peer": side.name,
            "kind": kind,
            "first_iteration": first_iteration,
        }
        self._append(header, arrays)

    def append_result(self, facts: RowFacts, part: RankRow) -> None:
        """The end of a row: what this rank counted. Its samples came with the batches."""
        self._unacknowledged.add(facts.index)
        for side, of_side in part.sides.items():
            self._append_counted(facts, of_side, side)
        self._append_counted(facts, part, ITSELF)

    def _append_counted(self, facts: RowFacts, part: RankRow, side: SideKey) -> None:
        counted = {
            item.name: getattr(part, item.name)
            for item in dataclasses.fields(part)
            if item.name not in (*_SAMPLED, *_ARRAYS)
        }
        header = {
            "record": "result",
            "row": facts.index,
            "size_bytes": facts.size_bytes,
            "peer": side.name,
            "facts": facts_of(facts),
            "counted": counted,
            "proof": dataclasses.asdict(part.proof),
            "gpu": None if part.gpu is None else dataclasses.asdict(part.gpu),
        }
        self._append(header, {name: getattr(part, name) for name in _ARRAYS})

    def acknowledge(self, row_index: int) -> None:
        """Rank 0 has this row on disk: forget it here."""
        self._unacknowledged.discard(row_index)
        if self._unacknowledged:
            self._append({"record": "acknowledged", "row": row_index}, {})
            return
        with self._reported():
            os.ftruncate(self._fd, self._kept)
        self._end = self._kept

    def close(self) -> None:
        """Close the journal, and remove it if rank 0 has every row; twice is once."""
        if self._fd < 0:
            return
        with self._reported():
            if not self._unacknowledged:
                os.unlink(self.path)
            descriptor, self._fd = self._fd, -1
            os.close(descriptor)  # a plugin may have done so

    def put_away(self) -> None:
        """Close the journal of a run that ended early; what is not yet on rank 0's disk stays."""
        with contextlib.suppress(OutputFailed):  # the run has ended for another reason
            self.close()

    def _append(self, header: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> None:
        flat = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
        shapes = [[name, values.dtype.str, values.size] for name, values in flat.items()]
        described = {**header, "arrays": shapes}
        # numpy's integers are no JSON by themselves.
        text = json.dumps(described, separators=(",", ":"), default=lambda v: v.item()).encode()
        data = b"".join(values.tobytes() for values in flat.values())
        crc = zlib.crc32(data, zlib.crc32(text))
        record = _PREFIX.pack(MAGIC, len(text), len(data), crc) + text + data
        with self._reported():
            written = 0
            try:
                while written < len(record):
                    written += os.pwrite(self._fd, record[written:], self._end + written)
            except OSError:
                # A torn record in the middle would hide all that come after it.
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, self._end)
                raise
        self._end += len(record)

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        if self._fd < 0:
            raise OutputFailed(f"the journal {self.path} was closed before")
        try:
            with self._writing(self.path):
                yield
        except OSError as error:
            raise OutputFailed(f"the journal {self.path}: {error.strerror}") from error


@dataclass(eq=False)
class JournalRow:
    """A row in a journal: samples so far, and the result if the row ended."""

    size_bytes: int
    samples: dict[str, Int64s]
    warmup: dict[str, Int64s]
    facts: RowFacts | None = None
    part: RankRow | None = None
    #: The same of each other side that has begun the row.
    sides: dict[SideKey, JournalRow] = field(default_factory=dict)


@dataclass(eq=False)
class JournalContent:
    """A journal as read back; `torn` if its last record was cut off."""

    path: str
    run_id: str
    rank: int
    world: int
    header: RunHeader | None = None
    rows: dict[int, JournalRow] = field(default_factory=dict)
    torn: bool = False


@dataclass
class _SideRead:
    """A row as it is read, of one side: the samples of its batches, and its result."""

    size_bytes: int
    series: dict[str, dict[str, Growing]]
    result: Record | None = None

    @classmethod
    def empty(cls, size_bytes: int) -> _SideRead:
        kinds = ("timed", "warmup")
        return cls(size_bytes, {kind: {phase: Growing() for phase in PHASES} for kind in kinds})

    def joined(self, kind: str) -> dict[str, Int64s]:
        return {phase: series.array() for phase, series in self.series[kind].items()}


def is_journal(path: str) -> bool:
    """Whether a file is meant as a journal, by its name or how it begins. One that cannot be opened
    is not: its reader says why."""
    try:
        descriptor = open_regular(path)
    except UsageError:
        return False
    with os.fdopen(descriptor, "rb") as file:
        return path.endswith(_SUFFIX) or file.read(len(MAGIC)) == MAGIC


def read_journal(path: str) -> JournalContent:
    """Read a journal, also of a killed process; raises UsageError for another kind of file, and
    for one whose parts are not what a journal has, whatever its checksums say."""
    descriptor = open_regular(path, remedy=_REMEDY)
    try:
        # Never mapped: the run may go on, and cuts off what rank 0 has.
        with os.fdopen(descriptor, "rb") as file:
            return _read(path, _records(file))
    except OSError as error:
        raise UsageError(f"{path}: cannot read the journal: {error.strerror}") from error
    except (
        LookupError, ValueError, TypeError, AttributeError, RecursionError, ArithmeticError
    ) as error:  # fmt: skip
        what = " ".join(f"{type(error).__name__}: {error}".split())
        raise UsageError(f"{path} is damaged: {what[:200]}") from error


def _read(path: str, records: Iterator[Record]) -> JournalContent:
    opening = next(records, None)
    if opening is None or opening[0].get("record") != "open":
        raise UsageError(
            f"{path} is no journal of tcpx-mpi, or is cut off in its first record; give the run's "
            "own file by --run"
        )
    first = opening[0]
    if first["version"] != VERSION:
        version = str(first["version"])[:40]
        raise UsageError(f"{path} has journal version {version}, expected {VERSION}")
    if not isinstance(first["run_id"], str):
        raise ValueError("the run's name is no text")
    content = JournalContent(
        path, first["run_id"], _integer(first, "rank"), _integer(first, "world", MOST_RANKS)
    )
    rows: dict[int, dict[str, _SideRead]] = {}
    for header, arrays in records:
        if header["record"] in ("batch", "result"):
            sides = rows.setdefault(_integer(header, "row"), {})
            if not isinstance(header["peer"], str):
                raise ValueError("the name of a side is no text")
            if "/" in header["peer"] or header["peer"] == ".":  # it becomes that of a group
                raise ValueError("the name of a side is a path")
            side = sides.setdefault(header["peer"], _SideRead.empty(_integer(header, "size_bytes")))
        match header["record"]:
            case "header":
                content.header = header_from_plain(header["header"])
            case "batch":
                kept = side.series[header["kind"]]
                for phase in (*PHASES, *({FLUSH} & arrays.keys())):
                    kept.setdefault(phase, Growing()).append(_array(arrays, phase, "<i8"))
            case "result":
                side.result = (header, arrays)
            case "acknowledged":
                rows.pop(_integer(header, "row"), None)
            case "torn":
                content.torn = True
    for index in sorted(rows):
        content.rows[index] = _row_of(rows[index])
    return content


def _integer(header: Mapping[str, Any], name: str, most: int = 1 << 62) -> int:
    value = header[name]
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(f"{name} ({str(value)[:40]}) is no number from 0 to {most}")
    return value


def _array(arrays: Mapping[str, NDArray[Any]], name: str, dtype: str) -> NDArray[Any]:
    found = arrays[name]
    if found.dtype.str != dtype:
        raise ValueError(f"{name} is of the type {found.dtype.str}, expected {dtype}")
    return found


def _records(file: BinaryIO) -> Iterator[Record]:
    """Every whole record in order, then {"record": "torn"} if something else follows."""
    while prefix := file.read(_PREFIX.size):
        found = _record(prefix, file)
        if found is None:
            yield {"record": "torn"}, {}
            return
        yield found


def _record(prefix: bytes, file: BinaryIO) -> Record | None:
    """The record that has this prefix, None if it is not whole."""
    if len(prefix) < _PREFIX.size:
        return None
    magic, text_bytes, data_bytes, crc = _PREFIX.unpack(prefix)
    # No more than there is: any other file has any number here.
    left = os.fstat(file.fileno()).st_size - file.tell()
    if magic != MAGIC or text_bytes + data_bytes > left:
        return None
    if text_bytes > _MOST_TEXT or data_bytes > _MOST_DATA:
        raise ValueError(f"a record of {text_bytes} and {data_bytes} bytes")
    body = file.read(text_bytes + data_bytes)
    if len(body) < text_bytes + data_bytes or zlib.crc32(body) != crc:
        return None
    try:
        header = json.loads(body[:text_bytes])
    except ValueError:  # zeros are a record with a right checksum
        return None
    if not isinstance(header, dict):
        raise ValueError("a record is no object")
    arrays, offset = {}, text_bytes
    for name, dtype, length in header["arrays"]:
        whole = type(length) is int and 0 <= length <= data_bytes
        if dtype not in _DTYPES or not whole:
            raise ValueError(f"an array of {str(length)[:40]} values of the type {str(dtype)[:40]}")
        # Copied, or one of them would keep the whole record.
        arrays[name] = np.frombuffer(body, dtype=dtype, count=length, offset=offset).copy()
        offset += arrays[name].nbytes
    return header, arrays


def _row_of(sides: Mapping[str, _SideRead]) -> JournalRow:
    """A row of a journal, with its other sides."""
    others = {SideKey.of_name(name): _joined(side, {}) for name, side in sides.items() if name}
    size_bytes = next(iter(sides.values())).size_bytes
    return _joined(sides.get("", _SideRead.empty(size_bytes)), others)


def _joined(side: _SideRead, others: dict[SideKey, JournalRow]) -> JournalRow:
    samples, warmup = side.joined("timed"), side.joined("warmup")
    row = JournalRow(side.size_bytes, samples, warmup, sides=others)
    if side.result is None:
        return row
    header, arrays = side.result
    row.facts = dataclass_of(RowFacts, header["facts"])
    if set(header["counted"]) & {*_SAMPLED, *_ARRAYS}:
        raise ValueError("what was counted has samples")
    blocks = _array(arrays, "arrival_blocks", "<i8")
    arrivals = _array(arrays, "arrivals", "<f8")
    # Arrays are flat in a record.
    parts: dict[str, Any] = {
        "proof": dataclass_of(ObservedPlacement, header["proof"]),
        "gpu": dataclass_of(GpuRow, header["gpu"]) if header.get("gpu") else None,
        "batches": _array(arrays, "batches", "<i8"),
        "batch_start": _array(arrays, "batch_start", "<i8"),
        "late": _array(arrays, "late", "|b1"),
        "arrivals": arrivals.reshape((-1, blocks.size) if blocks.size else (0, 0)),
        "arrival_blocks": blocks,
        "trace": arrays.get("trace", no_chunks()).reshape(-1, len(CHUNK_COLUMNS)),
    }
    row.part = dataclass_of(
        RankRow,
        {
            **header["counted"],
            **parts,
            "samples": samples,
            "warmup": warmup,
            "sides": {s: each.part for s, each in others.items() if each.part is not None},
        },
    )
    return row
