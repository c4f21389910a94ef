"""Runs that begin their iterations by the clock."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from jobs import run, tcpx_mpi

from tcpx_mpi.records import read_run

pytestmark = pytest.mark.multirank

RATE, ITERS = 400, 60


def test_no_iteration_begins_before_its_instant_and_the_answer_waits_for_none(place: Path) -> None:
    result = run(
        tcpx_mpi("run", "pingpong", "--ranks", "2", "--plugin", "softtcpx", "--rate", str(RATE),
                 "--sizes", "64", "-n", str(ITERS), "--hdf5", "o.h5", "--spool", "."),
        place,
    )  # fmt: skip
    assert result.code == 0, result.text
    assert "from the intended start" in result.out
    (row,) = read_run(str(place / "o.h5")).rows
    assert row.wrong.tolist() == [0, 0]
    within = np.concatenate([np.arange(count) for count in row.batches.tolist()])
    intended = np.repeat(row.batch_start, row.batches, axis=1) + within * 10**9 // RATE
    ended = row.samples["start"] + row.samples["iteration"]
    assert (ended[0] > intended[0]).all()
    # It is over when the answer is sent; the next one begins when that is intended, not sooner.
    assert (row.samples["start"][0] + row.samples["receive"][0] > intended[0]).all()


def test_what_has_no_open_loop_is_one_line_before_anything_starts(place: Path) -> None:
    for options, said in (
        (("ring", "--rate", "100"), "--rate (100) has no ring"),
        (("pair", "--rate", "0"), "--rate (0) is no rate"),
    ):
        result = run(tcpx_mpi("run", *options, "--ranks", "2"), place)
        assert result.code == 2, result.text
        (line,) = result.errors
        assert said in line
