"""Row times of a file by launch; only rows that both files have are compared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tcpx_mpi.arrays import Float64s
from tcpx_mpi.records import Row, Run
from tcpx_mpi.stats import only_in_place, typical_time_ns
from tcpx_mpi.units import format_size


@dataclass(frozen=True, order=True)
class RowKey:
    """The key that rows of two files share if they are the same row; cycles (`-N`) are samples of
    one."""

    size_bytes: int
    type_name: str
    redop: str
    root: int
    #: Of a row that was run in place alone: it has no other time, and that of others is no match.
    in_place: bool = False
    #: Of an open loop.
    rate_per_s: float = 0.0

    def __str__(self) -> str:
        parts = [format_size(self.size_bytes)]
        if self.redop != "none":
            parts += [self.type_name, self.redop]
        if self.root >= 0:
            parts.append(f"root {self.root}")
        if self.in_place:
            parts.append("in place")
        if self.rate_per_s:
            parts.append(f"{self.rate_per_s:g} a second")
        return " ".join(parts)


def launch_times(run: Run) -> dict[RowKey, Float64s]:
    """The typical time of each row in each launch, ns, float64[launch]; NaN if a launch lacks
    the row. Of several cycles it is the median of theirs.
    """
    launches = [_times_of_one(launch) for launch in run.all_launches]
    keys = sorted({key for launch in launches for key in launch})
    return {key: np.array([launch.get(key, math.nan) for launch in launches]) for key in keys}


def taken_in_turns(first: Run, second: Run) -> bool:
    """Whether the launches of two files came in pairs, one of each, like ABBA or ABAB.

    Then launch i of one was the neighbour in time of launch i of the other.
    """
    ours, theirs = _starts(first), _starts(second)
    if len(ours) != len(theirs) or sorted(ours) != ours or sorted(theirs) != theirs:
        return False
    order = sorted([(start, "first") for start in ours] + [(start, "second") for start in theirs])
    sides = [side for _, side in order]
    return all(len(set(sides[n : n + 2])) == 2 for n in range(0, len(sides), 2))


def _starts(run: Run) -> list[str]:
    return [launch.header.start_time for launch in run.all_launches]


def _times_of_one(run: Run) -> dict[RowKey, float]:
    times: dict[RowKey, list[float]] = {}
    for row in run.rows:
        if row.pairs:  # of suspects alone, not a sample of all
            continue
        header = run.header
        time_ns = typical_time_ns(
            row, header.plan.average, header.time_divisor, header.back_to_back
        )
        times.setdefault(key_of(row), []).append(time_ns)
    return {key: _median(values) for key, values in times.items()}


def key_of(row: Row) -> RowKey:
    """The key of a row."""
    return RowKey(
        row.size_bytes, row.type_name, row.redop, row.root, only_in_place(row), row.rate_per_s
    )


def _median(values: Sequence[float]) -> float:
    return float(np.median(values)) if len(values) else math.nan
