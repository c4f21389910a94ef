"""Refuse a schedule of more steps and chunks than a rank has memory for, before it is made."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tcpx_mpi.arrays import np
from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.table import step_bytes
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


def require_memory(s: Settings, world: int, patterns: Callable[[], Iterable[Pattern]]) -> None:
    """Raises UsageError, one line, where the largest row's schedule, or a buffer, is too large.

    `patterns` makes one copy of what rows may run, where a closer look is needed.
    """
    largest, copies = max(s.sizes), s.agg_iters
    if largest * world * copies * _FEWEST_SLOTS >= 1 << 62:
        raise UsageError(
            f"-e/--maxbytes ({largest}) times -m/--agg_iters ({copies}) is more than "
            "any buffer here; use less of one of them"
        )
    if (largest // s.chunk_bytes + world) * copies < _FEW:
        return
    of_each = [_bytes_of_a_copy(each, world, largest, s.chunk_bytes) for each in patterns()]
    needed = copies * max(of_each, default=0)
    if needed > MOST_BYTES:
        size, chunk = format_size(largest), format_size(s.chunk_bytes)
        raise UsageError(
            f"-e/--maxbytes ({size}) in chunks of {chunk}, {copies} at once (-m), makes a schedule "
            f"of {format_size(needed)} on a rank, more than the {format_size(MOST_BYTES)} that it "
            "may have; use a larger --chunk, or a smaller -m or -e"
        )


def turn_bytes(pattern: Pattern, rank: int, world: int, size_bytes: int, chunk_bytes: int) -> int:
    """The memory of an iteration's own schedule on a rank: the chunks of one, if they differ."""
    if pattern.turn is None:
        return 0
    return _bytes_of(pattern, rank, world, size_bytes, chunk_bytes)


def _bytes_of_a_copy(pattern: Pattern, world: int, size_bytes: int, chunk_bytes: int) -> int:
    """Bytes of a copy of a pattern, on the first or last rank; of a batch if iterations differ."""
    most = max(_bytes_of(pattern, rank, world, size_bytes, chunk_bytes) for rank in {0, world - 1})
    return most if pattern.turn is None else most * _FEWEST_SLOTS


def _bytes_of(pattern: Pattern, rank: int, world: int, size_bytes: int, chunk_bytes: int) -> int:
    schedule = pattern.schedule(rank, world)
    lengths = step_bytes(schedule, pattern.layout(rank, world, size_bytes)).length
    chunks = int(np.maximum(-(-lengths // chunk_bytes), 1).sum())
    return schedule.steps * _STEP_BYTES + chunks * _CHUNK_BYTES
