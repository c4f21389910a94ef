"""Joins the journals that a crash left on the nodes into one HDF5 file."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence

from tcpx_mpi.errors import UsageError
from tcpx_mpi.records.header import RunHeader
from tcpx_mpi.records.journal import JournalContent, JournalRow, read_journal
from tcpx_mpi.records.reader import read_run
from tcpx_mpi.records.row import Row, join_row
from tcpx_mpi.records.run import PartialRow, Run, missing_rows
from tcpx_mpi.records.setup_times import SetupTimes
from tcpx_mpi.records.sound import require_partial, require_row
from tcpx_mpi.records.writer import RunWriter, utc_now
from tcpx_mpi.units import counted


def merge(out: str, journals: Sequence[str], run_file: str | None = None) -> str:
    """Write what `run_file` and the journals hold together to a new file; return its name.

    A row that every rank finished becomes a row. Of any other the samples are kept as a partial
    row that names the ranks without a whole part. Raises UsageError for journals of different
    runs or twice of one rank, and if neither the run's file nor a journal knows the header.
    """
    contents = [read_journal(path) for path in journals]
    run = read_run(run_file) if run_file is not None else None
    header = _header(contents, run)
    by_rank = {content.rank: content for content in contents}
    _refuse_strangers(contents, header)

    rows = list(run.rows) if run is not None else []
    whole, partial = _join(by_rank, header.world, {row.index for row in rows})
    rows = sorted(rows + whole, key=lambda row: row.index)
    if run is not None:
        partial = _beside(run.partial, partial, {row.index for row in rows})
    header.notes = [*header.notes, f"merged from {counted(len(contents), 'journal')}, {utc_now()}"]

    # Before there is a file: nothing of it is left where a part is none of the run.
    try:
        for row in whole:
            require_row(row, header)
        for part in partial:
            require_partial(part, header)
    except ValueError as error:
        raise UsageError(f"the journals do not agree: {error}") from None
    writer = RunWriter(out, "OUT")
    try:
        writer.write_header(header)
        writer.write_setup(run.setup if run is not None else SetupTimes.joined([]))
        for row in rows:
            writer.append_row(row)
        for part in partial:
            writer.append_partial(part)
        if run is not None and run.fault is not None:
            writer.write_fault(run.fault)
            writer.close()
        elif missing_rows(header.plan, rows):
            writer.close()
        else:
            writer.finish()
    except BaseException:
        # The journals are still there: half of what they have is of no use to anybody.
        writer.discard()
        raise
    return writer.path


def _header(contents: Sequence[JournalContent], run: Run | None) -> RunHeader:
    if run is not None:
        return run.header
    for content in contents:
        if content.header is not None:
            return content.header
    raise UsageError(
        "the header of the run is not known: give the run's file by --run, or rank 0's journal"
    )


def _refuse_strangers(contents: Sequence[JournalContent], header: RunHeader) -> None:
    seen: dict[int, str] = {}
    for content in contents:
        name = os.path.basename(content.path)
        if content.run_id != header.run_id:
            raise UsageError(f"{name} is of run {content.run_id}, not {header.run_id}")
        if not 0 <= content.rank < header.world:
            raise UsageError(f"{name} is of rank {content.rank} of {header.world}")
        if content.rank in seen:
            raise UsageError(f"{name} and {seen[content.rank]} are of the same rank")
        seen[content.rank] = name


def _join(
    by_rank: Mapping[int, JournalContent], world: int, present: set[int]
) -> tuple[list[Row], list[PartialRow]]:
    """The rows that all ranks finished, and the others; rows in `present` are left out."""
    whole, partial = [], []
    found = {index for content in by_rank.values() for index in content.rows}
    for index in sorted(found - present):
        held = {rank: c.rows[index] for rank, c in sorted(by_rank.items()) if index in c.rows}
        parts = [row.part for row in held.values() if row.part is not None]
        facts = next((row.facts for row in held.values() if row.facts is not None), None)
        if facts is not None and len(parts) == world:
            try:
                whole.append(join_row(facts, parts, utc_now()))
            except (ValueError, OverflowError) as error:
                raise UsageError(f"the journals do not agree: {error}") from None
            continue
        partial.append(_partial(index, held, world))
    return whole, partial


def _beside(
    before: Sequence[PartialRow], now: Sequence[PartialRow], whole: set[int]
) -> list[PartialRow]:
    """Partial rows of a file and of journals, those of both as one."""
    found = {part.index: part for part in before if part.index not in whole}
    for part in now:
        found[part.index] = _united(found[part.index], part) if part.index in found else part
    return [found[index] for index in sorted(found)]


def _united(before: PartialRow, now: PartialRow) -> PartialRow:
    sides = dict.fromkeys((*before.sides, *now.sides))
    return dataclasses.replace(
        now,
        missing_ranks=tuple(rank for rank in now.missing_ranks if rank in before.missing_ranks),
        samples={**before.samples, **now.samples},
        warmup={**before.warmup, **now.warmup},
        sides={
            side: _united(before.sides[side], now.sides[side])
            if side in before.sides and side in now.sides
            else (now.sides if side in now.sides else before.sides)[side]
            for side in sides
        },
    )


def _partial(index: int, held: Mapping[int, JournalRow], world: int) -> PartialRow:
    """The part of a row that the ranks in `held` have, and of each of its other sides."""
    sides = dict.fromkeys(side for row in held.values() for side in row.sides)
    return PartialRow(
        index=index,
        size_bytes=next(iter(held.values())).size_bytes,
        missing_ranks=tuple(
            rank for rank in range(world) if rank not in held or held[rank].part is None
        ),
        samples={rank: row.samples for rank, row in held.items()},
        warmup={rank: row.warmup for rank, row in held.items()},
        sides={
            side: _partial(
                index,
                {rank: row.sides[side] for rank, row in held.items() if side in row.sides},
                world,
            )
            for side in sides
        },
    )
