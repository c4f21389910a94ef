"""Reads the HDF5 file of a run, whole or not."""

from __future__ import annotations

import itertools
import re
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from tcpx_mpi.arrays import Int64s, np
from tcpx_mpi.errors import PartialResult, UsageError
from tcpx_mpi.records.clock import TRIP_COLUMNS, ClockFit, RowClock, read_clock
from tcpx_mpi.records.commit_file import CommitFile, open_for_reading
from tcpx_mpi.records.gpu import GpuRow
from tcpx_mpi.records.hdf5 import dataset_of, groups, has, has_attribute, kind_of
from tcpx_mpi.records.header import BaselineInfo, Plan, RankInfo, RunHeader
from tcpx_mpi.records.launches import GROUP, PLANNED, TURN_VARIABLE
from tcpx_mpi.records.row import Average, ObservedPlacement, Row, SideKey
from tcpx_mpi.records.run import Fault, PartialRow, Run
from tcpx_mpi.records.schema import (
    ARRIVALS,
    AVERAGE_COLUMNS,
    BASELINE_COLUMNS,
    CLOCK_FIT_COLUMNS,
    CLOCK_KNOT_COLUMNS,
    FAULT_COLUMNS,
    GPU_COLUMNS,
    HEADER_ATTRIBUTES,
    NEW_HEADER_ATTRIBUTES,
    NEW_PLAN_ATTRIBUTES,
    NEW_ROW_ATTRIBUTES,
    PAIR_COLUMNS,
    PER_RANK_COLUMNS,
    PLAN_ATTRIBUTES,
    PROOF_COLUMNS,
    RANK_INFO_COLUMNS,
    READABLE_VERSIONS,
    ROW_ATTRIBUTES,
    SCHEMA,
    SETTING_COLUMNS,
    TRACE_COLUMNS,
    Columns,
    read_array,
    read_attribute,
    read_integer_attribute,
    read_samples,
    read_table,
    read_text_attribute,
    read_texts,
)
from tcpx_mpi.records.setup_times import SETUP_COLUMNS, SetupTimes
from tcpx_mpi.records.sound import (
    dataclass_of,
    of_kind,
    require_header,
    require_partial,
    require_row,
)
from tcpx_mpi.records.trace import YOUNGER, no_trace

_Record = TypeVar("_Record", Average, BaselineInfo, GpuRow, ObservedPlacement, RankInfo)
#: Tables that older files lack, and some rows.
_YOUNGER = ("peers", "proof", "gpu", "averages")
_RANK = re.compile(r"rank_[0-9]{1,9}")
_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
#: What h5py raises where a part is not there, or is not what it should be.
_DAMAGE = (
    LookupError, ValueError, TypeError, AttributeError, OSError, RuntimeError, ArithmeticError,
    MemoryError,
)  # fmt: skip


def read_run(path: str, warmup: bool = True) -> Run:
    """The run in a file; what an unfinished one lacks is in `Run.missing`. Who needs no samples of
    warm-ups reads it without them in two thirds of the time.

    Raises UsageError for a file that is missing, truncated, foreign, damaged or of a newer schema.
    Raises PartialResult for one whose writer was killed before it wrote a header.
    """
    import h5py

    stored = open_for_reading(path)
    # Open as long as there are rows whose samples are in it: they are read when they are needed.
    signature = stored.read(len(_HDF5_SIGNATURE))
    if not signature:
        raise UsageError(f"{path} is empty: its writer was killed before it wrote anything")
    if signature != _HDF5_SIGNATURE:
        raise UsageError(f"{path} is no HDF5 file; give the HDF5 file of a run")
    try:
        file = h5py.File(stored, "r")
    except OSError as error:
        raise UsageError(f"{path} is truncated or damaged: {_one_line(error)}") from error
    with file:
        try:
            _refuse_foreign(file, path)
            return _read(file, path, stored, warmup)
        except _DAMAGE as error:
            raise UsageError(f"{path} is damaged: {_one_line(error)}") from error


def read_launches(path: str, warmup: bool = True) -> Run:
    """The run in a file, as `read_run`; its launches are of one command.

    Raises UsageError for those of `tune` too, each of which has settings of its own.
    """
    run = read_run(path, warmup)
    if run.launches and TURN_VARIABLE in run.header.environment:
        raise UsageError(
            f"{path} has launches of `tcpx-mpi tune`, each with settings of its own: "
            "`tune ... --resume` judges them, and `export --csv` has the rows of each"
        )
    return run


def _refuse_foreign(file: Any, path: str) -> None:
    schema = file.attrs.get("schema")
    if not isinstance(schema, str) or schema != SCHEMA:
        raise UsageError(f"{path} is an HDF5 file of another program; give the file of a run")
    version = read_attribute(file, "schema_version")
    if version not in READABLE_VERSIONS:
        raise UsageError(
            f"{path} has schema version {str(version)[:40]}, this tcpx-mpi reads "
            f"{', '.join(map(str, READABLE_VERSIONS))}; "
            "read it with the version that wrote it, or a newer one"
        )
    # The last thing that write_header makes.
    if "rows" not in file:
        raise PartialResult(f"{path} has no header: the run was killed before its first row")


def _read(file: Any, path: str, stored: CommitFile, warmup: bool) -> Run:
    run = _read_launch(file, path, stored, warmup)
    run.launches = [_read_launch(group, path, stored, warmup) for _, group in groups(file, GROUP)]
    if PLANNED in file.attrs:
        run.launches_planned = read_integer_attribute(file, PLANNED)
    return run


def _read_launch(file: Any, path: str, stored: CommitFile, warmup: bool) -> Run:
    header = _read_header(file, stored)
    require_header(header)
    rows = sorted(
        (
            _read_row(group, stored, warmup, clock=_read_clock(file, name, stored))
            for name, group in groups(file, "rows")
        ),
        key=lambda row: row.index,
    )
    for row in rows:
        require_row(row, header, warmup)
    if any(one.index == other.index for one, other in itertools.pairwise(rows)):
        raise ValueError("a row is there twice")
    partial = [_read_partial(group, stored) for _, group in groups(file, "partial")]
    for part in partial:
        require_partial(part, header)
    return Run(
        path=path,
        header=header,
        setup=_read_setup(file, stored),
        rows=rows,
        complete=read_attribute(file, "complete") is True,
        end_time=read_text_attribute(file, "end_time") if "end_time" in file.attrs else "",
        fault=_read_fault(file["fault"], stored) if "fault" in file else None,
        partial=partial,
    )


def _read_setup(file: Any, stored: CommitFile) -> SetupTimes:
    setup = SetupTimes.joined([])
    if "setup" in file:
        table = stored.values(file, "setup")
        if table.dtype != np.dtype(SETUP_COLUMNS) or table.ndim != 1:
            raise ValueError("setup is no table of set-up times")
        setup = SetupTimes(table)
        setup.phases()  # decodes them
    return setup


def _read_header(file: Any, stored: CommitFile) -> RunHeader:
    plan = file["plan"]
    values = {
        name: read_attribute(file, name)
        for name in HEADER_ATTRIBUTES
        if name not in NEW_HEADER_ATTRIBUTES or has_attribute(file, name)
    }
    for name in ("versions", "environment", "facts"):
        values[name] = {
            item["name"]: item["value"] for item in read_table(file, name, PAIR_COLUMNS, stored)
        }
    planned = {
        name: read_attribute(plan, name)
        for name in PLAN_ATTRIBUTES
        if name not in NEW_PLAN_ATTRIBUTES or has_attribute(plan, name)
    }
    for name in ("sizes", "slots"):
        planned[name] = tuple(read_array(plan, name, stored).tolist())
    return RunHeader(
        **values,
        command=read_texts(file, "command", stored),
        notes=read_texts(file, "notes", stored),
        plan=dataclass_of(Plan, planned),
        settings=[
            (item["name"], item["value"], item["source"])
            for item in read_table(file, "settings", SETTING_COLUMNS, stored)
        ],
        ranks=_read_records(file, "ranks", RankInfo, RANK_INFO_COLUMNS, stored),
        baselines=_read_records(file, "peers", BaselineInfo, BASELINE_COLUMNS, stored),
    )


def _read_records(
    group: Any, name: str, kind: type[_Record], columns: Columns, stored: CommitFile
) -> list[_Record]:
    """A table of these, none if some files lack it. Columns with a default are younger than the
    oldest files."""
    if name in _YOUNGER and not has(group, name):
        return []
    needed = {item.name for item in fields(kind) if item.default is MISSING}
    there = kind_of(dataset_of(group, name)).dtype.names or ()
    columns = [each for each in columns if each[0] in needed or each[0] in there]
    return [dataclass_of(kind, item) for item in read_table(group, name, columns, stored)]


def _read_row(
    group: Any, stored: CommitFile, warmup: bool, of: Any = None, clock: RowClock | None = None
) -> Row:
    table = stored.values(group, "ranks")
    columns: dict[str, Any] = {
        name: of_kind(name, table[name], "b" if kind is bool else "iu", 1).astype(
            np.bool_ if kind is bool else np.int64
        )
        for name, kind in PER_RANK_COLUMNS
        if name in (table.dtype.names or ())
    }
    columns.setdefault("cpu_others_ns", np.full(table.size, -1, np.int64))  # version 1
    arrivals: dict[str, Any] = {}
    if has(group, ARRIVALS[0]):
        arrivals = {
            name: read_array(group, name, stored, kind, dimensions)
            for name, kind, dimensions in zip(ARRIVALS, ("f", "iu"), (3, 1), strict=True)
        }
    return Row(
        **{
            name: read_attribute(group, name)
            for name in ROW_ATTRIBUTES
            if name not in NEW_ROW_ATTRIBUTES or has_attribute(group, name)
        },
        **columns,
        **arrivals,
        samples=read_samples(group, "samples", stored),
        warmup=read_samples(group, "warmup", stored) if warmup else {},
        batches=read_array(group, "batches", stored),
        batch_start=read_array(group, "batch_start", stored, dimensions=2),
        late=read_array(group, "late", stored, "biu", 2).astype(np.bool_),
        faults=read_texts(group, "faults", stored),
        trace=_read_trace(group, stored),
        proof=_read_records(group, "proof", ObservedPlacement, PROOF_COLUMNS, stored),
        gpu=_read_records(group, "gpu", GpuRow, GPU_COLUMNS, stored),
        # Sides have none of their own.
        sides={
            SideKey.of_name(name): _read_row(inner, stored, warmup, group)
            for name, inner in groups(group, "against")
        }
        if of is None
        else {},
        averages=_read_records(group, "averages", Average, AVERAGE_COLUMNS, stored),
        clock=clock,
    )


def _read_clock(file: Any, name: str, stored: CommitFile) -> RowClock | None:
    """The clocks of a row by its name; None of a run with one, and of older files."""
    if not has(file, "clock") or not has(file["clock"], name):
        return None
    group = file["clock"][name]
    trips = stored.values(group, "trips")
    columns = [of_kind(column, trips[column], "iu", 1) for column in TRIP_COLUMNS]
    fits = read_table(group, "fits", CLOCK_FIT_COLUMNS, stored)
    return read_clock(
        read_table(group, "knots", CLOCK_KNOT_COLUMNS, stored),
        np.stack(columns, axis=1).astype(np.int64),
        [dataclass_of(ClockFit, fit) for fit in fits],
    )


def _read_trace(group: Any, stored: CommitFile) -> Int64s:
    if not has(group, "trace"):
        return no_trace()
    table = stored.values(group, "trace")
    unknown = np.full(table.shape, -1)

    def column(name: str) -> Int64s:
        there = name not in YOUNGER or name in (table.dtype.names or ())
        values = table[name] if there else unknown
        return of_kind(name, values, "iu", 1).astype(np.int64)

    columns = [column(name) for name, _ in TRACE_COLUMNS]
    return np.stack(columns, axis=1)


def _read_fault(group: Any, stored: CommitFile) -> Fault:
    return Fault(
        kind=read_text_attribute(group, "kind"),
        exit_code=read_integer_attribute(group, "exit_code"),
        texts={
            item["rank"]: item["text"] for item in read_table(group, "texts", FAULT_COLUMNS, stored)
        },
        missing_ranks=tuple(read_array(group, "missing_ranks", stored).tolist()),
        time=read_text_attribute(group, "time"),
    )


def _read_partial(group: Any, stored: CommitFile, of: Any = None) -> PartialRow:
    ranks = {int(name.removeprefix("rank_")): name for name in group if _RANK.fullmatch(name)}
    return PartialRow(
        index=read_integer_attribute(group, "index"),
        size_bytes=read_integer_attribute(group, "size_bytes"),
        missing_ranks=tuple(read_array(group, "missing_ranks", stored).tolist()),
        samples={
            rank: read_samples(group[name], "samples", stored, 1) for rank, name in ranks.items()
        },
        warmup={
            rank: read_samples(group[name], "warmup", stored, 1) for rank, name in ranks.items()
        },
        sides={
            SideKey.of_name(name): _read_partial(inner, stored, group)
            for name, inner in groups(group, "against")
        }
        if of is None
        else {},
    )


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
