"""`open_run(path)`: a run as pandas frames. Needs the extra `analysis`, and no MPI."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tcpx_mpi.compare.metadata import refusals
from tcpx_mpi.errors import PluginMissing
from tcpx_mpi.exchange.tidy import Block, Table, tables_of
from tcpx_mpi.records import Run, read_run
from tcpx_mpi.records.header import header_to_plain
from tcpx_mpi.report.field import BOOL, FLOAT, INT, MAYBE_INT, TEXT
from tcpx_mpi.units import counted

if TYPE_CHECKING:
    from pandas import DataFrame


def open_run(path: str) -> RunFrames:
    """The run in an HDF5 file, whole or not, as pandas frames.

    Raises UsageError for a file that is no run, PartialResult for one without even a header,
    and PluginMissing if pandas is not installed.
    """
    try:
        import pandas  # noqa: F401  # said now, and not when the first frame is made
    except ImportError:
        raise PluginMissing("open_run needs pandas: pip install 'tcpx-mpi[analysis]'") from None
    return RunFrames(read_run(path))


class RunFrames:
    """A run as frames, each made when it is first asked for; units are in the columns' names.

    Columns with a text that many lines share are categories. What the run lacks is in `missing`.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self._tables: Mapping[str, Table] = tables_of(run)

    @property
    def path(self) -> str:
        """The file."""
        return self.run.path

    @property
    def complete(self) -> bool:
        """Whether the run ended well."""
        return self.run.complete

    @property
    def missing(self) -> list[str]:
        """The parts that a whole run would have and this one lacks, in words; empty if none."""
        return self.run.missing

    def refusals(self, other: RunFrames) -> list[str]:
        """Why `tcpx-mpi compare` refuses to set the two beside each other; empty if it does not."""
        return refusals(self.run, other.run)

    @cached_property
    def header(self) -> dict[str, Any]:
        """Everything known before the first row, as plain dictionaries, lists and numbers."""
        return header_to_plain(self.run.header)

    def __getattr__(self, name: str) -> DataFrame:
        """The table of that name (`tidy.tables_of`) as a frame; unknown numbers as in the file."""
        if name not in self._tables:
            raise AttributeError(f"a run has no {name}; its tables are {', '.join(self._tables)}")
        self.__dict__[name] = _frame(self._tables[name])
        return self.__dict__[name]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._tables]

    def __repr__(self) -> str:
        header = self.run.header
        state = "whole" if not self.missing else f"lacks: {'; '.join(self.missing)}"
        return (
            f"<{header.pattern} of {counted(header.world, 'rank')} over {header.plugin_name}, "
            f"{counted(len(self.run.rows), 'row')}, {state}: {self.path}>"
        )


def _frame(table: Table) -> DataFrame:
    import pandas

    blocks = list(table.blocks())
    columns = {name: _column(blocks, name, kind) for name, kind in table.columns.items()}
    return pandas.DataFrame(columns)


def _column(blocks: list[Block], name: str, kind: str) -> Any:
    import pandas

    if kind == TEXT:
        if len(blocks) > 0 and all(block.constant(name) for block in blocks):
            return _categories(blocks, name)
        return pandas.Series([text for block in blocks for text in block.column(name)], dtype=str)
    if kind == MAYBE_INT:
        values = [value for block in blocks for value in block.column(name)]
        return pandas.array(values, dtype="Int64")
    dtype = {INT: np.int64, FLOAT: np.float64, BOOL: np.bool_}[kind]
    parts: list[Any] = [
        np.broadcast_to(np.asarray(b.values[name], dtype), b.length) for b in blocks
    ]
    return np.concatenate(parts) if parts else np.empty(0, dtype)


def _categories(blocks: list[Block], name: str) -> Any:
    """A column with one text a block, as a number a line and the texts once."""
    import pandas

    texts = list(dict.fromkeys(block.values[name] for block in blocks))
    number = {text: code for code, text in enumerate(texts)}
    codes = [np.full(block.length, number[block.values[name]], np.int32) for block in blocks]
    return pandas.Categorical.from_codes(np.concatenate(codes), texts)
