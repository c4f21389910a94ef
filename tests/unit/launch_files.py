"""Files of several invented launches, each so many times as slow as an invented run."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import invented
import numpy as np

from tcpx_mpi.records import LaunchesWriter, Row, Run, RunWriter

FACTORS = (1.0, 3.0, 2.0, 5.0, 4.0)


def slowed(index: int, factor: float) -> Row:
    """Row `index` of the invented run, its iterations `factor` times as long."""
    row = invented.row(index)
    row.samples["iteration"] = (row.samples["iteration"] * factor).astype(np.int64)
    return row


def launch_file(path: Path, number: int, factor: float = 1.0, rows: int = 3, **header: Any) -> str:
    """A whole launch; `number` makes its id and the second in which it began."""
    start = f"2025-03-01T12:00:{number:02d}.000Z"
    writer = RunWriter(str(path))
    writer.write_header(
        invented.run_header(**{"run_id": f"{number:012x}", "start_time": start, **header})
    )
    writer.write_setup(invented.setup_times())
    for index in range(rows):
        writer.append_row(slowed(index, factor))
    writer.finish()
    return writer.path


def joined(
    place: Path,
    planned: int = 5,
    factors: Sequence[float] = FACTORS,
    name: str = "all",
    numbers: Sequence[int] | None = None,
    **header: Any,
) -> str:
    """The file of launches with these factors, whose numbers are 0, 1, ... or `numbers`."""
    writer = LaunchesWriter(str(place / f"{name}.h5"), planned)
    for number, factor in zip(numbers or range(len(factors)), factors, strict=True):
        writer.append(launch_file(place / f"{name}-{number}.h5", number, factor, **header))
    writer.close()
    return writer.path


def invented_launches(
    factors: Sequence[float], numbers: Sequence[int] | None = None, name: str = "all", **header: Any
) -> Run:
    """What `read_run` makes of `joined`, without a file."""
    launches = []
    for number, factor in zip(numbers or range(len(factors)), factors, strict=True):
        start = f"2025-03-01T12:00:{number:02d}.000Z"
        made = invented.run_header(
            **{"run_id": f"{number:012x}", "start_time": start, **copy.deepcopy(header)}
        )
        rows = [slowed(index, factor) for index in range(3)]
        launches.append(Run(f"{name}.h5", made, invented.setup_times(), rows, complete=True))
    first = launches[0]
    first.launches, first.launches_planned = launches[1:], len(factors)
    return first
