"""Whether the sides of a row took turns, by the instants in its file."""

from __future__ import annotations

import numpy as np

from tcpx_mpi.records import Row


def assert_turns_were_taken(row: Row) -> None:
    """A B .. then .. B A, and no block before the one before it had ended on every rank."""
    sides = [row, *row.sides.values()]
    # Instants in the order in which blocks must have been; ranks of one machine share a clock.
    before = 0
    last = np.cumsum(row.batches) - 1
    for block in range(row.batches.size):
        for side in sides if block % 2 == 0 else reversed(sides):
            starts = side.batch_start[:, block]
            assert (starts == starts[0]).all(), "an agreed instant"
            assert starts[0] >= before
            ends = side.samples["start"] + side.samples["iteration"]
            before = int(ends[:, last[block]].max())
