"""Rows that were not steady: which row, how much, what to try."""

from __future__ import annotations

import invented
import numpy as np
import pytest
from judged import run_of, summaries_of

from tcpx_mpi.findings.steadiness import steadiness
from tcpx_mpi.records import Row
from tcpx_mpi.report.lines import words_of


def words(*rows: Row) -> str:
    found = steadiness(summaries_of(run_of(rows)))
    return "\n".join(f"{each.title}: {words_of(each)}" for each in found)


def row(times: np.ndarray, index: int = 0) -> Row:
    made = invented.row(index, world=4, iterations=times.size)
    made.samples["iteration"] = np.tile(times.astype(np.int64), (4, 1))
    return made


def steady(count: int = 1000) -> np.ndarray:
    return 100_000 * np.exp(np.random.default_rng(1).normal(0, 0.02, count))


def test_a_warm_up_that_was_too_short_is_said_with_the_option() -> None:
    times = steady()
    times[:130] *= 2
    assert words(row(times)) == (
        "Warm-up: 1 KiB: the first 130 of 1000 iterations were 100 % slower than the rest: "
        "use -w 200 or more"
    )


def test_a_drift_and_a_step_are_said_with_the_way_they_went() -> None:
    slower = steady() * np.linspace(1, 1.4, 1000)
    assert "% slower than the first: use a longer warm-up (-w)" in words(row(slower))
    faster = steady()
    faster[700:] /= 1.5
    assert "on 33 % faster: something else began or ended" in words(row(faster))


def test_steady_rows_and_short_ones_have_no_line() -> None:
    assert words(row(steady()), row(steady(199) * np.linspace(1, 9, 199))) == ""


@pytest.mark.parametrize("rows", [4, 5, 7])
def test_many_unsteady_rows_are_counted(rows: int) -> None:
    text = words(*(row(steady() * np.linspace(1, 2, 1000), index) for index in range(rows)))
    assert text.count("Drift: ") == 4
    assert (f"Not steady: {rows - 4} more rows were not steady" in text) == (rows > 4)
