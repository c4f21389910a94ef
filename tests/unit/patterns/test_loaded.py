"""A ping-pong under load: its lanes, what is timed, and that both sides keep their promise."""

from __future__ import annotations

import pytest

from tcpx_mpi import patterns
from tcpx_mpi.patterns.loaded import MESH, PING, READY
from tcpx_mpi.patterns.program import Form
from tcpx_mpi.schedule.interpreter import EngineModel, prove
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.table import BufferId, Column, Op


def alone_of(pattern: Pattern) -> Pattern:
    assert pattern.loaded is not None
    assert pattern.loaded.alone is not None
    return pattern.loaded.alone


def with_load(load_bytes: int) -> Pattern:
    return patterns.find_program("loaded_pingpong").pattern(Form(load_bytes=load_bytes))


def test_the_timed_round_trip_waits_for_the_one_before_and_the_mesh_for_nothing() -> None:
    pattern = patterns.load("loaded_pingpong")
    for side in (pattern, alone_of(pattern)):
        assert side.loaded is not None
        assert side.loaded.timed_lanes == (READY, PING)
    first = pattern.schedule(0, 4).table.tolist()
    assert [(row[Column.OP], row[Column.PEER], row[Column.LANE], row[Column.PRED0])
            for row in first[:4]] == [
        (Op.SEND, 2, READY, -1), (Op.RECV, 2, READY, -1), (Op.SEND, 2, PING, 1),
        (Op.RECV, 2, PING, -1),
    ]  # fmt: skip
    assert {row[Column.LANE] for row in first[4:] if row[Column.PEER] >= 0} == {MESH}
    assert {row[Column.PRED0] for row in first[4:]} == {-1}
    assert alone_of(pattern).schedule(0, 4).table.tolist() == first[:4]


def test_the_load_is_what_a_rank_sends_to_all_whatever_the_size() -> None:
    pattern = with_load(1000)
    for size in (0, 8, 4096):
        send = pattern.layout(1, 4, size)[BufferId.SEND].lengths.tolist()
        assert send == [size, 250, 250, 250, 250]
        assert alone_of(pattern).layout(1, 4, size)[BufferId.SEND].lengths.tolist() == [size]


@pytest.mark.parametrize("load", [1, 7, 100])
def test_it_keeps_its_promise_with_any_load(load: int) -> None:
    engine = EngineModel(3, 2, window_send=1, window_recv=1)
    pattern = with_load(load)
    for world in (2, 4):
        for size in (0, 1, 17):
            prove(pattern, world, size, engine, iterations=2)
            prove(alone_of(pattern), world, size, engine, iterations=2)
