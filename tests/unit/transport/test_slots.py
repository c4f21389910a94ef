"""How iterations form batches: all are there, none is too long or takes more than it may, beside
peers there are enough.
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from allocations import peak_of
from hypothesis import given
from hypothesis import strategies as st

from tcpx_mpi.config.options import ITERS_WITH_BASELINES, LEAST_BLOCKS
from tcpx_mpi.config.settings import load_settings
from tcpx_mpi.machine.topology import read_host
from tcpx_mpi.patterns import load
from tcpx_mpi.plugin.softtcpx_defaults import chunk_of, with_even_chunks
from tcpx_mpi.run.plan import RowPlanner, strides
from tcpx_mpi.transport.samples import batch_of
from tcpx_mpi.transport.slots import plan_row, slot_shape, slots_for, stamp_bytes
from tcpx_mpi.workload import workload_of

SLOTS = st.integers(1, 1 << 20)


def test_the_least_number_of_blocks_is_that_of_the_conventions() -> None:
    assert LEAST_BLOCKS == 8
    plan = plan_row(ITERS_WITH_BASELINES, ITERS_WITH_BASELINES, 1, LEAST_BLOCKS)
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
       st.integers(-1, 1 << 28), st.integers(1, 8), st.integers(0, 1000))  # fmt: skip
def test_there_are_2_slots_at_least_and_no_more_than_memory_has(
    slot: int, iterations: int, memory: int, cache: int, ranks: int, sources: int
) -> None:
    stamps = stamp_bytes(sources)
    slots = slots_for(slot, stamps, iterations, memory, cache, ranks)
    assert slots >= 2
    assert slots == 2 or slots * (slot + stamps) <= memory


def test_one_sender_is_not_told_apart_and_takes_no_stamps_of_its_own() -> None:
    assert stamp_bytes(0) == stamp_bytes(1) == 8 * 13
    assert stamp_bytes(63) == 8 * (13 + 3 * 63)


@pytest.mark.parametrize("sources", [0, 3, 63])
def test_the_samples_of_a_batch_take_what_is_counted_for_them(sources: int) -> None:
    iterations = 1 << 14
    end, send_done, receive_done = (np.arange(iterations) for _ in range(3))
    stamps: Any = SimpleNamespace(
        start=0, late=False, end=end, send_done=send_done, receive_done=receive_done,
        sources=list(range(sources)), source_lanes=[],
        source_done=np.zeros(iterations * sources, np.int64),
        trace=np.zeros(0, np.int64), flush_begun=np.zeros(0, np.int64),
    )  # fmt: skip
    in_engine, copied = 5 + sources, 3 + sources
    counted = stamp_bytes(sources) - 8 * (in_engine + copied)
    taken = peak_of(lambda: batch_of(stamps)) / iterations
    assert 0.8 * counted < taken < 1.05 * counted


def test_a_mesh_has_no_more_slots_than_memory_has_for_their_time_stamps_too() -> None:
    ranks, memory = 64, 1 << 26
    settings = load_settings(
        {"pattern": "mesh", "sizes": "8", "iters": "100000", "check_memory": str(memory)}, {}
    )
    planned = RowPlanner(workload_of(settings, ranks), [read_host()] * ranks).rows()[0]
    slot = sum(strides(load("mesh"), 0, ranks, 8).values())
    taken = slot + stamp_bytes(ranks - 1)
    assert planned.plan.slots == memory // taken


CACHE = 64 << 20
MIB = 1 << 20


def planner(pattern: str, caches: dict[str, int], **given: str) -> RowPlanner:
    """Of the rows of four ranks, two on each of two nodes with these last-level caches."""
    settings = load_settings({"pattern": pattern, "check_memory": "1G", **given}, {})
    hosts = [
        dataclasses.replace(read_host(), name=node, node=node, llc_bytes=cache)
        for node, cache in caches.items()
        for _ in range(2)
    ]
    return RowPlanner(workload_of(settings, 4), hosts)


@pytest.mark.parametrize(
    ("pattern", "size", "message", "messages"), [("ring", MIB, MIB, 1), ("mesh", 4 * MIB, MIB, 3)]
)
def test_a_row_in_gpu_memory_has_the_chunks_of_its_messages(
    pattern: str, size: int, message: int, messages: int
) -> None:
    sizes = f"8,{size},256M"
    given = load_settings({"pattern": pattern, "sizes": sizes, "channels": "14"}, {})
    settings = with_even_chunks(given)
    rows = RowPlanner(workload_of(settings, 4), [read_host()] * 4).rows()
    tiny, middle, large = (row.facts.chunk_bytes for row in rows)
    assert middle == chunk_of(settings, message, messages) < settings.chunk_bytes
    assert tiny == large == settings.chunk_bytes
    twice = dataclasses.replace(settings, sizes=(size,), agg_iters=2)
    (alone,) = RowPlanner(workload_of(twice, 4), [read_host()] * 4).rows()
    assert alone.facts.chunk_bytes == chunk_of(settings, message, 2 * messages) > middle


@pytest.mark.parametrize("caches", [{"a": 1, "b": CACHE}, {"a": CACHE, "b": 1}])
def test_the_slots_of_a_nodes_ranks_are_twice_the_largest_cache(caches: dict[str, int]) -> None:
    (planned,) = planner("ring", caches, sizes="1M", iters="2").rows()
    slot = sum(strides(load("ring"), 0, 4, 1 << 20).values())
    assert planned.plan.slots == -(-2 * CACHE // (2 * slot))


def test_a_batch_of_an_open_ended_row_is_as_long_as_memory_allows() -> None:
    (planned,) = planner("ring", {"a": 0, "b": 0}, sizes="1M", duration="1s").rows()
    slot = sum(strides(load("ring"), 0, 4, 1 << 20).values())
    assert planned.plan.batch == planned.plan.slots == (256 << 20) // slot


@pytest.mark.parametrize(("pattern", "messages"), [("pair", 1), ("ring", 1), ("mesh", 3)])
def test_messages_are_those_of_a_rank_that_receives(pattern: str, messages: int) -> None:
    (planned,) = planner(pattern, {"a": 0, "b": 0}, sizes="8").rows()
    assert planned.facts.messages_per_copy == messages


def test_a_row_beside_a_peer_has_blocks_and_one_alone_has_one() -> None:
    given: list[dict[str, str]] = [{"against": "raw"}, {}]
    plans = [planner("pair", {"a": 0, "b": 0}, sizes="8", **each).rows()[0].plan for each in given]
    assert [len(plan.batches) for plan in plans] == [LEAST_BLOCKS, 1]


def test_no_batch_is_longer_than_a_million_iterations() -> None:
    slots = slots_for(256, stamp_bytes(1), 10**8, 1 << 40, 0, 1)
    assert slots == 1 << 20
    assert max(plan_row(slots, 10**8, 100).batches) == 1 << 20
