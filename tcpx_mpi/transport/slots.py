"""The shape of a row: how many slots, how they lie in memory, how iterations form batches. Pure."""

from __future__ import annotations

from dataclasses import dataclass

#: Bytes behind every slot that nobody may write; they are judged with the payload.
GUARD_BYTES = 64
_CACHE_LINE = 64
_PAGE = 4096
#: No row needs more slots: poisoning them takes longer than any batch of such small messages.
_MOST_SLOTS = 1 << 20
#: Words of 8 bytes that an iteration takes on a rank when its batch has ended: 5 in the engine, 3
#: in Python's copy, 5 of samples. A source that is counted apart adds 1 of each.
_STAMP_WORDS = 13
_SOURCE_WORDS = 3


@dataclass(frozen=True)
class SlotShape:
    """One buffer's slots: slot k is at k * stride_bytes and uses `used_bytes`."""

    used_bytes: int
    stride_bytes: int


@dataclass(frozen=True)
class RowPlan:
    """A row's slots and batches, equal on all ranks.

    `slots` are poisoned before a batch; a batch runs at most that many iterations, so that every
    timed byte has a place of its own until it is checked.
    """

    slots: int
    batch: int
    batches: tuple[int, ...]
    warmup_batches: tuple[int, ...]


def slot_shape(used_bytes: int) -> SlotShape:
    """Slots on page borders where messages are that large, else on cache lines."""
    align = _PAGE if used_bytes >= _PAGE else _CACHE_LINE
    stride = -(-(used_bytes + GUARD_BYTES) // align) * align
    return SlotShape(used_bytes, stride)


def stamp_bytes(sources: int) -> int:
    """Bytes of the time stamps of an iteration, on a rank that tells `sources` senders apart."""
    return 8 * (_STAMP_WORDS + _SOURCE_WORDS * (sources if sources > 1 else 0))


def slots_for(
    slot_bytes: int,
    stamps: int,
    iterations: int,
    memory_bytes: int,
    llc_bytes: int,
    local_ranks: int,
) -> int:
    """The number of slots of a row, from the largest slot (send + receive) of any rank.

    At least 2; as many as iterations, or more to reach beyond the last-level cache (twice its size
    over the ranks of a node). All fit into `memory_bytes` a rank, with the bytes of time stamps
    that each takes (`stamp_bytes`).
    """
    beyond_cache = -(-2 * llc_bytes // (slot_bytes * local_ranks))
    fit = memory_bytes // (slot_bytes + stamps)
    return max(2, min(max(iterations, beyond_cache), _MOST_SLOTS, fit))


def plan_row(slots: int, iterations: int, warmups: int, least_batches: int = 1) -> RowPlan:
    """Cut iterations into batches of at most `slots`, the timed ones into `least_batches` or more.

    `iterations` must be at least `least_batches`.
    """
    # Batches that are compared one by one weigh the same, so they are as long as each other.
    batches = max(least_batches, -(-iterations // slots))
    timed = _cut(iterations, slots) if least_batches == 1 else _cut_evenly(iterations, batches)
    warm = _cut(warmups, slots)
    return RowPlan(slots, max(*timed, *warm, 1), timed, warm)


def _cut(total: int, most: int) -> tuple[int, ...]:
    full, rest = divmod(total, most)
    return (most,) * full + ((rest,) if rest else ())


def _cut_evenly(total: int, batches: int) -> tuple[int, ...]:
    length, longer = divmod(total, batches)
    return (length + 1,) * longer + (length,) * (batches - longer)
