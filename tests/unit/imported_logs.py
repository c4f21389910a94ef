"""Runs that were imported from logs of nccl-tests: found ones, and those of a test's own text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tcpx_mpi.errors import UsageError
from tcpx_mpi.exchange.nccl_tests import read_log, run_of, write_run
from tcpx_mpi.records import Run, read_run

FOUND = Path(__file__).parents[1] / "fixtures" / "nccl_tests"


def found(name: str) -> Run:
    """The run of a log of `FOUND`."""
    return run_of(read_log(str(FOUND / name)))


def imported(place: Path, text: str | bytes, name: str = "o.log") -> Run:
    """The run of a log, by way of its file."""
    (place / name).write_bytes(text.encode() if isinstance(text, str) else text)
    run = run_of(read_log(str(place / name)))
    return read_run(write_run(run, str(place / f"{name}.h5")))


def refusal(place: Path, text: str) -> str:
    """The line that refuses a log."""
    with pytest.raises(UsageError) as refused:
        imported(place, text)
    return str(refused.value)


def figures(run: Run) -> list[str]:
    """Rows as text: NaN is not equal to itself."""
    return [repr((row.size_bytes, row.type_name, row.redop, row.averages)) for row in run.rows]
