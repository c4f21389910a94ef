"""Refuses a schedule of more steps and chunks than a rank has memory for, before it is made."""

from __future__ import annotations

from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.units import GIB, format_size

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


def require_schedule_room(settings: Settings, ranks: int) -> None:
    """Raises UsageError, one line, where the largest row's schedule, or a buffer, is too large."""
    largest, copies = max(settings.sizes), settings.agg_iters
    if largest * ranks * copies * _FEWEST_SLOTS >= 1 << 62:
        raise UsageError(
            f"-e/--maxbytes ({largest}) times -m/--agg_iters ({copies}) is more than "
            "any buffer here; use less of one of them"
        )
    if (largest // settings.chunk_bytes + ranks) * copies < _FEW:
        return
    needed = copies * _bytes_of_a_copy(settings, ranks)
    if needed > MOST_BYTES:
        size, chunk = format_size(largest), format_size(settings.chunk_bytes)
        raise UsageError(
            f"-e/--maxbytes ({size}) in chunks of {chunk}, {copies} at once (-m), makes a schedule "
            f"of {format_size(needed)} on a rank, more than the {format_size(MOST_BYTES)} that it "
            "may have; use a larger --chunk, or a smaller -m or -e"
        )


def _bytes_of_a_copy(settings: Settings, ranks: int) -> int:
    """Of one copy of the pattern, on the first or last rank, by whichever of its algorithms."""
    import numpy as np

    from tcpx_mpi.run.chosen import pattern_of
    from tcpx_mpi.run.program_rows import program_rows
    from tcpx_mpi.schedule.table import step_bytes

    program = program_rows(settings, ranks)
    patterns = [pattern_of(settings)] if program is None else program.one_of_each_algorithm()
    most = 0
    for pattern in patterns:
        for rank in {0, ranks - 1}:
            schedule = pattern.schedule(rank, ranks)
            lengths = step_bytes(schedule, pattern.layout(rank, ranks, max(settings.sizes))).length
            chunks = int(np.maximum(-(-lengths // settings.chunk_bytes), 1).sum())
            most = max(most, schedule.steps * _STEP_BYTES + chunks * _CHUNK_BYTES)
    return most
