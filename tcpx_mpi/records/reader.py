"""Reads the HDF5 file of a run, whole or not."""

from __future__ import annotations

from dataclasses import MISSING, fields
from typing import Any, TypeVar

import numpy as np

from tcpx_mpi.errors import PartialResult, UsageError
from tcpx_mpi.records.commit_file import CommitFile, open_for_reading
from tcpx_mpi.records.gpu import GpuRow
from tcpx_mpi.records.header import BaselineInfo, Plan, RankInfo, RunHeader
from tcpx_mpi.records.launches import GROUP, PLANNED
from tcpx_mpi.records.row import Average, ObservedPlacement, Row
from tcpx_mpi.records.run import Fault, PartialRow, Run
from tcpx_mpi.records.schema import (
    ARRIVALS,
    AVERAGE_COLUMNS,
    BASELINE_COLUMNS,
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
    plain,
    read_samples,
    read_table,
    read_texts,
)
from tcpx_mpi.records.setup_times import SetupTimes
from tcpx_mpi.records.trace import Int64s, no_trace

_Record = TypeVar("_Record", BaselineInfo, ObservedPlacement, RankInfo)
_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
#: What h5py raises where a part is not there, or is not what it should be.
_DAMAGE = (KeyError, ValueError, TypeError, AttributeError, OSError, RuntimeError)


def read_run(path: str) -> Run:
    """The run in a file; what an unfinished one lacks is in `Run.missing`.

    Raises UsageError for a file that is missing, truncated, foreign, damaged or of a newer
    schema, and PartialResult for one whose writer was killed before it wrote a header.
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
            return _read(file, path, stored)
        except _DAMAGE as error:
            raise UsageError(f"{path} is damaged: {_one_line(error)}") from error


def _refuse_foreign(file: Any, path: str) -> None:
    schema, version = file.attrs.get("schema"), plain(file.attrs.get("schema_version"))
    if schema != SCHEMA:
        raise UsageError(f"{path} is an HDF5 file of another program; give the file of a run")
    if version not in READABLE_VERSIONS:
        raise UsageError(
            f"{path} has schema version {version}, this tcpx-mpi reads "
            f"{', '.join(map(str, READABLE_VERSIONS))}; "
            "read it with the version that wrote it, or a newer one"
        )
    # The last thing that write_header makes.
    if "rows" not in file:
        raise PartialResult(f"{path} has no header: the run was killed before its first row")


def _read(file: Any, path: str, stored: CommitFile) -> Run:
    run = _read_launch(file, path, stored)
    run.launches = [
        _read_launch(group, path, stored) for _, group in sorted(file.get(GROUP, {}).items())
    ]
    run.launches_planned = int(file.attrs.get(PLANNED, 1))
    return run


def _read_launch(file: Any, path: str, stored: CommitFile) -> Run:
    setup = file["setup"][()] if "setup" in file else SetupTimes.joined([]).table
    return Run(
        path=path,
        header=_read_header(file),
        setup=SetupTimes(setup),
        rows=sorted(
            (_read_row(group, stored) for group in file["rows"].values()),
            key=lambda row: row.index,
        ),
        complete=bool(file.attrs["complete"]),
        end_time=str(file.attrs.get("end_time", "")),
        fault=_read_fault(file["fault"]) if "fault" in file else None,
        partial=[_read_partial(group, stored) for group in file.get("partial", {}).values()],
    )


def _read_header(file: Any) -> RunHeader:
    plan = file["plan"]
    values = {
        name: plain(file.attrs[name])
        for name in HEADER_ATTRIBUTES
        if name in file.attrs or name not in NEW_HEADER_ATTRIBUTES
    }
    for name in ("versions", "environment", "facts"):
        values[name] = {
            item["name"]: item["value"] for item in read_table(file, name, PAIR_COLUMNS)
        }
    return RunHeader(
        **values,
        command=read_texts(file, "command"),
        notes=read_texts(file, "notes"),
        plan=Plan(
            **{
                name: plain(plan.attrs[name])
                for name in PLAN_ATTRIBUTES
                if name in plan.attrs or name not in NEW_PLAN_ATTRIBUTES
            },
            sizes=tuple(plan["sizes"][()].tolist()),
            slots=tuple(plan["slots"][()].tolist()),
        ),
        settings=[
            (item["name"], item["value"], item["source"])
            for item in read_table(file, "settings", SETTING_COLUMNS)
        ],
        ranks=_read_records(file, "ranks", RankInfo, RANK_INFO_COLUMNS),
        baselines=_read_records(file, "peers", BaselineInfo, BASELINE_COLUMNS)
        if "peers" in file
        else [],
    )


def _read_records(group: Any, name: str, kind: type[_Record], columns: Columns) -> list[_Record]:
    """A table of these. Columns with a default are younger than the oldest files."""
    needed = {item.name for item in fields(kind) if item.default is MISSING}
    there = group[name].dtype.names
    columns = [each for each in columns if each[0] in needed or each[0] in there]
    return [kind(**item) for item in read_table(group, name, columns)]


def _read_row(group: Any, stored: CommitFile) -> Row:
    table = group["ranks"][()]
    columns = {
        name: table[name].astype(np.bool_ if kind is bool else np.int64)
        for name, kind in PER_RANK_COLUMNS
        if name in table.dtype.names
    }
    columns.setdefault("cpu_others_ns", np.full(table.size, -1, np.int64))  # version 1
    return Row(
        **{
            name: plain(group.attrs[name])
            for name in ROW_ATTRIBUTES
            if name in group.attrs or name not in NEW_ROW_ATTRIBUTES
        },
        **columns,
        samples=read_samples(group, "samples", stored),
        warmup=read_samples(group, "warmup", stored),
        batches=group["batches"][()],
        batch_start=group["batch_start"][()],
        late=group["late"][()].astype(np.bool_),
        faults=read_texts(group, "faults"),
        **{name: group[name][()] for name in ARRIVALS if name in group},
        trace=_read_trace(group),
        proof=_read_records(group, "proof", ObservedPlacement, PROOF_COLUMNS)
        if "proof" in group
        else [],
        gpu=[GpuRow(**item) for item in read_table(group, "gpu", GPU_COLUMNS)]
        if "gpu" in group
        else [],
        against={
            peer: _read_row(inner, stored) for peer, inner in group.get("against", {}).items()
        },
        averages=[Average(**item) for item in read_table(group, "averages", AVERAGE_COLUMNS)]
        if "averages" in group
        else [],
    )


def _read_trace(group: Any) -> Int64s:
    if "trace" not in group:
        return no_trace()
    table = group["trace"][()]
    return np.stack([table[name].astype(np.int64) for name, _ in TRACE_COLUMNS], axis=1)


def _read_fault(group: Any) -> Fault:
    return Fault(
        kind=str(group.attrs["kind"]),
        exit_code=int(group.attrs["exit_code"]),
        texts={item["rank"]: item["text"] for item in read_table(group, "texts", FAULT_COLUMNS)},
        missing_ranks=tuple(group["missing_ranks"][()].tolist()),
        time=str(group.attrs["time"]),
    )


def _read_partial(group: Any, stored: CommitFile) -> PartialRow:
    ranks = {int(name.removeprefix("rank_")): name for name in group if name.startswith("rank_")}
    return PartialRow(
        index=int(group.attrs["index"]),
        size_bytes=int(group.attrs["size_bytes"]),
        missing_ranks=tuple(group["missing_ranks"][()].tolist()),
        samples={
            rank: read_samples(group[name], "samples", stored) for rank, name in ranks.items()
        },
        warmup={rank: read_samples(group[name], "warmup", stored) for rank, name in ranks.items()},
        against={
            peer: _read_partial(inner, stored) for peer, inner in group.get("against", {}).items()
        },
    )


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
