"""A run as tidy tables: what CSV, Parquet, JSON and data frames have in common. No file is touched.

A table comes in blocks, so that millions of samples are never in memory twice. Numbers of the
record are as in the file (-1: unknown); figures made of them are NaN or None if unknown.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_type_hints

import numpy as np

from tcpx_mpi.arrays import Int64s
from tcpx_mpi.records import (
    ITSELF,
    BaselineInfo,
    GpuRow,
    ObservedPlacement,
    PartialRow,
    Row,
    Run,
    SideKey,
    mapped_arrays,
)
from tcpx_mpi.records.header import RankInfo
from tcpx_mpi.records.row import RANK_COLUMNS, RANK_FLAGS
from tcpx_mpi.records.setup_times import SETUP_COLUMNS
from tcpx_mpi.report import summarise_row
from tcpx_mpi.report.field import BOOL, FLOAT, INT, MAYBE_INT, TEXT
from tcpx_mpi.report.fields import FIGURES
from tcpx_mpi.stats import RowSummary
from tcpx_mpi.stats.ratios import Ratio

#: The side of a row's own samples; a baseline's side is its name.
OURS = "plugin"

#: The side of an imported row that its program ran in place; OURS is then the one out of place.
IN_PLACE = "in_place"

#: What was varied, or might be between runs: every line of rows, samples and batches has it.
VARIABLES: dict[str, str] = {
    "run_id": TEXT, "pattern": TEXT, "plugin": TEXT, "memory": TEXT, "unpack": TEXT, "mode": TEXT,
    "world": INT, "channels": INT, "window_send": INT, "window_recv": INT,
    "row": INT, "cycle": INT, "size_bytes": INT, "count": INT, "type": TEXT, "redop": TEXT,
    "root": INT, "agg": INT, "chunk_bytes": INT, "slots": INT,
    "rate_per_s": FLOAT, "side": TEXT,
}  # fmt: skip
#: What else was found of a row before its figures.
_FACTS: dict[str, str] = {
    "iterations": INT, "ended_by": TEXT, "algo": TEXT, "pairs": TEXT, "warmup_iterations": INT,
    "messages_per_copy": INT, "chunks": INT,
}  # fmt: skip
_PLACE: dict[str, str] = {
    "rank": INT, "host": TEXT, "device": INT, "nic": TEXT, "numa_node": INT, "progress_cpu": INT,
}  # fmt: skip
_SAMPLE: dict[str, str] = {
    "warmup": BOOL, "batch": INT, "iteration": INT, "phase": TEXT, "ns": INT,
}  # fmt: skip


@dataclass(frozen=True)
class Block:
    """Some lines of a table: each column is one value for all of them, or `length` values."""

    length: int
    values: Mapping[str, Any]

    def constant(self, column: str) -> bool:
        """Whether a column has one value for all lines."""
        return not isinstance(self.values[column], (list, np.ndarray))

    def column(self, column: str) -> list[Any]:
        """All values of a column, as Python's own types."""
        value = self.values[column]
        if isinstance(value, np.ndarray):
            listed: list[Any] = value.tolist()
            return listed
        return value if isinstance(value, list) else [value] * self.length


@dataclass(frozen=True)
class Table:
    """A table: its columns in order with what they hold, and its lines."""

    name: str
    columns: Mapping[str, str]
    #: May be asked for again; each time from the first line.
    blocks: Callable[[], Iterator[Block]]

    def without(self, names: Mapping[str, str]) -> Table:
        """The same lines without some columns."""
        kept = {name: kind for name, kind in self.columns.items() if name not in names}
        return Table(self.name, kept, self.blocks)


def tables_of(run: Run) -> dict[str, Table]:
    """All tables of a run by name; together they hold what its file holds.

    Of several launches a table has all lines, which say by `run_id` of which launch they are.
    """
    makers = (
        rows, samples, against, counters, proof, gpus, batches, arrivals, ranks, peers, setup,
        settings,
    )  # fmt: skip
    return {make.__name__: _over_launches(make, run) for make in makers}


def _over_launches(make: Callable[[Run], Table], run: Run) -> Table:
    parts = [_of_launch(make(launch), launch.header.run_id) for launch in run.all_launches]
    return dataclasses.replace(
        parts[0], blocks=lambda: itertools.chain.from_iterable(part.blocks() for part in parts)
    )


def _of_launch(table: Table, run_id: str) -> Table:
    """The table with its launch in each line."""
    if "run_id" in table.columns:
        return table

    def blocks() -> Iterator[Block]:
        for block in table.blocks():
            yield Block(block.length, {"run_id": run_id, **block.values})

    return Table(table.name, {"run_id": TEXT, **table.columns}, blocks)


def rows(run: Run) -> Table:
    """One line a row of the printed table (and a baseline's row of the same shape): its figures."""
    columns = {**VARIABLES, **_FACTS, **{field.key: field.unit.kind for field in FIGURES}}

    def blocks() -> Iterator[Block]:
        for row in run.rows:
            for side, part in _sides(row):
                summary = summarise_row(run.header, part)
                # Averages have no row beside them; what has samples in place is a side of its own.
                in_place = None if SideKey(place=IN_PLACE) in row.sides else summary.in_place
                for name, figures in ((side, summary), (IN_PLACE, in_place)):
                    if figures is not None:
                        yield Block(1, _figures(run, part, name, figures))

    return Table("rows", columns, blocks)


def samples(run: Run) -> Table:
    """One line a sample: row x side x rank x iteration x phase; ns as they are in the file.

    `batch` is the number of the batch within the row; -1 of warm-ups and of rows that a crash
    left incomplete, where it is not known.
    """
    columns = {**VARIABLES, **_PLACE, "partial": BOOL, **_SAMPLE}

    def blocks() -> Iterator[Block]:
        for row in run.rows:
            for side, part in _sides(row):
                common = {**_variables(run, part, side), "partial": False}
                warmup, timed = dict(part.warmup), dict(part.samples)  # read once for all ranks
                for rank in range(part.receives.size):
                    where = {**common, **_place(run, rank)}
                    yield from _sample_blocks(where, True, _of_rank(warmup, rank))
                    yield from _sample_blocks(where, False, _of_rank(timed, rank), part.batches)
        for rest in run.partial:
            for key, other in {ITSELF: rest, **rest.sides}.items():
                common = {**_partial_variables(run, other, key.name or OURS), "partial": True}
                for rank in sorted(other.samples):
                    where = {**common, **_place(run, rank)}
                    yield from _sample_blocks(where, True, other.warmup.get(rank, {}))
                    yield from _sample_blocks(where, False, other.samples[rank])

    return Table("samples", columns, blocks)


def against(run: Run) -> Table:
    """One line a row and baseline beside it: the ratio with its interval; above 1 we are faster."""
    kinds = {int: INT, float: FLOAT, str: TEXT, int | None: MAYBE_INT}
    hints = get_type_hints(Ratio)
    figures = {"peer": TEXT}  # the name of the column is older than that of the field
    figures |= {name: kinds[hint] for name, hint in hints.items() if name != "baseline"}
    shape = {"row": INT, "cycle": INT, "size_bytes": INT}

    def blocks() -> Iterator[Block]:
        for row in run.rows:
            where = {"row": row.index, "cycle": row.cycle, "size_bytes": row.size_bytes}
            for ratio in summarise_row(run.header, row).ratios.values():
                told = dataclasses.asdict(ratio)
                yield Block(1, {**where, "peer": told.pop("baseline"), **told})

    return Table("against", {**shape, **figures}, blocks)


def counters(run: Run) -> Table:
    """One line a row, side and rank: what the rank counted, -1 if it could not."""
    kinds = {name: BOOL if name in RANK_FLAGS else INT for name in RANK_COLUMNS}
    columns = {"row": INT, "side": TEXT, "rank": INT, "host": TEXT, **kinds}

    def blocks() -> Iterator[Block]:
        for row in run.rows:
            for side, part in _sides(row):
                world = part.receives.size
                hosts = [_place(run, rank)["host"] for rank in range(world)]
                values = {name: getattr(part, name) for name in RANK_COLUMNS}
                identity = {"row": part.index, "side": side, "rank": np.arange(world)}
                yield Block(world, {**identity, "host": hosts, **values})

    return Table("counters", columns, blocks)


def proof(run: Run) -> Table:
    """One line a row, side and rank: where its work was seen; -1 and "" are unknown."""
    return _seen_by_ranks(run, "proof", ObservedPlacement, lambda row: row.proof)


def gpus(run: Run) -> Table:
    """One line a row, side and rank in a GPU's memory: the GPU before and after; -1 is unknown."""
    return _seen_by_ranks(run, "gpus", GpuRow, lambda row: row.gpu)


def _seen_by_ranks(
    run: Run,
    name: str,
    record: type[ObservedPlacement] | type[GpuRow],
    of: Callable[[Row], Sequence[ObservedPlacement] | Sequence[GpuRow]],
) -> Table:
    kinds = _kinds(record)

    def blocks() -> Iterator[Block]:
        for row in run.rows:
            for side, part in _sides(row):
                seen = of(part)
                identity = {"row": part.index, "side": side, "rank": np.arange(len(seen))}
                values = {column: [getattr(each, column) for each in seen] for column in kinds}
                yield Block(len(seen), {**identity, **values})

    return Table(name, {"row": INT, "side": TEXT, "rank": INT, **kinds}, blocks)


def batches(run: Run) -> Table:
    """One line a row, side, rank and batch: iterations, when it began there, and whether late."""
    own = {"rank": INT, "batch": INT, "first_iteration": INT, "iterations": INT,
           "start_ns": INT, "late": BOOL}  # fmt: skip

    def blocks() -> Iterator[Block]:
        for row in run.rows:
            for side, part in _sides(row):
                number = np.arange(part.batches.size)
                first = np.concatenate([[0], np.cumsum(part.batches)])[:-1].astype(np.int64)
                for rank in range(part.receives.size):
                    values = {
                        "rank": rank, "batch": number, "first_iteration": first,
                        "iterations": part.batches, "start_ns": part.batch_start[rank],
                        "late": part.late[rank],
                    }  # fmt: skip
                    yield Block(number.size, {**_variables(run, part, side), **values})

    return Table("batches", {**VARIABLES, **own}, blocks)


def arrivals(run: Run) -> Table:
    """One line a row, side, rank, peer and block of iterations, where a rank has several peers.

    The time is that of one iteration of the block.
    """
    own = {"rank": INT, "peer": INT, "block": INT, "iterations": INT, "arrival_ns": FLOAT}

    def blocks() -> Iterator[Block]:
        for row in run.rows:
            for side, part in _sides(row):
                for rank, peer in np.argwhere(~np.isnan(part.arrivals).all(axis=2)).tolist():
                    values = {
                        "rank": rank, "peer": peer, "block": np.arange(part.arrival_blocks.size),
                        "iterations": part.arrival_blocks,
                        "arrival_ns": part.arrivals[rank, peer],
                    }  # fmt: skip
                    yield Block(part.arrival_blocks.size, {**_variables(run, part, side), **values})

    return Table("arrivals", {**VARIABLES, **own}, blocks)


def ranks(run: Run) -> Table:
    """The map rank -> host -> device -> NIC -> NUMA node -> CPUs, and each rank's plugin."""
    return _small("ranks", _kinds(RankInfo), [dataclasses.asdict(x) for x in run.header.ranks])


def peers(run: Run) -> Table:
    """The baselines and their settings."""
    return _small(
        "peers", _kinds(BaselineInfo), [dataclasses.asdict(x) for x in run.header.baselines]
    )


def setup(run: Run) -> Table:
    """One line a set-up call; `ns` as measured, -1 for "no such peer" and so on."""
    columns = {name: TEXT if name == "phase" else INT for name, _ in SETUP_COLUMNS}
    lines = [dict(zip(columns, line, strict=True)) for line in run.setup.table.tolist()]
    return _small("setup", columns, [{**x, "phase": x["phase"].decode("ascii")} for x in lines])


def settings(run: Run) -> Table:
    """All else that the file says of the run, in words: section, name, value, source."""
    columns = dict.fromkeys(("section", "name", "value", "source"), TEXT)
    lines = [
        {"section": section, "name": name, "value": value, "source": source}
        for section, name, value, source in _header_values(run)
    ]
    return _small("settings", columns, lines)


def _kinds(record: type[RankInfo | BaselineInfo | ObservedPlacement | GpuRow]) -> dict[str, str]:
    kinds = {int: INT, float: FLOAT, bool: BOOL, str: TEXT}
    hints = get_type_hints(record)
    return {field.name: kinds[hints[field.name]] for field in dataclasses.fields(record)}


def _header_values(run: Run) -> Iterator[tuple[str, str, str, str]]:
    header = run.header
    yield from (("setting", *each) for each in header.settings)
    for section in ("versions", "facts", "environment"):
        yield from ((section, name, text, "") for name, text in getattr(header, section).items())
    for name, value in dataclasses.asdict(header.plan).items():
        yield ("plan", name, _as_text(value), "")
    for field in dataclasses.fields(header):
        value = getattr(header, field.name)
        if isinstance(value, (str, int, float)):
            yield ("run", field.name, _as_text(value), "")
    for section in ("command", "notes"):
        yield from ((section, str(n), text, "") for n, text in enumerate(getattr(header, section)))
    yield ("run", "end_time", run.end_time, "")
    yield ("run", "complete", _as_text(run.complete), "")
    for row in run.rows:
        for side, part in _sides(row):
            yield from (("wrong_bytes", f"{row.index} {side}", text, "") for text in part.faults)
    if run.fault is not None:
        fault = run.fault
        yield from (("fault", name, _as_text(getattr(fault, name)), "")
                    for name in ("kind", "exit_code", "time", "missing_ranks"))  # fmt: skip
        yield from (("fault", f"rank {r}", text, "") for r, text in sorted(fault.texts.items()))
    yield from (("missing", str(number), text, "") for number, text in enumerate(run.missing))


def _as_text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(str(item) for item in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _small(name: str, columns: Mapping[str, str], lines: Sequence[Mapping[str, Any]]) -> Table:
    block = Block(len(lines), {column: [line[column] for line in lines] for column in columns})
    return Table(name, columns, lambda: iter([block]))


def _sides(row: Row) -> Iterator[tuple[str, Row]]:
    """The row, then its other sides, each with its name."""
    yield OURS, row
    yield from ((side.name, other) for side, other in row.sides.items())


def _variables(run: Run, row: Row, side: str) -> dict[str, Any]:
    return {
        **_of_the_run(run), "row": row.index, "cycle": row.cycle, "size_bytes": row.size_bytes,
        "count": row.count, "type": row.type_name, "redop": row.redop, "root": row.root,
        "agg": row.agg, "chunk_bytes": row.chunk_bytes, "slots": row.slots,
        "rate_per_s": row.rate_per_s, "side": side,
    }  # fmt: skip


def _figures(run: Run, row: Row, side: str, summary: RowSummary) -> dict[str, Any]:
    facts = {name: getattr(row, name) for name in _FACTS}
    figures = {field.key: field.data(summary) for field in FIGURES}
    return {**_variables(run, row, side), **facts, **figures}


def _partial_variables(run: Run, rest: PartialRow, side: str) -> dict[str, Any]:
    """The variables of a row of which no rank 0 wrote the facts."""
    unknown = dict.fromkeys(("cycle", "count", "root", "slots"), -1)
    plan = run.header.plan
    return {
        **_of_the_run(run), **unknown, "row": rest.index, "size_bytes": rest.size_bytes,
        "type": "", "redop": "", "agg": plan.agg_iters, "chunk_bytes": plan.chunk_bytes,
        "rate_per_s": math.nan, "side": side,
    }  # fmt: skip


def _of_the_run(run: Run) -> dict[str, Any]:
    header, plan = run.header, run.header.plan
    return {
        "run_id": header.run_id, "pattern": header.pattern, "plugin": header.plugin_name,
        "memory": header.memory, "unpack": header.unpack, "mode": header.mode,
        "world": header.world, "channels": plan.channels, "window_send": plan.window_send,
        "window_recv": plan.window_recv,
    }  # fmt: skip


def _place(run: Run, rank: int) -> dict[str, Any]:
    """The place of a rank; unknown if a crash left no map."""
    for info in run.header.ranks:
        if info.rank == rank:
            return {name: getattr(info, name) for name in _PLACE}
    return {name: "" if kind == TEXT else -1 for name, kind in _PLACE.items()} | {"rank": rank}


def _of_rank(samples: Mapping[str, Int64s], rank: int) -> dict[str, Int64s]:
    """A rank's samples by phase; of a file that lacks some, those that it has."""
    return {phase: values[rank] for phase, values in samples.items() if rank < len(values)}


def _sample_blocks(
    where: Mapping[str, Any],
    warmup: bool,
    by_phase: Mapping[str, Int64s],
    batches: Int64s | None = None,
) -> Iterator[Block]:
    ends = np.cumsum(batches) if batches is not None else np.zeros(0)
    for phase, ns in by_phase.items():
        known = ends.size > 0 and ends[-1] == ns.size
        for part in mapped_arrays.pieces(ns.size):
            iteration = np.arange(part.start, part.stop)
            values = {
                "warmup": warmup,
                "batch": np.searchsorted(ends, iteration, side="right") if known else -1,
                "iteration": iteration, "phase": phase, "ns": ns[part],
            }  # fmt: skip
            yield Block(iteration.size, {**where, **values})
