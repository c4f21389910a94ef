"""Rows that go on until something is reached: every sample kept, all ranks alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from jobs import Result, run, tcpx_mpi

from tcpx_mpi.records import Row, read_run

pytestmark = pytest.mark.multirank

PINGPONG = ("run", "pingpong", "--ranks", "2", "--plugin", "softtcpx", "--sizes", "4K",
            "--spool", "spool")  # fmt: skip


def ran(place: Path, *options: str) -> tuple[Result, Row]:
    result = run(tcpx_mpi(*PINGPONG, *options, "--hdf5", "o.h5"), place)
    assert result.code == 0, result.text
    (row,) = read_run(str(place / "o.h5")).rows
    assert row.batches.sum() == row.iterations
    assert row.samples["iteration"].shape == (2, row.iterations)
    assert row.payload_bytes_received.tolist() == [4096 * row.iterations] * 2
    assert row.wrong.tolist() == [0, 0]
    return result, row


def test_a_row_ends_when_its_interval_is_narrow_enough(place: Path) -> None:
    result, row = ran(place, "--ci", "0.8")
    assert row.ended_by == "ci"
    assert row.iterations >= 30
    assert "Not narrow" not in result.out


@pytest.mark.variant
def test_a_row_that_stays_wide_ends_in_time_and_says_how_wide(place: Path) -> None:
    result, row = ran(place, "--ci", "0.000001", "--max-time", "200ms")
    assert row.ended_by == "max-time"
    assert "Not narrow           : not within --ci 1e-06 by --max-time in 1 of 1 row" in result.out


def test_a_duration_is_filled_and_every_sample_kept(place: Path) -> None:
    _, row = ran(place, "--duration", "200ms")
    assert row.ended_by == "duration"
    measured = np.maximum(row.samples["iteration"], 0).sum(axis=1)
    assert measured.max() >= 200_000_000
    # Not a batch more than was needed.
    assert measured.max() - row.samples["iteration"][:, -int(row.batches[-1]) :].sum() < 200_000_000


@pytest.mark.variant
def test_samples_beyond_their_space_end_a_row_or_are_refused(place: Path) -> None:
    result, row = ran(place, "--duration", "1h", "--sample-space", "1M")
    assert (row.ended_by, row.iterations) == ("sample-space", (1 << 20) // (2 * 4 * 8))
    assert "# Sample space         : full before the rows had what was" in result.out
    refused = run(tcpx_mpi(*PINGPONG, "-n", "20000", "--sample-space", "1M"), place)
    assert refused.code == 2
    assert "-n/--iters (20000) takes 1.22 MiB for the samples of all rows (1), more" in refused.text
