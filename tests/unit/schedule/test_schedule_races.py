"""Steps of a rank that touch the same bytes at once are found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from schedules import bytes_of

from tcpx_mpi.schedule.builder import ScheduleBuilder
from tcpx_mpi.schedule.interpreter.races import check_races
from tcpx_mpi.schedule.table import BufferId, Schedule, ScheduleError, Wait, make_layout


def races(write: Callable[[ScheduleBuilder], object], chunk_bytes: int = 4) -> bool:
    """Whether the steps race; the RECV buffer has blocks of 8, 2 and 6 bytes, SCRATCH 8."""
    steps = ScheduleBuilder()
    write(steps)
    layout = make_layout(send=bytes_of(8, 2, 6, 0), recv=bytes_of(8, 2, 6, 0), scratch=bytes_of(8))
    try:
        check_races(steps.build(), layout, chunk_bytes)
    except ScheduleError as error:
        if "touch the same bytes" not in str(error):
            raise
        return True
    return False


def test_two_receives_of_one_block_race_unless_one_waits() -> None:
    assert races(lambda s: (s.receive(1, 0), s.receive(1, 0)))
    assert not races(lambda s: s.receive(1, 0, after=[(s.receive(1, 0), Wait.CHUNK)]))
    assert not races(lambda s: (s.receive(1, 0), s.receive(1, 1), s.receive(1, 2)))


def test_overwriting_a_block_that_is_being_sent_is_a_race() -> None:
    def write(s: ScheduleBuilder, *held: int) -> None:
        got = s.receive(1, 0)
        sent = s.send(2, 0, buffer=BufferId.RECV, after=[(got, Wait.CHUNK)])
        s.receive(1, 0, after=[((got, sent)[index], Wait.CHUNK) for index in held])

    assert races(write)
    assert races(lambda s: write(s, 0))
    assert not races(lambda s: write(s, 1))


def test_reading_is_no_race_and_empty_steps_touch_nothing() -> None:
    def write(s: ScheduleBuilder) -> None:
        got = s.receive(1, 0)
        for peer in (2, 3):
            s.send(peer, 0, buffer=BufferId.RECV, after=[(got, Wait.CHUNK)])

    assert not races(write)
    assert not races(lambda s: (s.receive(1, 3), s.receive(1, 3)))


def test_ranges_that_only_partly_overlap_race_too() -> None:
    assert races(lambda s: (s.receive(1, 0, blocks=2), s.receive(2, 1, blocks=2)))
    assert races(lambda s: (s.receive(1, 0, blocks=3), s.receive(2, 1), s.receive(3, 2)))
    steps = ScheduleBuilder()
    steps.receive(1, 0, blocks=2)
    steps.receive(2, 1, blocks=2)
    with pytest.raises(ScheduleError, match="touch the same bytes"):  # one of them
        check_races(steps.build(), make_layout(recv=bytes_of(4, 1, 4)), 4)


def test_chunk_by_chunk_orders_only_chunks_that_lie_at_one_place() -> None:
    layout = make_layout(recv=bytes_of(4, 4, 4))

    def two_receives(second_block: int, wait: Wait) -> Schedule:
        steps = ScheduleBuilder()
        got = steps.receive(1, 0, blocks=2)
        steps.receive(1, second_block, blocks=2, after=[(got, wait)])
        return steps.build()

    check_races(two_receives(0, Wait.CHUNK), layout, chunk_bytes=4)
    with pytest.raises(ScheduleError, match="touch the same bytes"):
        check_races(two_receives(1, Wait.CHUNK), layout, chunk_bytes=4)
    check_races(two_receives(1, Wait.WHOLE), layout, chunk_bytes=4)
    # One chunk a step: chunk by chunk is whole.
    check_races(two_receives(1, Wait.CHUNK), layout, chunk_bytes=8)


@pytest.mark.parametrize("first", list(Wait))
@pytest.mark.parametrize("second", list(Wait))
def test_waiting_passes_through_other_steps_as_strictly_as_its_strictest_link(
    first: Wait, second: Wait
) -> None:
    steps = ScheduleBuilder()
    got = steps.receive(1, 0, blocks=2)
    middle = steps.copy(0, 0, buffer=BufferId.SCRATCH, after=[(got, first)])
    steps.receive(1, 1, blocks=2, after=[(middle, second)])
    layout = make_layout(send=bytes_of(8), recv=bytes_of(4, 4, 4), scratch=bytes_of(8))
    if Wait.WHOLE in (first, second):
        check_races(steps.build(), layout, 4)
    else:
        with pytest.raises(ScheduleError, match=r"step 0 .* and step 2 .* touch the same bytes"):
            check_races(steps.build(), layout, 4)
