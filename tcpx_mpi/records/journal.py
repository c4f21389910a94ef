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
import mmap
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.errors import OutputFailed, UsageError
from tcpx_mpi.large import Growing
from tcpx_mpi.records.gpu import GpuRow
from tcpx_mpi.records.header import RunHeader, header_from_plain, header_to_plain
from tcpx_mpi.records.row import PHASES, Int64s, Proof, RankRow, RowFacts, facts_of

MAGIC = b"TJR1"
VERSION = 3
_PREFIX = struct.Struct("<4sIQI")

#: The parts of a RankRow that travel in batches, or as arrays beside the JSON.
_SAMPLED = ("samples", "warmup", "against", "proof", "gpu")
_ARRAYS = ("batches", "batch_start", "late", "arrivals", "arrival_blocks")

#: A record of a journal: its header and its arrays by name.
Record = tuple[dict[str, Any], dict[str, NDArray[Any]]]


def journal_path(spool: str, run_id: str, rank: int) -> str:
    """Where a rank keeps its journal; the name tells runs and ranks of one node apart."""
    return os.path.join(spool, f"tcpx-mpi-{run_id}-rank{rank:06d}.journal")


class Journal:
    """One rank's journal while the run goes on; only this rank touches it."""

    def __init__(self, spool: str, run_id: str, rank: int, world: int) -> None:
        """Create the file in the directory `spool`; raises UsageError where that fails."""
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
        peer: str = "",
    ) -> None:
        """The samples of one batch, by phase; `kind` is "timed" or "warmup", `peer` whose."""
        self._unacknowledged.add(row_index)
        header = {
            "record": "batch",
            "row": row_index,
            "size_bytes": size_bytes,
            "peer": peer,
            "kind": kind,
            "first_iteration": first_iteration,
        }
        self._append(header, arrays)

    def append_result(self, facts: RowFacts, part: RankRow) -> None:
        """The end of a row: what this rank counted. Its samples came with the batches."""
        self._unacknowledged.add(facts.index)
        for peer, beside in part.against.items():
            self._append_counted(facts, beside, peer)
        self._append_counted(facts, part, "")

    def _append_counted(self, facts: RowFacts, part: RankRow, peer: str) -> None:
        counted = {
            item.name: getattr(part, item.name)
            for item in dataclasses.fields(part)
            if item.name not in (*_SAMPLED, *_ARRAYS)
        }
        header = {
            "record": "result",
            "row": facts.index,
            "size_bytes": facts.size_bytes,
            "peer": peer,
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
        os.close(self._fd)
        self._fd = -1

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
            yield
        except OSError as error:
            raise OutputFailed(f"the journal {self.path}: {error.strerror}") from error


@dataclass(eq=False)
class JournalRow:
    """What a journal holds of one row: samples so far, and the result if the row ended."""

    size_bytes: int
    samples: dict[str, Int64s]
    warmup: dict[str, Int64s]
    facts: RowFacts | None = None
    part: RankRow | None = None
    #: The same of each peer of `--against` that has begun the row, by name.
    against: dict[str, JournalRow] = field(default_factory=dict)


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


def read_journal(path: str) -> JournalContent:
    """Read a journal, also of a killed process; raises UsageError for another kind of file."""
    try:
        with open(path, "rb") as file:
            # Mapped: it may be larger than memory is.
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if _size(file) else b""
    except OSError as error:
        raise UsageError(f"{path}: cannot read the journal: {error.strerror}") from error
    records = _records(data)
    opening = next(records, None)
    if opening is None or opening[0].get("record") != "open":
        raise UsageError(f"{path} is no journal of tcpx-mpi, or is cut off in its first record")
    first = opening[0]
    if first["version"] != VERSION:
        raise UsageError(f"{path} has journal version {first['version']}, expected {VERSION}")
    content = JournalContent(path, first["run_id"], first["rank"], first["world"])
    batches: dict[int, list[Record]] = {}
    results: dict[int, dict[str, Record]] = {}
    for header, arrays in records:
        match header["record"]:
            case "header":
                content.header = header_from_plain(header["header"])
            case "batch":
                batches.setdefault(header["row"], []).append((header, arrays))
            case "result":
                results.setdefault(header["row"], {})[header["peer"]] = (header, arrays)
            case "acknowledged":
                batches.pop(header["row"], None)
                results.pop(header["row"], None)
            case "torn":
                content.torn = True
    for index in sorted(batches.keys() | results.keys()):
        content.rows[index] = _joined(batches.get(index, []), results.get(index, {}))
    return content


def _size(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_size


def _records(data: bytes | mmap.mmap) -> Iterator[Record]:
    """Every whole record in order, then {"record": "torn"} if something else follows."""
    position = 0
    while position < len(data):
        if position + _PREFIX.size > len(data):
            break
        magic, text_bytes, data_bytes, crc = _PREFIX.unpack_from(data, position)
        start = position + _PREFIX.size
        end = start + text_bytes + data_bytes
        if magic != MAGIC or end > len(data) or zlib.crc32(data[start:end]) != crc:
            break
        try:
            header = json.loads(data[start : start + text_bytes])
        except ValueError:  # zeros are a record with a right checksum
            break
        arrays, offset = {}, start + text_bytes
        for name, dtype, length in header["arrays"]:
            arrays[name] = np.frombuffer(data, dtype=dtype, count=length, offset=offset)
            offset += arrays[name].nbytes
        yield header, arrays
        position = end
    if position < len(data):
        yield {"record": "torn"}, {}


def _joined(batches: list[Record], results: Mapping[str, Record]) -> JournalRow:
    """A row of a journal, with what its peers did."""
    size_bytes = int([*batches, *results.values()][0][0]["size_bytes"])

    def joined(peer: str, kind: str) -> dict[str, Int64s]:
        chosen = sorted(
            (item for item in batches if item[0]["peer"] == peer and item[0]["kind"] == kind),
            key=lambda item: int(item[0]["first_iteration"]),
        )
        series = {phase: Growing() for phase in PHASES}
        for _, arrays in chosen:
            for phase, whole in series.items():
                whole.append(arrays[phase])
        return {phase: whole.array() for phase, whole in series.items()}

    def part_of(peer: str, against: dict[str, RankRow]) -> RankRow:
        header, arrays = results[peer]
        blocks = arrays["arrival_blocks"]
        # Arrays are flat in a record.
        arrivals = arrays["arrivals"].reshape((-1, blocks.size) if blocks.size else (0, 0))
        return RankRow(
            **header["counted"],
            samples=joined(peer, "timed"),
            warmup=joined(peer, "warmup"),
            proof=Proof(**header["proof"]),
            gpu=GpuRow(**header["gpu"]) if header.get("gpu") else None,
            against=against,
            batches=arrays["batches"],
            batch_start=arrays["batch_start"],
            late=arrays["late"],
            arrivals=arrivals,
            arrival_blocks=blocks,
        )

    def side(peer: str, against: dict[str, JournalRow]) -> JournalRow:
        row = JournalRow(size_bytes, joined(peer, "timed"), joined(peer, "warmup"), against=against)
        if peer in results:
            row.facts = RowFacts(**results[peer][0]["facts"])
            parts = {name: each.part for name, each in against.items() if each.part is not None}
            row.part = part_of(peer, parts)
        return row

    begun = dict.fromkeys(header["peer"] for header, _ in [*results.values(), *batches])
    return side("", {peer: side(peer, {}) for peer in begun if peer})
