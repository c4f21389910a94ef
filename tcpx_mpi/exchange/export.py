"""Tables of a run as CSV, Parquet and JSON."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

from tcpx_mpi.errors import PluginMissing
from tcpx_mpi.exchange.tidy import (
    VARIABLES,
    Block,
    Table,
    tables_of,
)
from tcpx_mpi.printable import printable_lines
from tcpx_mpi.records import Run
from tcpx_mpi.records.new_file import Writer
from tcpx_mpi.report import json_text
from tcpx_mpi.report.field import BOOL, FLOAT, INT, MAYBE_INT, TEXT

#: Lines of a row group of Parquet: small blocks are joined up to this.
_GROUP_LINES = 1 << 18
#: Tables of as many lines as there are samples, batches or blocks: never in memory as a whole.
_LONG = ("samples", "batches", "arrivals")


def csv_text(table: Table) -> str:
    """A small table as CSV."""
    file = io.BytesIO()
    write_csv(table, file)
    return file.getvalue().decode("utf-8")


def write_csv(table: Table, file: BinaryIO) -> None:
    """A header, then the lines; true and false, exact numbers, nothing if one is unknown."""
    text = io.TextIOWrapper(file, encoding="utf-8", errors="surrogateescape", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    for block in table.blocks():
        columns = [
            [_csv_value(value) for value in block.column(name)]
            if kind in (BOOL, FLOAT, TEXT)
            else block.column(name)
            for name, kind in table.columns.items()
        ]
        writer.writerows(zip(*columns, strict=True))
    text.flush()
    text.detach()


def write_json(run: Run, file: BinaryIO) -> None:
    """The document of `-J`, and in `tables` every table, column by column.

    The samples leave out the columns that the rows and ranks have, which their numbers name.
    """
    for part in json_text(run, [run.path]):
        file.write(part.encode("ascii"))
    file.write(b',\n "tables": {')
    for number, table in enumerate(tables_of(run).values()):
        file.write(b",\n  " if number else b"\n  ")
        _write_json_table(_narrow(table, one_launch=not run.launches), file)
    file.write(b"\n }\n}\n")


def write_parquet(table: Table, file: BinaryIO) -> None:
    """A Parquet file of the table. Raises PluginMissing without pyarrow."""
    try:
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError:
        raise PluginMissing(
            "--parquet needs pyarrow: pip install 'tcpx-mpi[analysis]', or use --csv"
        ) from None
    types = {INT: arrow.int64(), MAYBE_INT: arrow.int64(), FLOAT: arrow.float64(),
             BOOL: arrow.bool_(), TEXT: arrow.string()}  # fmt: skip
    schema = arrow.schema([(name, types[kind]) for name, kind in table.columns.items()])

    def column(block: Block, name: str) -> Any:
        kind = schema.field(name).type
        if block.constant(name):
            return arrow.repeat(arrow.scalar(block.values[name], kind), block.length)
        return arrow.array(block.values[name], kind)

    with parquet.ParquetWriter(file, schema) as writer:
        waiting: list[Any] = []
        lines = 0
        for block in table.blocks():
            columns = [column(block, name) for name in table.columns]
            waiting.append(arrow.Table.from_arrays(columns, schema=schema))
            lines += block.length
            if lines >= _GROUP_LINES:
                writer.write_table(arrow.concat_tables(waiting))
                waiting, lines = [], 0
        writer.write_table(arrow.concat_tables([schema.empty_table(), *waiting]))


def write_stdout(write: Writer) -> None:
    """The same to the standard output, as bytes."""
    sys.stdout.flush()
    write(sys.stdout.buffer)
    sys.stdout.buffer.flush()


def _narrow(table: Table, one_launch: bool) -> Table:
    """A table for a document that has the others too. Rows of several launches have a `run_id`."""
    if table.name not in _LONG:
        return table
    joined: Mapping[str, str] = {**VARIABLES, "host": "", "device": "", "nic": "", "numa_node": "",
                                 "progress_cpu": ""}  # fmt: skip
    kept = ("row", "side") if one_launch else ("row", "side", "run_id")
    return table.without({name: "" for name in joined if name not in kept})


def _write_json_table(table: Table, file: BinaryIO) -> None:
    file.write(f"{json.dumps(table.name)}: {{".encode("ascii"))
    # A column at a time: what is computed (percentiles, intervals) is so once, and not for each.
    kept = None if table.name in _LONG else list(table.blocks())
    for number, (name, kind) in enumerate(table.columns.items()):
        file.write((",\n   " if number else "\n   ").encode("ascii"))
        file.write(f"{json.dumps(name)}: [".encode("ascii"))
        for position, part in enumerate(_json_parts(kept or table.blocks(), name, kind)):
            file.write(b", " if position else b"")
            file.write(part.encode("ascii"))
        file.write(b"]")
    file.write(b"\n  }")


def _json_parts(blocks: Iterable[Block], name: str, kind: str) -> Iterator[str]:
    """The values of a column as JSON without brackets, a block at a time; no empty one."""
    for block in blocks:
        values = block.column(name)
        if kind == FLOAT:
            values = [value if math.isfinite(value) else None for value in values]
        if values:
            yield json.dumps(values, allow_nan=False)[1:-1]


def _csv_value(value: Any) -> Any:
    if isinstance(value, str):
        return printable_lines(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if math.isnan(value) else repr(value)
