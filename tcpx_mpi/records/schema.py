"""The names and types of the HDF5 file, shared by its writer and its reader.

History: version 1, the first; version 2 adds peers (`--against`), `cpu_others_ns` and `proof`,
which a file of version 1 reads as none and unknown; version 3 adds to `ranks` a GPU's place, the
plugin's CPUs and the node of the memory, unknown in older files, and `averages`, the
rows of imported runs; version 4 adds `ended_by` to a row, "iterations" in older files, and
`launches`, which an older file has none of; `gpu_name` and
`gpu_numa_node` in `ranks`, the table `gpu` in rows, in `peers` whether one has a process of its own
and what it is known to exceed, in `proof` the CPU time of such processes while others ran; version
5 adds `arrivals`, which older files have none of, and `pairs` to a row: where it is not empty, a
reader of version 4 would take others for those who sent; version 6 adds `algo` to a row and, beside
it, the row in place (`in_place`), to `ranks` `group` (0 in older files), to the root `algbw_factor`
(1) and to the plan `skipped` (""): what is wrong in a row of a program of nccl-tests is elements,
not bytes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from tcpx_mpi.arrays import np
from tcpx_mpi.records import hdf5
from tcpx_mpi.records.clock import KNOT_COLUMNS, TRIP_COLUMNS, ClockFit
from tcpx_mpi.records.commit_file import CommitFile
from tcpx_mpi.records.described import DESCRIBED
from tcpx_mpi.records.gpu import GpuRow
from tcpx_mpi.records.header import BaselineInfo, Plan, RankInfo, RunHeader
from tcpx_mpi.records.row import (
    PHASES,
    RANK_COLUMNS,
    RANK_FLAGS,
    Average,
    ObservedPlacement,
    RowFacts,
)
from tcpx_mpi.records.sound import of_kind
from tcpx_mpi.records.stored import StoredArray, StoredSamples
from tcpx_mpi.records.trace import COLUMNS
from tcpx_mpi.secrets import redacted_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

SCHEMA = "tcpx-mpi run"
SCHEMA_VERSION = 6
READABLE_VERSIONS = (1, 2, 3, 4, 5, 6)

#: Parts of a header that have a place of their own; the rest are attributes of the root.
HEADER_TABLES = (
    "settings",
    "versions",
    "environment",
    "facts",
    "ranks",
    "command",
    "notes",
    "baselines",
)
HEADER_ATTRIBUTES = tuple(
    item.name for item in fields(RunHeader) if item.name not in (*HEADER_TABLES, "plan")
)
PLAN_LISTS = ("sizes", "slots")
PLAN_ATTRIBUTES = tuple(item.name for item in fields(Plan) if item.name not in PLAN_LISTS)
ROW_ATTRIBUTES = (*(item.name for item in fields(RowFacts)), "chunks", "finished_time")

#: Older files lack these; what they then mean is in `RunHeader` and `Plan`.
NEW_HEADER_ATTRIBUTES = frozenset({"algbw_factor"})
NEW_PLAN_ATTRIBUTES = frozenset({"skipped", "one_way", "multi_recv"})
#: Older files lack these; what they then mean is in `RowFacts`.
NEW_ROW_ATTRIBUTES = frozenset({"ended_by", "pairs", "algo", "rate_per_s"})
#: Datasets of a row that only some rows have, and none of an older file.
ARRIVALS = ("arrivals", "arrival_blocks")

_LABELS = "DIMENSION_LABELS"

#: A column is its name and its type: int, float, bool or str.
Columns = Sequence[tuple[str, type]]
_TYPES = {"int": int, "float": float, "bool": bool, "str": str}
RANK_INFO_COLUMNS: Columns = tuple((item.name, _TYPES[str(item.type)]) for item in fields(RankInfo))
PROOF_COLUMNS: Columns = tuple(
    (item.name, _TYPES[str(item.type)]) for item in fields(ObservedPlacement)
)
GPU_COLUMNS: Columns = tuple((item.name, _TYPES[str(item.type)]) for item in fields(GpuRow))
BASELINE_COLUMNS: Columns = tuple(
    (item.name, _TYPES[str(item.type)]) for item in fields(BaselineInfo)
)
AVERAGE_COLUMNS: Columns = tuple((item.name, _TYPES[str(item.type)]) for item in fields(Average))
SETTING_COLUMNS: Columns = (("name", str), ("value", str), ("source", str))
PAIR_COLUMNS: Columns = (("name", str), ("value", str))
FAULT_COLUMNS: Columns = (("rank", int), ("text", str))
TRACE_COLUMNS: Columns = tuple((name, int) for name in COLUMNS)
CLOCK_KNOT_COLUMNS: Columns = tuple(
    (name, str if name == "source" else int) for name in KNOT_COLUMNS
)
CLOCK_FIT_COLUMNS: Columns = tuple((item.name, _TYPES[str(item.type)]) for item in fields(ClockFit))
CLOCK_TRIP_COLUMNS: Columns = tuple((name, int) for name in (*TRIP_COLUMNS, "residual_ns"))
PER_RANK_COLUMNS: Columns = tuple(
    (name, bool if name in RANK_FLAGS else int) for name in RANK_COLUMNS
)


def row_name(index: int) -> str:
    """The group of a row; sorting by name sorts by index."""
    return f"row_{index:06d}"


def clean_text(text: str) -> str:
    """Text that HDF5 can hold and others may have: no secrets, no NUL, and bytes that were never
    UTF-8 as escapes."""
    return (
        redacted_text(text)
        .encode("utf-8", "backslashreplace")
        .decode("utf-8")
        .replace("\0", "\\x00")
    )


@functools.cache
def _types_of(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    """The types of an attribute in a file and in memory; objects are texts."""
    import h5py

    kind = h5py.string_dtype() if dtype.hasobject else dtype
    return h5py.h5t.py_create(kind, logical=True), h5py.h5t.py_create(kind)


@functools.cache
def _extent_of(shape: tuple[int, ...]) -> Any:
    import h5py

    return h5py.h5s.create_simple(shape) if shape else h5py.h5s.create(h5py.h5s.SCALAR)


def mark(root: Any) -> None:
    """Makes an empty file one of ours, of a run that has no header yet."""
    root.attrs["schema"] = SCHEMA
    root.attrs["schema_version"] = SCHEMA_VERSION
    root.attrs["complete"] = False


def write_attribute(item: Any, name: str, value: str | int | float | tuple[str, ...]) -> None:
    """An attribute that is not there yet.

    A row has some sixty of them: `attrs` of h5py, which makes each beside an older one and renames
    it, takes three times as long.
    """
    import h5py

    values = np.array(value, dtype=object if isinstance(value, (str, tuple)) else None)
    stored, held = _types_of(values.dtype)
    attribute = h5py.h5a.create(item.id, name.encode(), stored, _extent_of(values.shape))
    attribute.write(values, mtype=held)


def _describe(dataset: Any, key: str, units: Mapping[str, str]) -> None:
    said = DESCRIBED[key]
    write_attribute(dataset, "description", said.text)
    write_attribute(dataset, "units", said.units_text(units))
    if said.dimensions:
        # Of one rank's samples in a row that was not finished there is one dimension. The name is
        # that of HDF5's own calls for labels, which take as long as the dataset.
        write_attribute(dataset, _LABELS, said.dimensions[-dataset.id.rank :])


def write_array(group: Any, name: str, values: NDArray[Any], key: str) -> None:
    """Values with what `DESCRIBED` says of them by that key."""
    _describe(group.create_dataset(name, data=values), key, {})


def write_texts(group: Any, name: str, texts: Iterable[str], key: str) -> None:
    """A list of texts as a dataset; an attribute could not hold a long one. `key` as above."""
    import h5py

    cleaned = [clean_text(text) for text in texts]
    dataset = group.create_dataset(
        name, data=np.array(cleaned, dtype=object), dtype=h5py.string_dtype()
    )
    _describe(dataset, key, {})


def read_texts(group: Any, name: str, stored: CommitFile) -> list[str]:
    """A list that `write_texts` wrote."""
    values = stored.values(group, name)
    return [_text(name, text) for text in values.ravel().tolist()]


def read_array(
    group: Any, name: str, stored: CommitFile, kind: str = "iu", dimensions: int = 1
) -> NDArray[Any]:
    """The values of a dataset that has so many dimensions; `kind` as in `sound.of_kind`."""
    return of_kind(name, stored.values(group, name), kind, dimensions)


def write_table(
    group: Any,
    name: str,
    columns: Columns,
    rows: Iterable[Sequence[Any]],
    key: str,
    units: Mapping[str, str] | None = None,
) -> None:
    """A table with named columns as one compound dataset; `key` as above.

    `units` are those of columns that have others than usual.
    """
    import h5py

    types = {
        int: np.dtype("<i8"),
        float: np.dtype("<f8"),
        bool: np.dtype(np.bool_),
        str: h5py.string_dtype(),
    }
    cleaned = [
        tuple(clean_text(value) if isinstance(value, str) else value for value in row)
        for row in rows
    ]
    dtype = [(column, types[kind]) for column, kind in columns]
    _describe(group.create_dataset(name, data=np.array(cleaned, dtype=dtype)), key, units or {})


def read_table(group: Any, name: str, columns: Columns, stored: CommitFile) -> list[dict[str, Any]]:
    """The rows of a table by name of column. Raises KeyError if a column is not there, and
    ValueError for one of another type."""
    table = stored.values(group, name)
    if table.ndim != 1 or table.dtype.names is None:
        raise ValueError(f"{name} is no table")
    lists = [_column(name, table, column, kind) for column, kind in columns]
    names = [column for column, _ in columns]
    return [dict(zip(names, values, strict=True)) for values in zip(*lists, strict=True)]


def _column(table: str, values: NDArray[Any], column: str, kind: type) -> list[Any]:
    if column not in (values.dtype.names or ()):
        raise KeyError(f"{table} has no column {column}")
    if kind is str:
        return [_text(column, value) for value in values[column].ravel().tolist()]
    kinds = {int: "iu", float: "fiu", bool: "b"}
    found: list[Any] = of_kind(column, values[column], kinds[kind], 1).tolist()
    return found


def write_samples(group: Any, name: str, samples: Mapping[str, NDArray[np.int64]]) -> None:
    """A group with one dataset a phase, in nanoseconds."""
    inner = group.create_group(name)
    for phase, values in samples.items():
        write_array(inner, phase, values.astype("<i8", copy=False), f"rows/{name}/{phase}")


def read_samples(group: Any, name: str, file: CommitFile, dimensions: int = 2) -> StoredSamples:
    """The samples by phase, which are read from the file when they are needed."""
    inside = hdf5.group_of(group, name)
    phases = PHASES if inside.id.get_num_objs() == len(PHASES) else hdf5.names(inside)
    return StoredSamples(file, {p: _place(inside, p, file, dimensions) for p in phases})


def _place(
    group: Any, phase: str, file: CommitFile, dimensions: int
) -> StoredArray | NDArray[np.int64]:
    dataset = hdf5.dataset_of(group, phase)
    dtype, shape = hdf5.kind_of(dataset).dtype, dataset.shape
    if dtype.kind != "i" or len(shape) != dimensions:
        raise ValueError(f"{phase} has no samples: {dtype} {shape}")
    offset = dataset.get_offset()  # none where HDF5 keeps it in chunks, or has nothing to keep
    if offset is None:
        return file.values(group, phase)
    if math.prod(shape) * dtype.itemsize > dataset.get_storage_size():
        raise ValueError(f"{phase} says that it has more than there is")
    return StoredArray(offset, shape, dtype)


def read_attribute(group: Any, name: str) -> Any:
    """An attribute's value as Python's own type instead of numpy's."""
    value = hdf5.attribute(group, name)
    return value.item() if isinstance(value, np.generic) else value


def read_text_attribute(group: Any, name: str) -> str:
    return _text(name, hdf5.attribute(group, name))


def read_integer_attribute(group: Any, name: str) -> int:
    value = read_attribute(group, name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} is no whole number")
    return value


def _text(name: str, value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if not isinstance(value, str):
        raise ValueError(f"{name} is no text")
    return value
