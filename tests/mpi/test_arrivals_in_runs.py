"""When each peer's bytes were there, in a mesh: beside what the same run says of its ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from jobs import run, tcpx_mpi

from tcpx_mpi.records import Row, read_run

pytestmark = pytest.mark.multirank

WORLD, ITERS = 4, 40
OTHERS = ~np.eye(WORLD, dtype=bool)


def means_by_block(row: Row, phase: str) -> np.ndarray:
    """float64[rank, block] of a phase, in the blocks of the arrivals."""
    firsts = np.concatenate([[0], np.cumsum(row.arrival_blocks)[:-1]])
    return np.add.reduceat(row.samples[phase], firsts, axis=1) / row.arrival_blocks


def test_arrivals_agree_with_the_phases_and_the_clock_of_the_host(place: Path) -> None:
    # On more than one channel, in several chunks, beside a peer that is driven natively, too.
    result = run(
        tcpx_mpi("run", "mesh", "--ranks", str(WORLD), "--plugin", "softtcpx", "--sizes", "64K",
                 "--chunk", "4K", "-n", str(ITERS), "--against", "raw", "--hdf5", "o.h5",
                 "--spool", "."),
        place,
    )  # fmt: skip
    assert result.code == 0, result.text
    (row,) = read_run(str(place / "o.h5")).rows
    for each in (row, row.against["raw"]):
        blocks = each.arrival_blocks
        assert blocks.sum() == ITERS
        assert each.arrivals.shape == (WORLD, WORLD, blocks.size)
        assert np.isnan(each.arrivals[~OTHERS]).all()
        arrivals = each.arrivals[OTHERS].reshape(WORLD, WORLD - 1, blocks.size)
        # The last of all peers is what the phase says; a mean of maxima is no less than any mean.
        receive = means_by_block(each, "receive")
        assert (arrivals.max(axis=1) <= receive + 1).all()
        # The ranks share a clock: no message is there before its sender began the iteration.
        start = means_by_block(each, "start")
        took = each.arrivals + start[:, None, :] - start[None, :, :]
        assert (took[OTHERS] > 0).all()


def test_where_a_rank_has_one_peer_there_are_none(place: Path) -> None:
    command = ("run", "ring", "--ranks", "4", "--plugin", "softtcpx", "--sizes", "4K", "-n", "8",
               "--hdf5", "o.h5", "--spool", ".")  # fmt: skip
    assert run(tcpx_mpi(*command), place).code == 0
    (row,) = read_run(str(place / "o.h5")).rows
    assert row.arrivals.size == row.arrival_blocks.size == 0
