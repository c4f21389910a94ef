"""The interpreter moves chunks as the engine does, and says of a deadlock who waits for whom."""

from __future__ import annotations

import pytest
from schedules import bytes_of, two_ranks, without_step

from tcpx_mpi import patterns
from tcpx_mpi.schedule.builder import ScheduleBuilder
from tcpx_mpi.schedule.engine_model import EngineModel
from tcpx_mpi.schedule.interpreter import prove
from tcpx_mpi.schedule.interpreter.proof import interpret
from tcpx_mpi.schedule.table import Op, ScheduleError, Wait, make_layout


def test_every_step_is_cut_into_chunks_and_an_empty_one_is_a_message_too() -> None:
    pair = patterns.load("pair")
    counts = [prove(pair, 2, size, EngineModel(4)).messages for size in (0, 1, 4, 5, 40)]
    assert counts == [1, 1, 1, 2, 10]


def test_windows_fill_and_are_never_exceeded() -> None:
    pair = patterns.load("pair")
    runs = [
        prove(pair, 2, 200, EngineModel(1, 2, window_send=5, window_recv=7, order=seed))
        for seed in range(8)
    ]
    assert max(run.most_sends for run in runs) == 5
    assert max(run.most_receives for run in runs) == 7


def test_receives_run_ahead_into_later_iterations_and_sends_do_not() -> None:
    pingpong = patterns.load("pingpong")
    runs = [
        prove(pingpong, 2, 8, EngineModel(8, 1, rendezvous=False, order=seed), iterations=6)
        for seed in range(8)
    ]
    assert max(run.most_receives for run in runs) == 6
    assert {run.most_sends for run in runs} == {1}


def test_another_seed_is_another_order_and_one_seed_is_one_order() -> None:
    pingpong = patterns.load("pingpong")

    def most_receives(seed: int) -> list[int]:
        engine = EngineModel(8, 1, order=seed)
        return [prove(pingpong, 2, size, engine, 6).most_receives for size in range(0, 80, 8)]

    runs = [most_receives(seed) for seed in range(8)]
    assert runs == [most_receives(seed) for seed in range(8)]
    assert len({tuple(run) for run in runs}) > 1


@pytest.mark.parametrize("second_lane", [0, 1])
def test_only_the_head_of_a_queue_is_posted_and_another_lane_is_another_queue(
    second_lane: int,
) -> None:
    def write(rank: int, steps: ScheduleBuilder) -> None:
        if rank == 0:
            answer = steps.receive(1, 0)
            steps.send(1, 0, after=[(answer, Wait.WHOLE)])
            # Nothing holds this one back, but on lane 0 it stands behind one that is held.
            steps.send(1, 1, lane=second_lane)
        else:
            steps.receive(0, 0)
            got = steps.receive(0, 1, lane=second_lane)
            steps.send(0, 0, after=[(got, Wait.WHOLE)])

    if second_lane == 0:
        with pytest.raises(ScheduleError, match="deadlock"):
            interpret(*two_ranks(write))
    else:
        assert interpret(*two_ranks(write)).messages == 3


@pytest.mark.parametrize("channels", [1, 2])
def test_a_chunk_passes_by_a_held_one_on_another_channel(channels: int) -> None:
    # The short send is held until the receive is whole, and holds chunk 0 of the long one, so the
    # ranks are stuck. On two channels chunk 1 goes round all the same.
    def write(rank: int, steps: ScheduleBuilder) -> None:
        if rank == 0:
            got = steps.receive(1, 0)
            steps.send(1, 1, after=[(got, Wait.WHOLE)])
            steps.send(1, 0)
        else:
            steps.receive(0, 1)
            got = steps.receive(0, 0)
            steps.send(0, 0, after=[(got, Wait.CHUNK)])

    layout = make_layout(send=bytes_of(8, 4), recv=bytes_of(8, 4))
    engine = EngineModel(4, channels, window_recv=1)
    with pytest.raises(ScheduleError, match="deadlock") as caught:
        interpret(*two_ranks(write, (layout, layout)), engine)
    assert ("chunk 1 of" in str(caught.value)) == (channels == 1)


@pytest.mark.parametrize("rendezvous", [True, False])
def test_a_schedule_that_needs_buffering_fails_only_where_sends_wait_for_receives(
    rendezvous: bool,
) -> None:
    def write(rank: int, steps: ScheduleBuilder) -> None:
        sent = steps.send(1 - rank, 0)
        steps.receive(1 - rank, 0, after=[(sent, Wait.WHOLE)])

    engine = EngineModel(rendezvous=rendezvous)
    if rendezvous:
        with pytest.raises(ScheduleError, match="deadlock: rank 0 step 0"):
            interpret(*two_ranks(write), engine)
    else:
        assert interpret(*two_ranks(write), engine).messages == 2


# --- What a deadlock report says ---------------------------------------------------------------


def test_a_deadlock_names_who_waits_for_whom_and_what_holds_the_rest() -> None:
    def write(rank: int, steps: ScheduleBuilder) -> None:
        got = steps.receive(1 - rank, 0)
        steps.send(1 - rank, 0, after=[(got, Wait.WHOLE)])

    with pytest.raises(ScheduleError) as caught:
        interpret(*two_ranks(write))
    assert str(caught.value) == (
        "deadlock: rank 0 step 0 (receive of RECV block 0 from rank 1 on lane 0), chunk 0 of "
        "iteration 0 is posted and waits for rank 1; rank 0 step 1 (send of SEND block 0 to rank "
        "1 on lane 0), chunk 0 of iteration 0 waits for step 0; rank 1 step 0 (receive of RECV "
        "block 0 from rank 0 on lane 0), chunk 0 of iteration 0 is posted and waits for rank 0; "
        "rank 1 step 1 (send of SEND block 0 to rank 0 on lane 0), chunk 0 of iteration 0 waits "
        "for step 0"
    )


def test_a_deadlock_names_a_full_window_and_an_unfinished_iteration() -> None:
    pair = without_step(patterns.load("pingpong"), rank=1, op=Op.SEND)
    with pytest.raises(ScheduleError) as caught:
        prove(pair, 2, 20, EngineModel(1, 1), iterations=2)
    assert "chunk 16 of iteration 0 waits for room in a window of 16" in str(caught.value)
    assert "chunk 0 of iteration 1 waits for the end of iteration 0" in str(caught.value)


def test_a_long_deadlock_report_is_cut() -> None:
    mesh = without_step(patterns.load("mesh"), rank=0, op=Op.SEND)
    with pytest.raises(ScheduleError, match=r"; and \d+ more$") as caught:
        prove(mesh, 9, 90, EngineModel(1, 4), iterations=2)
    assert "\n" not in str(caught.value)
