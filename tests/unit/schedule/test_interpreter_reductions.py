"""The interpreter knows what a reduction is made of, and names what is missing or there twice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from schedules import bytes_of, two_ranks

from tcpx_mpi import patterns
from tcpx_mpi.schedule.builder import ScheduleBuilder
from tcpx_mpi.schedule.engine_model import EngineModel
from tcpx_mpi.schedule.interpreter import prove
from tcpx_mpi.schedule.interpreter.proof import interpret
from tcpx_mpi.schedule.interpreter.races import check_races
from tcpx_mpi.schedule.interpreter.state import Start
from tcpx_mpi.schedule.interpreter.values import reduced, scaled
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.promise import Expected, Scaled
from tcpx_mpi.schedule.table import NONE, BufferId, ScheduleError, Wait, make_layout

Write = Callable[[int, ScheduleBuilder], None]


def exchange(rank: int, steps: ScheduleBuilder) -> None:
    """The whole of a reduction between two ranks."""
    steps.send(1 - rank, 0)
    steps.receive_reduce(1 - rank, 0, 0)


def reduction(write: Write = exchange, scaled: Scaled = Scaled.NO, elements: int = 4) -> Pattern:
    """Two ranks whose RECV block is to be the reduction of both SEND blocks of 8 bytes."""

    def schedule(rank: int, world: int) -> object:
        steps = ScheduleBuilder()
        write(rank, steps)
        return steps.build()

    both = make_layout(send=bytes_of(8, 8), recv=bytes_of(8), scratch=bytes_of(8))
    return dataclasses.replace(
        patterns.load("ring"),
        name="reduction",
        schedule=schedule,
        layout=lambda rank, world, size: both,
        expected=lambda rank, world: Expected.of_rows([(0, 0, 0), (0, 1, 0)], True, scaled),
        element_bytes=elements,
    )


def test_values_are_folded_in_any_order_and_scaling_is_no_reduction() -> None:
    a, b, c = (np.arange(4) + at for at in (0, 100, 200))
    assert np.array_equal(reduced(reduced(a, b), c), reduced(c, reduced(b, a)))
    assert not (reduced(a, b) == reduced(a, c)).any()
    assert not (scaled(reduced(a, b)) == reduced(scaled(a), scaled(b))).any()
    assert not (scaled(a) == a).any()
    assert (reduced(a, a) < NONE).all()


def test_a_reduction_between_two_ranks_is_proved_and_its_bytes_are_counted() -> None:
    outcome = prove(reduction(), 2, 8, EngineModel(4), iterations=3)
    assert outcome.link_bytes == {(0, 1): 24, (1, 0): 24}
    assert (outcome.values[0][0] < NONE).all()


@pytest.mark.parametrize(
    ("write", "text"),
    [
        (lambda r, s: (s.send(1 - r, 0), s.receive(1 - r, 0)), "the same without byte 0 of rank 0"),
        (
            lambda r, s: (s.send(1 - r, 0), s.receive_reduce(1 - r, 1, 0)),
            "must be the reduction of 2 origins, found another reduction",
        ),
        (
            lambda r, s: s.send(1 - r, 0, after=[(s.receive_reduce(1 - r, 0, 0), Wait.WHOLE)]),
            "deadlock",
        ),
    ],
)
def test_a_reduction_that_lacks_an_operand_or_takes_another_is_found(
    write: Write, text: str
) -> None:
    with pytest.raises(ScheduleError, match=text):
        prove(reduction(write), 2, 8, EngineModel(4))


def test_an_operand_that_is_folded_twice_is_named() -> None:
    def write(rank: int, steps: ScheduleBuilder) -> None:
        exchange(rank, steps)
        steps.send(1 - rank, 0)
        steps.receive_reduce(1 - rank, 0, 0, source=BufferId.RECV, after=[(1, Wait.CHUNK)])

    with pytest.raises(ScheduleError, match="the same with byte 0 of rank 1 in iteration 0 twice"):
        prove(reduction(write), 2, 8, EngineModel(4))


def test_scaling_before_and_after_are_two_promises() -> None:
    def before(rank: int, steps: ScheduleBuilder) -> None:
        own = steps.scale(0, 0, buffer=BufferId.SCRATCH)
        after = [(own, Wait.CHUNK)]
        steps.send(1 - rank, 0, buffer=BufferId.SCRATCH, after=after)
        steps.receive_reduce(1 - rank, 0, 0, source=BufferId.SCRATCH, after=after)

    def afterwards(rank: int, steps: ScheduleBuilder) -> None:
        exchange(rank, steps)
        steps.scale(0, 0, source=BufferId.RECV, after=[(1, Wait.CHUNK)])

    prove(reduction(before, Scaled.BEFORE), 2, 8, EngineModel(4))
    prove(reduction(afterwards, Scaled.AFTER), 2, 8, EngineModel(4))
    for write, promise in ((before, Scaled.AFTER), (afterwards, Scaled.BEFORE)):
        with pytest.raises(ScheduleError, match="RECV byte 0 must be"):
            prove(reduction(write, promise), 2, 8, EngineModel(4))


def test_a_local_operand_that_nobody_wrote_is_found() -> None:
    def write(rank: int, steps: ScheduleBuilder) -> None:
        steps.send(1 - rank, 0)
        steps.receive_reduce(1 - rank, 0, 0, source=BufferId.SCRATCH)

    with pytest.raises(ScheduleError, match="reads bytes that nobody has written"):
        prove(reduction(write), 2, 8)


def test_a_receive_and_a_reduction_from_one_peer_share_a_queue() -> None:
    # The order of the table is the order of arrival, whichever of the two it is.
    def write(rank: int, steps: ScheduleBuilder) -> None:
        for block in (0, 1):
            steps.send(1 - rank, block)
        steps.receive_reduce(1 - rank, 0, 0)
        steps.receive(1 - rank, 1)

    outcome = interpret(*two_ranks(write))
    found = outcome.values[0][0]
    assert (found[:8] < NONE).all()
    assert found[8:].tolist() == outcome.codes.of_slot(1, 0, 16)[8:].tolist()


@pytest.mark.parametrize(("chunk", "elements"), [(4, 8), (6, 4)])
def test_chunks_that_cut_an_element_are_refused(chunk: int, elements: int) -> None:
    with pytest.raises(ScheduleError, match="cut elements"):
        prove(reduction(elements=elements), 2, 8, EngineModel(chunk))


def test_a_step_may_reduce_in_place_and_two_steps_may_not() -> None:
    layout = make_layout(send=bytes_of(8, 8), recv=bytes_of(8))
    steps = ScheduleBuilder()
    steps.receive_reduce(1, 0, 0, source=BufferId.RECV)
    check_races(steps.build(), layout, 4)
    steps.receive_reduce(2, 0, 0, source=BufferId.RECV)
    with pytest.raises(ScheduleError, match="touch the same bytes"):
        check_races(steps.build(), layout, 4)


def test_in_place_the_payload_stands_in_recv_at_the_start() -> None:
    def write(rank: int, steps: ScheduleBuilder) -> None:
        steps.send(1 - rank, rank, buffer=BufferId.RECV)
        steps.receive(1 - rank, 1 - rank)

    layout = make_layout(recv=bytes_of(8, 8))
    starts = [Start(bytes_of(8), [(rank, 0)]) for rank in (0, 1)]
    schedules, layouts = two_ranks(write, (layout, layout))
    outcome = interpret(schedules, layouts, iterations=2, starts=starts)
    for of_rank in outcome.values:
        for iteration, found in enumerate(of_rank):
            ours, theirs = (outcome.codes.of_slot(rank, iteration, 8) for rank in (0, 1))
            assert found.tolist() == [*ours, *theirs]
