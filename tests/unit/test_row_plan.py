"""How iterations form batches: all are there, none is too long, beside peers there are enough."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tcpx_mpi.knobs import ITERS_BESIDE, LEAST_BLOCKS
from tcpx_mpi.row_plan import plan_row, slot_shape, slots_for

SLOTS = st.integers(1, 1 << 20)


def test_the_least_number_of_blocks_is_that_of_the_conventions() -> None:
    assert LEAST_BLOCKS == 8
    plan = plan_row(ITERS_BESIDE, ITERS_BESIDE, 1, LEAST_BLOCKS)
    assert plan.batches == (20,) * 8


@given(SLOTS, st.integers(LEAST_BLOCKS, 5000), st.integers(0, 300))
def test_beside_peers_there_are_8_batches_or_more_within_the_slots(
    slots: int, iterations: int, warmups: int
) -> None:
    plan = plan_row(slots, iterations, warmups, LEAST_BLOCKS)
    assert len(plan.batches) >= LEAST_BLOCKS
    assert (sum(plan.batches), sum(plan.warmup_batches)) == (iterations, warmups)
    assert all(1 <= batch <= slots for batch in (*plan.batches, *plan.warmup_batches))
    assert plan.batch == max(*plan.batches, *plan.warmup_batches, 1)
    assert plan.slots == slots
    # As long as each other: the pairs of blocks weigh the same.
    assert max(plan.batches) - min(plan.batches) <= 1


@given(SLOTS, st.integers(1, 5000), st.integers(0, 300))
def test_alone_there_are_as_few_batches_as_the_slots_allow(
    slots: int, iterations: int, warmups: int
) -> None:
    plan = plan_row(slots, iterations, warmups)
    assert len(plan.batches) == -(-iterations // slots)
    assert len(plan.warmup_batches) == -(-warmups // slots)
    assert (sum(plan.batches), sum(plan.warmup_batches)) == (iterations, warmups)
    assert plan.batch <= slots


@pytest.mark.parametrize(
    ("iterations", "batches"),
    [
        (8, (1,) * 8),
        (15, (2,) * 7 + (1,)),
        (16, (2,) * 8),
        (17, (3,) + (2,) * 7),
        (100, (13,) * 4 + (12,) * 4),
    ],
)
def test_known_cuts(iterations: int, batches: tuple[int, ...]) -> None:
    assert plan_row(1000, iterations, 0, LEAST_BLOCKS).batches == batches
    assert plan_row(2, iterations, 0, LEAST_BLOCKS).batches[0] == min(batches[0], 2)


@given(st.integers(0, 1 << 32))
def test_slots_hold_message_and_guard_on_their_own_lines(used: int) -> None:
    shape = slot_shape(used)
    assert shape.used_bytes + 64 <= shape.stride_bytes
    assert shape.stride_bytes % (4096 if used >= 4096 else 64) == 0


@given(st.integers(64, 1 << 32), st.integers(1, 5000), st.integers(1, 1 << 34),
       st.integers(-1, 1 << 28), st.integers(1, 8))  # fmt: skip
def test_there_are_2_slots_at_least_and_no_more_than_memory_has(
    slot: int, iterations: int, memory: int, cache: int, ranks: int
) -> None:
    slots = slots_for(slot, iterations, memory, cache, ranks)
    assert slots >= 2
    assert slots == 2 or slots * slot <= memory


def test_a_batch_has_no_more_time_stamps_than_memory_should_hold() -> None:
    slots = slots_for(256, 10**8, 1 << 40, 0, 1)
    assert slots == 1 << 20
    assert max(plan_row(slots, 10**8, 100).batches) == 1 << 20
