"""Refuses a schedule of more steps and chunks than a rank has memory for, before it is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tcpx_mpi.errors import UsageError
from tcpx_mpi.schedule.table import step_bytes
from tcpx_mpi.units import GIB, format_size

if TYPE_CHECKING:
    from tcpx_mpi.workload.workload import Workload

#: What a rank's schedule of one row may take; one of a gigabyte runs for minutes an iteration.
MOST_BYTES = GIB
#: Of a step: the columns of its table and what is worked out of them; of a chunk: its place in a
#: queue of the engine.
_STEP_BYTES = 200
_CHUNK_BYTES = 48
#: So few chunks and steps, counted roughly, need no closer look.
_FEW = 100_000
#: A row never has fewer slots.
_FEWEST_SLOTS = 2


def require_memory(workload: Workload) -> None:
    """Raises UsageError, one line, where the largest row's schedule, or a buffer, is too large."""
    s = workload.settings
    largest, copies = max(s.sizes), s.agg_iters
    if largest * workload.world * copies * _FEWEST_SLOTS >= 1 << 62:
        raise UsageError(
            f"-e/--maxbytes ({largest}) times -m/--agg_iters ({copies}) is more than "
            "any buffer here; use less of one of them"
        )
    if (largest // s.chunk_bytes + workload.world) * copies < _FEW:
        return
    needed = copies * _bytes_of_a_copy(workload)
    if needed > MOST_BYTES:
        size, chunk = format_size(largest), format_size(s.chunk_bytes)
        raise UsageError(
            f"-e/--maxbytes ({size}) in chunks of {chunk}, {copies} at once (-m), makes a schedule "
            f"of {format_size(needed)} on a rank, more than the {format_size(MOST_BYTES)} that it "
            "may have; use a larger --chunk, or a smaller -m or -e"
        )


def _bytes_of_a_copy(workload: Workload) -> int:
    """Of one copy of the pattern, on the first or last rank, by whichever of its algorithms."""
    if workload.skipped is not None:
        return 0
    world, size, chunk = workload.world, max(workload.settings.sizes), workload.settings.chunk_bytes
    most = 0
    for pattern in workload.of_each_algorithm():
        for rank in {0, world - 1}:
            schedule = pattern.schedule(rank, world)
            lengths = step_bytes(schedule, pattern.layout(rank, world, size)).length
            chunks = int(np.maximum(-(-lengths // chunk), 1).sum())
            most = max(most, schedule.steps * _STEP_BYTES + chunks * _CHUNK_BYTES)
    return most
