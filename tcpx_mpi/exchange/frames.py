"""`open_run(path)`: a run as pandas frames. Needs the extra `analysis`, and no MPI."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tcpx_mpi.errors import PluginMissing
from tcpx_mpi.exchange.tidy import Block, Table, tables_of
from tcpx_mpi.records import Run, read_run
from tcpx_mpi.records.header import header_to_plain
from tcpx_mpi.report.fields import BOOL, FLOAT, INT, MAYBE_INT, TEXT
from tcpx_mpi.units import counted

if TYPE_CHECKING:
    from pandas import DataFrame


def open_run(path: str) -> RunFrames:
    """The run in an HDF5 file, whole or not, as pandas frames.

    Raises UsageError for a file that is no run, PartialResult for one without even a header,
    and PluginMissing where pandas is not installed.
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
        """What a whole run would have and this one lacks, in words; empty if nothing."""
        return self.run.missing

    @cached_property
    def header(self) -> dict[str, Any]:
        """Everything known before the first row, as plain dictionaries, lists and numbers."""
        return header_to_plain(self.run.header)

    @cached_property
    def rows(self) -> DataFrame:
        """One line a row of the printed table: independent variables, then its figures."""
        return _frame(self._tables["rows"])

    @cached_property
    def samples(self) -> DataFrame:
        """One line a sample, in nanoseconds: row x side x rank x iteration x phase."""
        return _frame(self._tables["samples"])

    @cached_property
    def against(self) -> DataFrame:
        """One line a row and baseline beside it (`--against`): ratio, interval, both medians."""
        return _frame(self._tables["against"])

    @cached_property
    def counters(self) -> DataFrame:
        """One line a row, side and rank: bytes, CPU time, retransmits; -1 where not known."""
        return _frame(self._tables["counters"])

    @cached_property
    def proof(self) -> DataFrame:
        """One line a row, side and rank: where its work was seen; -1 and "" where not known."""
        return _frame(self._tables["proof"])

    @cached_property
    def gpus(self) -> DataFrame:
        """One line a row, side and rank in a GPU's memory: the GPU before and after."""
        return _frame(self._tables["gpus"])

    @cached_property
    def batches(self) -> DataFrame:
        """One line a row, side, rank and batch."""
        return _frame(self._tables["batches"])

    @cached_property
    def arrivals(self) -> DataFrame:
        """One line a row, side, rank, peer and block: when the peer's bytes were there."""
        return _frame(self._tables["arrivals"])

    @cached_property
    def ranks(self) -> DataFrame:
        """The map rank -> host -> device -> NIC -> NUMA node -> CPUs."""
        return _frame(self._tables["ranks"])

    @cached_property
    def peers(self) -> DataFrame:
        """What ran beside the plugin, and how it was set."""
        return _frame(self._tables["peers"])

    @cached_property
    def setup(self) -> DataFrame:
        """One line a call of listen, connect, accept or regMr."""
        return _frame(self._tables["setup"])

    @cached_property
    def settings(self) -> DataFrame:
        """Settings with their sources, versions, environment, facts: section, name, value."""
        return _frame(self._tables["settings"])

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
