"""Writes the one HDF5 file of a run: complete and flushed after each row."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tcpx_mpi.arrays import np
from tcpx_mpi.errors import OutputFailed
from tcpx_mpi.records.clock import RowClock, knot_lines, residuals
from tcpx_mpi.records.commit_file import CommitFile
from tcpx_mpi.records.described import README
from tcpx_mpi.records.header import RunHeader
from tcpx_mpi.records.names import require_writable
from tcpx_mpi.records.new_file import NewFile
from tcpx_mpi.records.row import Row
from tcpx_mpi.records.run import Fault, PartialRow
from tcpx_mpi.records.schema import (
    ARRIVALS,
    AVERAGE_COLUMNS,
    BASELINE_COLUMNS,
    CLOCK_FIT_COLUMNS,
    CLOCK_KNOT_COLUMNS,
    CLOCK_TRIP_COLUMNS,
    FAULT_COLUMNS,
    GPU_COLUMNS,
    HEADER_ATTRIBUTES,
    PAIR_COLUMNS,
    PER_RANK_COLUMNS,
    PLAN_ATTRIBUTES,
    PLAN_LISTS,
    PROOF_COLUMNS,
    RANK_INFO_COLUMNS,
    ROW_ATTRIBUTES,
    SETTING_COLUMNS,
    TRACE_COLUMNS,
    clean_text,
    mark,
    read_samples,
    row_name,
    write_array,
    write_attribute,
    write_samples,
    write_table,
    write_texts,
)
from tcpx_mpi.records.setup_times import SetupTimes

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Of groups, attributes and tables that HDF5 has in memory, as they are in the file.
_CACHE_BYTES = 128 << 10


def utc_now() -> str:
    """The time of day for a record, ISO 8601 in UTC: 2025-03-01T12:00:00.000Z."""
    now = datetime.datetime.now(datetime.timezone.utc)
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class RunWriter:
    """The HDF5 file of a run while it is written, by rank 0 only.

    Every method leaves a flushed file behind, so that a killed writer loses nothing that a
    method has returned from. After an OutputFailed the file is closed and later calls fail too.
    """

    def __init__(self, path: str, option: str = "--hdf5", spool: str | None = None) -> None:
        """Create `path`, or the first free name beside it; see `path` for which.

        `spool` is as in `mapped_arrays`. Raises UsageError, which names the option, with nothing
        created, if no file can be made.
        """
        import h5py

        require_writable(path, option)
        #: Whether the run is whole in it.
        self.finished = False
        self.path = path
        with NewFile(path) as new:
            self._commits = CommitFile(os.dup(new.descriptor))
            #: The same file as those read it who have rows of it, also when it is finished.
            self._stored = CommitFile(os.dup(new.descriptor), spool)
            # The default format: a file of the "latest" one cannot be opened after a kill.
            self._file: Any = h5py.File(self._commits, "w")
            # What was written is not read again, and the usual 2 MiB of it are 30 MB of objects.
            cache = self._file.id.get_mdc_config()
            cache.set_initial_size = True
            cache.initial_size = cache.min_size = cache.max_size = _CACHE_BYTES
            self._file.id.set_mdc_config(cache)
            with self._step("mark"):
                write_attribute(self._file, "README", README)
                mark(self._file)
            with self._step("name"):
                self.path = new.first_free_name()

    def write_header(self, header: RunHeader) -> None:
        """The run's metadata; before any row."""
        with self._step("write the header"):
            root = self._file
            for name in HEADER_ATTRIBUTES:
                _set_attribute(root, name, getattr(header, name))
            plan = root.create_group("plan")
            for name in PLAN_ATTRIBUTES:
                _set_attribute(plan, name, getattr(header.plan, name))
            for name in PLAN_LISTS:
                write_array(plan, name, _int64s(getattr(header.plan, name)), f"plan/{name}")
            write_texts(root, "command", header.command, "command")
            write_texts(root, "notes", header.notes, "notes")
            write_table(root, "settings", SETTING_COLUMNS, header.settings, "settings")
            for name in ("versions", "environment", "facts"):
                write_table(root, name, PAIR_COLUMNS, getattr(header, name).items(), name)
            write_table(
                root,
                "ranks",
                RANK_INFO_COLUMNS,
                [[getattr(info, name) for name, _ in RANK_INFO_COLUMNS] for info in header.ranks],
                "ranks",
            )
            write_table(
                root,
                "peers",
                BASELINE_COLUMNS,
                [
                    [getattr(each, name) for name, _ in BASELINE_COLUMNS]
                    for each in header.baselines
                ],
                "peers",
            )
            root.create_group("rows")

    def write_setup(self, setup: SetupTimes) -> None:
        """The times of listen, connect, accept and regMr on every rank."""
        with self._step("write the set-up times"):
            write_array(self._file, "setup", setup.table, "setup")

    def append_row(self, row: Row) -> Row:
        """One row with all its samples, which are on disk when this returns, and there only."""
        name = row_name(row.index)
        with self._step(f"write row {row.index}"):
            _write_row(self._file["rows"].create_group(name), row)
            if row.clock is not None:
                _write_clock(self._file.require_group("clock").create_group(name), row.clock)
        return _on_disk(self._file["rows"][name], row, self._stored)

    def append_partial(self, part: PartialRow) -> None:
        """Appends a row of which the journals have parts and that no rank 0 ever joined."""
        with self._step(f"write a part of row {part.index}"):
            group = self._file.require_group("partial").create_group(row_name(part.index))
            _write_partial(group, part)

    def fail(
        self,
        kind: str,
        exit_code: int,
        texts: Mapping[int, str],
        missing_ranks: Sequence[int] = (),
    ) -> None:
        """The run ended early: why, in each rank's words (-1: nobody's); closes the file."""
        self.write_fault(Fault(kind, exit_code, dict(texts), tuple(missing_ranks), utc_now()))
        self.close()

    def discard(self) -> None:
        """Nothing was measured: leave no file behind."""
        self.close()
        with contextlib.suppress(OSError):
            os.unlink(self.path)

    def write_fault(self, fault: Fault) -> None:
        with self._step("write the fault"):
            group = self._file.create_group("fault")
            group.attrs["kind"] = clean_text(fault.kind)
            group.attrs["exit_code"] = fault.exit_code
            group.attrs["time"] = fault.time
            texts = sorted(fault.texts.items())
            write_table(group, "texts", FAULT_COLUMNS, texts, "fault/texts")
            missing = _int64s(fault.missing_ranks)
            write_array(group, "missing_ranks", missing, "fault/missing_ranks")

    def finish(self) -> None:
        """The run is whole: mark it complete and close the file."""
        with self._step("finish"):
            self._file.attrs["end_time"] = utc_now()
            self._file.attrs["complete"] = True
        self.close()
        self.finished = True

    def close(self) -> None:
        """Close the file as it is; nothing happens the second time."""
        if self._commits.closed:
            return
        with self._step("close"):
            self._file.close()
        self._commits.close()

    @contextlib.contextmanager
    def _step(self, what: str) -> Iterator[None]:
        """Run one step and commit it; turn what HDF5 raises into one line and give the file up.

        A step that fails is not committed: the file stays what the step before left.
        """
        if self._commits.closed:
            raise OutputFailed(f"{self.path}: cannot {what}: the file was closed before")
        try:
            yield
            if self._file:  # h5py: a closed file is false
                self._file.flush()
            self._commits.commit()
        except (OSError, RuntimeError, ValueError, KeyError) as error:
            # ValueError and KeyError: h5py reports some failed writes of metadata so.
            with contextlib.suppress(OSError, RuntimeError):
                self._file.close()
            with contextlib.suppress(OSError):
                self._commits.close()
            raise OutputFailed(f"{self.path}: cannot {what}: {_one_line(error)}") from error


def _write_row(group: Any, row: Row) -> None:
    for name in ROW_ATTRIBUTES:
        _set_attribute(group, name, getattr(row, name))
    write_samples(group, "samples", row.samples)
    write_samples(group, "warmup", row.warmup)
    for name in ("batches", "batch_start", "late"):
        write_array(group, name, getattr(row, name), f"rows/{name}")
    if row.arrivals.size:
        for name in ARRIVALS:
            write_array(group, name, getattr(row, name), f"rows/{name}")
    if row.trace.size:
        write_table(group, "trace", TRACE_COLUMNS, row.trace.tolist(), "rows/trace")
    columns = [getattr(row, name).tolist() for name, _ in PER_RANK_COLUMNS]
    counted = {"wrong": "elements"} if row.algo else {}
    ranks = zip(*columns, strict=True)
    write_table(group, "ranks", PER_RANK_COLUMNS, ranks, "rows/ranks", counted)
    write_texts(group, "faults", row.faults, "rows/faults")
    proof = [[getattr(rank, name) for name, _ in PROOF_COLUMNS] for rank in row.proof]
    write_table(group, "proof", PROOF_COLUMNS, proof, "rows/proof")
    if row.gpu:
        gpus = [[getattr(rank, name) for name, _ in GPU_COLUMNS] for rank in row.gpu]
        write_table(group, "gpu", GPU_COLUMNS, gpus, "rows/gpu")
    if row.averages:
        told = [[getattr(each, name) for name, _ in AVERAGE_COLUMNS] for each in row.averages]
        write_table(group, "averages", AVERAGE_COLUMNS, told, "rows/averages")
    for side, other in row.sides.items():
        _write_row(group.create_group(f"against/{side.name}"), other)


def _write_clock(group: Any, clock: RowClock) -> None:
    write_table(group, "knots", CLOCK_KNOT_COLUMNS, knot_lines(clock), "clock/knots")
    fits = [dataclasses.astuple(fit) for fit in clock.fits]
    write_table(group, "fits", CLOCK_FIT_COLUMNS, fits, "clock/fits")
    left = residuals(clock.tree, clock.trips)
    trips = np.column_stack([clock.trips, left]).tolist()
    write_table(group, "trips", CLOCK_TRIP_COLUMNS, trips, "clock/trips")


def _on_disk(group: Any, row: Row, file: CommitFile) -> Row:
    """The row with the samples that `group` has, read from the file as they are needed."""
    return dataclasses.replace(
        row,
        samples=read_samples(group, "samples", file),
        warmup=read_samples(group, "warmup", file),
        sides={
            side: _on_disk(group[f"against/{side.name}"], other, file)
            for side, other in row.sides.items()
        },
    )


def _write_partial(group: Any, part: PartialRow) -> None:
    group.attrs["index"] = part.index
    group.attrs["size_bytes"] = part.size_bytes
    write_array(group, "missing_ranks", _int64s(part.missing_ranks), "partial/missing_ranks")
    for rank in part.samples:
        inner = group.create_group(f"rank_{rank:06d}")
        write_samples(inner, "samples", part.samples[rank])
        write_samples(inner, "warmup", part.warmup[rank])
    for side, other in part.sides.items():
        _write_partial(group.create_group(f"against/{side.name}"), other)


def _set_attribute(group: Any, name: str, value: str | int | float) -> None:
    write_attribute(group, name, clean_text(value) if isinstance(value, str) else value)


def _int64s(values: Sequence[int]) -> NDArray[np.int64]:
    return np.array(values, dtype="<i8")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
