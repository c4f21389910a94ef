"""When each peer's bytes were there, in a mesh: beside what the same run says of its ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from jobs import run, tcpx_mpi

from tcpx_mpi.records import SideKey, read_run

pytestmark = pytest.mark.multirank

WORLD, ITERS = 4, 40
OTHERS = ~np.eye(WORLD, dtype=bool)


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
    for each in (row, row.sides[SideKey("raw")]):
        assert each.arrival_blocks.tolist() == ITERS * [1]
        assert each.arrivals.shape == (WORLD, WORLD, ITERS)
        assert np.isnan(each.arrivals[~OTHERS]).all()
        arrivals = each.arrivals[OTHERS].reshape(WORLD, WORLD - 1, ITERS)
        # No peer is later than all of them.
        assert (arrivals.max(axis=1) <= each.samples["receive"]).all()
        # The ranks share a clock: no message is there before its sender began the iteration.
        start = each.samples["start"]
        took = each.arrivals + start[:, None, :] - start[None, :, :]
        assert (took[OTHERS] > 0).all()


@pytest.mark.variant
def test_where_a_rank_has_one_peer_there_are_none(place: Path) -> None:
    command = ("run", "ring", "--ranks", "4", "--plugin", "softtcpx", "--sizes", "4K", "-n", "8",
               "--hdf5", "o.h5", "--spool", ".")  # fmt: skip
    assert run(tcpx_mpi(*command), place).code == 0
    (row,) = read_run(str(place / "o.h5")).rows
    assert row.arrivals.size == row.arrival_blocks.size == 0
