"""Validation of a file that was read: types as declared, counts that agree.

Whoever sends a file may have written anything into it, with right checksums. What passes here is
what `report`, `compare` and the others may rely on; ValueError, one line, says what does not.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tcpx_mpi.arrays import np
from tcpx_mpi.records.header import BaselineInfo, Plan, RankInfo, RunHeader
from tcpx_mpi.records.row import PHASES, RANK_COLUMNS, Row
from tcpx_mpi.records.run import PartialRow
from tcpx_mpi.records.stored import shape_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: No job has more, and some tables are as large as the square of it.
MOST_RANKS = 1 << 16
#: Above all counts, bytes and nanoseconds; sums of some of them are within 64 bits.
_MOST = 1 << 62
_Kind = TypeVar("_Kind")
_TYPES_OF: dict[Any, dict[str, str]] = {}
_WORDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text"}


def dataclass_of(kind: type[_Kind], values: Mapping[str, Any]) -> _Kind:
    """An object of a dataclass whose fields are numbers, texts and tuples of whole numbers."""
    fields = types_of(kind)
    for name, value in values.items():
        if name not in fields:
            raise ValueError(f"{name} is no part of {kind.__name__}")
        _require_type(name, value, fields[name])
    try:
        return kind(**values)
    except TypeError as error:  # one without a default is not there
        raise ValueError(str(error)) from None


def types_of(kind: Any) -> dict[str, str]:
    """The types of a dataclass's fields as its source has them, by name."""
    if kind not in _TYPES_OF:
        _TYPES_OF[kind] = {item.name: str(item.type) for item in dataclasses.fields(kind)}
    return _TYPES_OF[kind]


def _require_type(name: str, value: object, kind: str) -> None:
    if kind in _WORDS:
        _require(_is(kind, value), name, value, _WORDS[kind])
    elif kind.startswith("tuple[int"):
        good = isinstance(value, tuple) and all(_is("int", item) for item in value)
        _require(good, name, value, "a list of whole numbers")


def _is(kind: str, value: object) -> bool:
    if kind == "int":
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _MOST
    if kind == "float":
        return isinstance(value, float) or _is("int", value)
    return isinstance(value, bool if kind == "bool" else str)


def _require(good: bool, name: str, value: object, expected: str) -> None:
    if not good:
        shown = repr(value) if isinstance(value, (str, float, bool, int)) else type(value).__name__
        raise ValueError(f"{name} ({shown[:40]}) is not {expected}")


def require_header(header: RunHeader) -> None:
    """Raises ValueError if parts of a header do not agree."""
    for item in dataclasses.fields(header):
        _require_type(item.name, getattr(header, item.name), str(item.type))
    _require_texts("command", header.command)
    _require_texts("notes", header.notes)
    for name in ("versions", "environment", "facts"):
        table = getattr(header, name)
        _require(isinstance(table, dict), name, table, "a table")
        _require_texts(name, [*table, *table.values()])
    _require_texts("settings", [text for setting in header.settings for text in setting])
    _require(1 <= header.world <= MOST_RANKS, "world", header.world, f"1 to {MOST_RANKS} ranks")
    _require(header.time_divisor >= 1, "time_divisor", header.time_divisor, "1 or more")
    for name in ("busbw_factor", "algbw_factor"):
        factor = getattr(header, name)
        _require(not factor < 0 and not math.isinf(factor), name, factor, "a factor")
    ranks = [info.rank for info in header.ranks]
    _require(
        ranks == sorted(set(ranks)) and all(0 <= rank < header.world for rank in ranks),
        "ranks", "", "each rank once, in order",
    )  # fmt: skip
    plan = header.plan
    _require(all(0 <= size <= _MOST for size in plan.sizes), "sizes", "", "numbers of bytes")
    _require(len(plan.slots) in (0, len(plan.sizes)), "slots", "", "as many as sizes, or none")
    _require(plan.run_cycles >= 0, "run_cycles", plan.run_cycles, "0 or more")
    _require(header.averages_only or plan.agg_iters >= 1, "agg_iters", plan.agg_iters, "1 or more")
    names = [each.name for each in header.baselines]
    _require(len(set(names)) == len(names), "peers", "", "each once")


def header_from_plain(plain: Mapping[str, Any]) -> RunHeader:
    """The inverse of `header_to_plain`, also after a way through JSON, which has no tuples."""
    values = dict(plain)
    plan = dict(values["plan"])
    for name in ("sizes", "slots"):
        plan[name] = tuple(plan[name])
    values["plan"] = dataclass_of(Plan, plan)
    values["settings"] = [(name, value, source) for name, value, source in values["settings"]]
    values["ranks"] = [dataclass_of(RankInfo, rank) for rank in values["ranks"]]
    values["baselines"] = [dataclass_of(BaselineInfo, each) for each in values.pop("peers")]
    header = dataclass_of(RunHeader, values)
    require_header(header)
    return header


def _require_texts(name: str, texts: Sequence[object]) -> None:
    for text in texts:
        _require(isinstance(text, str), name, text, "a text")


def require_row(row: Row, header: RunHeader, warmup: bool = True) -> None:
    """Raises ValueError if parts of a row do not agree with each other, or with the header.
    Without `warmup` nothing of that was read."""
    imported = header.averages_only
    world = header.world
    least = -1 if imported else 0
    for name, kind in types_of(type(row)).items():
        if kind in _WORDS:
            _require_type(name, getattr(row, name), kind)
    _require(row.chunks >= -1, "chunks", row.chunks, "-1 (not counted) or more")
    for name in ("index", "cycle", "size_bytes", "iterations", "warmup_iterations"):
        value = getattr(row, name)
        _require(value >= (least if name in _UNTOLD else 0), name, value, f"{least} or more")
    _require(row.cycle <= row.index, "cycle", row.cycle, "at most the index")
    _require(imported or row.agg >= 1, "agg", row.agg, "1 or more")
    for name in RANK_COLUMNS:
        _require_shape(name, getattr(row, name), (world,))
    batches = row.batches
    _require_shape("batches", batches, (batches.size,))
    # The largest first: a sum of two may be beyond 64 bits.
    within = not batches.size or (batches.min() >= 1 and batches.max() <= row.iterations)
    good = within and (not batches.size or sum(batches.tolist()) == row.iterations)
    _require(good, "batches", "", f"the {row.iterations} iterations in parts")
    for name in ("batch_start", "late"):
        _require_shape(name, getattr(row, name), (world, batches.size))
    for samples in (row.samples, row.warmup) if warmup else (row.samples,):
        # Of others a run tells that they are missing; without this one there is no row.
        _require(PHASES[0] in samples, "samples", "", f"of the phase {PHASES[0]}")
        for phase in samples:
            shape = shape_of(samples, phase)
            _require(len(shape) == 2, phase, "", "samples by rank and iteration")
            _require(imported or shape[0] == world, phase, shape[0], f"samples of {world} ranks")
    if row.arrivals.size:
        _require_shape("arrivals", row.arrivals, (world, world, row.arrival_blocks.size))
    for name in ("proof", "gpu"):
        found = len(getattr(row, name))
        _require(found in (0, world), name, found, f"of none or all of {world} ranks")
    if row.clock is not None:
        good = {info.clock for info in header.ranks} <= {0, *row.clock.tree.edges}
        _require(good, "clock", "", "of the clocks of the ranks")
    if row.trace.size:
        traced = row.trace[:, 0]
        good = bool(traced.min() >= 0 and traced.max() < world)
        _require(good, "trace", "", "of ranks of the run")
    for side in row.sides.values():
        if side.sides:
            raise ValueError("a side of a row has sides of its own")
        require_row(side, header, warmup)


#: What an imported run may leave untold.
_UNTOLD = ("iterations", "warmup_iterations")


def require_partial(part: PartialRow, header: RunHeader) -> None:
    """The same of a row that a crash left."""
    for name in ("index", "size_bytes"):
        value = getattr(part, name)
        _require_type(name, value, "int")
        _require(value >= 0, name, value, "0 or more")
    for rank in (*part.samples, *part.missing_ranks):
        _require(0 <= rank < header.world, "rank", rank, f"one of {header.world}")
    for kinds in (*part.samples.values(), *part.warmup.values()):
        for phase in kinds:
            _require(len(shape_of(kinds, phase)) == 1, phase, "", "samples by iteration")
    for side in part.sides.values():
        require_partial(side, header)


def _require_shape(name: str, values: NDArray[Any], shape: tuple[int, ...]) -> None:
    if values.shape != shape:
        _require(False, name, str(values.shape), f"of the shape {shape}")


def of_kind(name: str, values: NDArray[Any], kind: str, dimensions: int) -> NDArray[Any]:
    """The same values, which are whole numbers ("iu"), numbers ("f") or flags ("b")."""
    if values.dtype.kind not in kind or values.ndim != dimensions:
        expected = f"values of {dimensions} dimensions, of the type {kind}"
        _require(False, name, str(values.dtype), expected)
    if kind == "iu" and values.dtype == np.uint64:
        good = not values.size or bool(values.max() <= _MOST)
        _require(good, name, "", "below 2^62")
    return values
