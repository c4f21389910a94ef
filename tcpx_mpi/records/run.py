"""A run as read from its file, and what a complete one would have in addition."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tcpx_mpi.arrays import Int64s
from tcpx_mpi.records.header import Plan, RunHeader
from tcpx_mpi.records.row import PHASES, Row, RowFacts, SideKey
from tcpx_mpi.records.setup_times import SetupTimes
from tcpx_mpi.records.stored import shape_of
from tcpx_mpi.units import counted, format_size

_NAMED = 8


@dataclass(frozen=True)
class Fault:
    """Why a run ended early: what every rank had to say, and who said nothing."""

    kind: str
    exit_code: int
    texts: dict[int, str]
    missing_ranks: tuple[int, ...] = ()
    time: str = ""


@dataclass(frozen=True, eq=False)
class PartialRow:
    """A row that a crash left incomplete: the samples of the ranks that have any.

    `samples` is rank -> phase -> int64[iterations so far], `warmup` the same.
    """

    index: int
    size_bytes: int
    missing_ranks: tuple[int, ...]
    samples: dict[int, Mapping[str, Int64s]]
    warmup: dict[int, Mapping[str, Int64s]]
    #: The other sides of the row.
    sides: dict[SideKey, PartialRow] = field(default_factory=dict)


@dataclass
class Run:
    """A run as read from its file."""

    path: str
    header: RunHeader
    setup: SetupTimes
    rows: Sequence[Row]
    complete: bool
    end_time: str = ""
    fault: Fault | None = None
    partial: list[PartialRow] = field(default_factory=list)
    #: Of several launches in one file, those after the first; each a run of its own.
    launches: list[Run] = field(default_factory=list)
    launches_planned: int = 1

    @property
    def all_launches(self) -> list[Run]:
        """This run and the launches after it."""
        return [self, *self.launches]

    @property
    def missing(self) -> list[str]:
        """The parts that a whole run would have and this one lacks, in words; empty if none."""
        return (
            _missing_end(self)
            + missing_rows(self.header.plan, self.rows)
            + _missing_ranks(self)
            + _missing_samples(self)
            + _missing_launches(self)
        )


def missing_rows(plan: Plan, rows: Sequence[RowFacts]) -> list[str]:
    """One line about the planned rows that are not there, or nothing."""
    # By index: the same size may have been asked for twice.
    present = {row.index for row in rows}
    begun = max((row.cycle for row in rows), default=0) + 1
    planned = plan.row_count(cycles_begun=begun)
    count = planned - sum(index < planned for index in present)
    if not count:
        return []
    absent = (index for index in range(planned) if index not in present)
    names = []
    # Of a plan that is longer than anybody reads, no more than are named.
    for index in itertools.islice(absent, _NAMED):
        place = f" (row {index + 1})" if planned > len(plan.sizes) else ""
        names.append(format_size(plan.sizes[index % len(plan.sizes)]) + place)
    return [f"{count} of {counted(planned, 'row')}: {_shortened(names, count)}"]


def _missing_end(run: Run) -> list[str]:
    if run.fault is not None:
        lines = [f"the end of the run: {run.fault.kind} (exit code {run.fault.exit_code})"]
        return lines + [
            f"rank {rank} said: {text}" if rank >= 0 else text
            for rank, text in sorted(run.fault.texts.items())
        ]
    if not run.complete:
        return ["the end of the run: its writer was killed, or is still running"]
    return []


def _missing_launches(run: Run) -> list[str]:
    found = 1 + len(run.launches)
    lines = []
    if found < run.launches_planned:
        lines.append(f"{run.launches_planned - found} of {run.launches_planned} launches")
    for number, launch in enumerate(run.launches, 2):
        lines += [f"launch {number}: {text}" for text in launch.missing]
    return lines


def _missing_ranks(run: Run) -> list[str]:
    lines = []
    mapped = {info.rank for info in run.header.ranks}
    absent = [rank for rank in range(run.header.world) if rank not in mapped]
    if absent:
        lines.append(f"{len(absent)} of {run.header.world} ranks in the rank map: {_ranks(absent)}")
    if run.fault is not None and run.fault.missing_ranks:
        lines.append(f"an answer of {_ranks(run.fault.missing_ranks)}")
    return lines


def _missing_samples(run: Run) -> list[str]:
    lines = []
    # An imported run never had any; that is no loss of this file.
    rows = run.rows if not run.header.averages_only else []
    for row in [side for each in rows for side in each.of_plugin()]:
        expected = (run.header.world, row.iterations)
        for phase in PHASES:
            found = shape_of(row.samples, phase) if phase in row.samples else (0, 0)
            if found != expected:
                lines.append(
                    f"samples of row {row.index} ({format_size(row.size_bytes)}), phase {phase}: "
                    f"{found[0]} x {found[1]} of {expected[0]} ranks x {expected[1]} iterations"
                )
    for part in run.partial:
        lines.append(
            f"part of row {part.index} ({format_size(part.size_bytes)}): "
            f"nothing whole of {_ranks(part.missing_ranks)}"
        )
    return lines


def _ranks(ranks: Sequence[int]) -> str:
    names = [str(rank) for rank in ranks[:_NAMED]]
    return ("rank " if len(ranks) == 1 else "ranks ") + _shortened(names, len(ranks))


def _shortened(names: Sequence[str], count: int) -> str:
    """A list for a line: all of so many names, or the first few and how many more."""
    if count <= _NAMED:
        return ", ".join(names)
    return ", ".join(names[:_NAMED]) + f" and {count - _NAMED} more"
