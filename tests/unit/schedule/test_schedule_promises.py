"""Every pattern keeps its promise in every order of events, and so do forwarding collectives."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedules import all_gather, relay
from variants import variants_where

from tcpx_mpi import patterns
from tcpx_mpi.patterns import repeated
from tcpx_mpi.patterns.program import Form
from tcpx_mpi.schedule.engine_model import EngineModel
from tcpx_mpi.schedule.interpreter import prove
from tcpx_mpi.schedule.interpreter.proof import interpret
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.table import Column, Wait

# Programs of nccl-tests have proofs of their own.
ALL = [name for name in patterns.NAMES if name not in patterns.PROGRAMS]


def small(name: str) -> Pattern:
    """The pattern; what it moves whatever its size is made a few chunks."""
    form = Form(load_bytes=70, moe="batch=9,hidden=3,experts=2520,topk=2,dispatch=1", turns=3)
    return patterns.find_program(name).pattern(form)


def engines() -> st.SearchStrategy[EngineModel]:
    return st.builds(
        EngineModel,
        chunk_bytes=st.integers(1, 40),
        channels=st.integers(1, 4),
        window_send=st.integers(1, 12),
        window_recv=st.integers(1, 16),
        rendezvous=st.booleans(),
        order=st.none() | st.integers(0, 1 << 32),
    )


def draw_run(data: st.DataObject, worlds: Sequence[int]) -> tuple[int, int, EngineModel, int]:
    world = data.draw(st.sampled_from(worlds), "world")
    size = data.draw(st.sampled_from([0, 1, world - 1, world]) | st.integers(0, 150), "size")
    return world, size, data.draw(engines(), "engine"), data.draw(st.integers(1, 3), "iterations")


@pytest.mark.parametrize(
    "name",
    variants_where(lambda name: name in ("pairs", "moe", "matrix", "loaded_pingpong"), ALL),
)
@given(data=st.data())
@settings(max_examples=60)
def test_a_pattern_keeps_its_promise_in_every_order_of_events(
    name: str, data: st.DataObject
) -> None:
    pattern = small(name)
    worlds = [world for world in range(2, 10) if pattern.refuse(world) is None]
    world, size, engine, iterations = draw_run(data, worlds)
    if pattern.turn is not None:
        pattern = pattern.turn(data.draw(st.integers(0, 2), "turn"))
    for one in pattern.rounds_run(world, True):
        outcome = prove(one, world, size, engine, iterations)
        assert outcome.most_sends <= engine.window_send
        assert outcome.most_receives <= engine.window_recv


@pytest.mark.parametrize("name", variants_where(lambda name: name == "loaded_pingpong", ALL))
@given(data=st.data(), messages=st.integers(2, 4))
@settings(max_examples=25)
def test_several_messages_posted_together_keep_the_promise(
    name: str, data: st.DataObject, messages: int
) -> None:
    world, size, engine, iterations = draw_run(data, [2, 4])
    for one in repeated(small(name), messages).rounds_run(world, True):
        prove(one, world, size, engine, iterations)


@pytest.mark.parametrize("wait", list(Wait))
@given(data=st.data())
@settings(max_examples=30)
def test_a_ring_all_gather_forwards_chunk_by_chunk_and_keeps_the_origin(
    wait: Wait, data: st.DataObject
) -> None:
    prove(all_gather(wait=wait), *draw_run(data, range(2, 8)))


@given(data=st.data())
@settings(max_examples=30)
def test_three_lanes_run_beside_each_other_whatever_order_a_rank_lists_them_in(
    data: st.DataObject,
) -> None:
    pattern = all_gather(lanes=3)
    lanes = [pattern.schedule(rank, 2).column(Column.LANE).tolist() for rank in (0, 1)]
    assert [list(dict.fromkeys(of_rank[1:])) for of_rank in lanes] == [[0, 1, 2], [1, 2, 0]]
    prove(pattern, *draw_run(data, range(2, 6)))


@given(data=st.data())
@settings(max_examples=30)
def test_a_relay_through_scratch_keeps_the_origin(data: st.DataObject) -> None:
    prove(relay(), *draw_run(data, range(2, 8)))


def test_forwarded_bytes_name_the_rank_that_had_them_first() -> None:
    world, size = 4, 10
    pattern = all_gather()
    outcome = interpret(
        [pattern.schedule(rank, world) for rank in range(world)],
        [pattern.layout(rank, world, size) for rank in range(world)],
        EngineModel(chunk_bytes=2),
        iterations=2,
    )
    for found in outcome.values:
        for iteration in range(2):
            origins = [outcome.codes.of_slot(rank, iteration, 3) for rank in range(world)]
            blocks = [of[: 3 if rank < 2 else 2] for rank, of in enumerate(origins)]
            assert found[iteration].tolist() == np.concatenate(blocks).tolist()


@given(data=st.data(), other=st.integers(0, 1 << 32))
@settings(max_examples=30)
def test_the_end_does_not_depend_on_the_order_of_events(data: st.DataObject, other: int) -> None:
    world, size, engine, iterations = draw_run(data, [2, 4])
    one = prove(all_gather(3), world, size, engine, iterations)
    two = prove(all_gather(3), world, size, dataclasses.replace(engine, order=other), iterations)
    assert one.messages == two.messages
    for ours, theirs in zip(one.values, two.values, strict=True):
        assert np.array_equal(ours, theirs)
