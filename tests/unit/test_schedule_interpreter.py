"""Every pattern keeps its promise in every order of events, and broken schedules are refused.

The collectives here are no product: they show that the form carries them, forwarding included.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tcpx_mpi import patterns
from tcpx_mpi.patterns import Pattern, repeated
from tcpx_mpi.schedule import (
    NONE,
    BlockTable,
    BufferId,
    Column,
    Expected,
    Layout,
    Op,
    Schedule,
    ScheduleBuilder,
    ScheduleError,
    Wait,
    make_layout,
    ragged_division,
)
from tcpx_mpi.schedule_interpreter import EngineModel, check_races, interpret, prove

ALL = list(patterns.NAMES)
Table = NDArray[np.int32]

# A busy machine is no failure.
PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


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


# --- Collectives in the same form --------------------------------------------------------------


def all_gather(lanes: int = 1, wait: Wait = Wait.CHUNK) -> Pattern:
    """A ring all-gather, each block cut into `lanes` parts that travel on lanes of their own.

    A rank forwards what it received out of its RECV buffer, chunk by chunk. Odd lanes run
    backwards, and each rank writes the lanes down in another order, which must not matter.
    """

    def schedule(rank: int, world: int) -> Schedule:
        steps = ScheduleBuilder()
        steps.copy(0, rank * lanes, blocks=lanes)
        for turn in range(lanes):
            lane = (rank + turn) % lanes
            way = -1 if lane % 2 else 1
            target, source = (rank + way) % world, (rank - way) % world
            steps.send(target, lane, lane=lane)
            for distance in range(1, world):
                block = (rank - way * distance) % world * lanes + lane
                got = steps.receive(source, block, lane=lane)
                if distance < world - 1:
                    steps.send(target, block, buffer=BufferId.RECV, lane=lane, after=[(got, wait)])
        return steps.build()

    def parts(rank: int, world: int, size: int) -> list[int]:
        own = int(ragged_division(size, world).lengths[rank])
        lengths: list[int] = ragged_division(own, lanes).lengths.tolist()
        return lengths

    def layout(rank: int, world: int, size: int) -> Layout:
        recv = [length for origin in range(world) for length in parts(origin, world, size)]
        return make_layout(
            send=BlockTable.of_lengths(parts(rank, world, size)), recv=BlockTable.of_lengths(recv)
        )

    def expected(rank: int, world: int) -> Expected:
        return Expected.of_rows(
            [
                (origin * lanes + lane, origin, lane)
                for origin in range(world)
                for lane in range(lanes)
            ]
        )

    return dataclasses.replace(
        patterns.load("ring"),
        name=f"all_gather on {lanes} lanes",
        schedule=schedule,
        layout=layout,
        expected=expected,
    )


def relay() -> Pattern:
    """Rank 0's bytes to everybody, down a line, through SCRATCH: a broadcast with a detour."""

    def schedule(rank: int, world: int) -> Schedule:
        steps = ScheduleBuilder()
        if rank == 0:
            steps.send(1, 0)
        else:
            got = steps.receive(rank - 1, 0, buffer=BufferId.SCRATCH)
            after = [(got, Wait.CHUNK)]
            steps.copy(0, 0, source=BufferId.SCRATCH, after=after)
            if rank < world - 1:
                steps.send(rank + 1, 0, buffer=BufferId.SCRATCH, after=after)
        return steps.build()

    def layout(rank: int, world: int, size: int) -> Layout:
        whole = BlockTable.of_lengths([size])
        return make_layout(send=whole) if rank == 0 else make_layout(recv=whole, scratch=whole)

    return dataclasses.replace(
        patterns.load("ring"),
        name="relay",
        schedule=schedule,
        layout=layout,
        expected=lambda rank, world: Expected.of_rows([(0, 0, 0)] if rank else []),
    )


# --- Promises ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
@given(data=st.data())
@settings(PATIENT, max_examples=60)
def test_a_pattern_keeps_its_promise_in_every_order_of_events(
    name: str, data: st.DataObject
) -> None:
    pattern = patterns.load(name)
    worlds = [world for world in range(2, 10) if pattern.refuse(world) is None]
    world, size, engine, iterations = draw_run(data, worlds)
    for one in pattern.rounds_run(world, True):
        outcome = prove(one, world, size, engine, iterations)
        assert outcome.most_sends <= engine.window_send
        assert outcome.most_receives <= engine.window_recv


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("rendezvous", [True, False])
def test_a_pattern_keeps_its_promise_on_a_grid_with_windows_of_one(
    name: str, rendezvous: bool
) -> None:
    pattern = patterns.load(name)
    engine = EngineModel(3, 2, window_send=1, window_recv=1, rendezvous=rendezvous)
    for world in range(2, 10):
        if pattern.refuse(world) is None:
            for size in (0, 1, world - 1, world, world + 1, 7 * world + 5):
                for one in pattern.rounds_run(world, True):
                    prove(one, world, size, engine, iterations=2)


@pytest.mark.parametrize("name", ALL)
@given(data=st.data(), messages=st.integers(2, 4))
@settings(PATIENT, max_examples=25)
def test_several_messages_posted_together_keep_the_promise(
    name: str, data: st.DataObject, messages: int
) -> None:
    world, size, engine, iterations = draw_run(data, [2, 4])
    for one in repeated(patterns.load(name), messages).rounds_run(world, True):
        prove(one, world, size, engine, iterations)


@pytest.mark.parametrize("wait", list(Wait))
@given(data=st.data())
@settings(PATIENT, max_examples=30)
def test_a_ring_all_gather_forwards_chunk_by_chunk_and_keeps_the_origin(
    wait: Wait, data: st.DataObject
) -> None:
    prove(all_gather(wait=wait), *draw_run(data, range(2, 8)))


@given(data=st.data())
@settings(PATIENT, max_examples=30)
def test_three_lanes_run_beside_each_other_whatever_order_a_rank_lists_them_in(
    data: st.DataObject,
) -> None:
    pattern = all_gather(lanes=3)
    lanes = [pattern.schedule(rank, 2).column(Column.LANE).tolist() for rank in (0, 1)]
    assert [list(dict.fromkeys(of_rank[1:])) for of_rank in lanes] == [[0, 1, 2], [1, 2, 0]]
    prove(pattern, *draw_run(data, range(2, 6)))


@given(data=st.data())
@settings(PATIENT, max_examples=30)
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
    for rank in range(world):
        for iteration in range(2):
            found = outcome.received[rank][iteration]
            assert found.rank.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 3, 3]
            assert found.offset.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 0, 1]
            assert found.iteration.tolist() == [iteration] * size


@given(data=st.data(), other=st.integers(0, 1 << 32))
@settings(PATIENT, max_examples=30)
def test_the_end_does_not_depend_on_the_order_of_events(data: st.DataObject, other: int) -> None:
    world, size, engine, iterations = draw_run(data, [2, 4])
    one = prove(all_gather(3), world, size, engine, iterations)
    two = prove(all_gather(3), world, size, dataclasses.replace(engine, order=other), iterations)
    assert one.messages == two.messages
    for rank in range(world):
        for a, b in zip(one.received[rank], two.received[rank], strict=True):
            assert np.array_equal(a.offset, b.offset)


# --- The model is the engine's -----------------------------------------------------------------


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


def bytes_of(*lengths: int) -> BlockTable:
    return BlockTable.of_lengths(lengths)


def two_ranks(
    write: Callable[[int, ScheduleBuilder], None],
    layouts: tuple[Layout, Layout] | None = None,
) -> tuple[list[Schedule], list[Layout]]:
    """Schedules of two ranks; `write` adds the steps of one."""
    schedules = []
    for rank in range(2):
        steps = ScheduleBuilder()
        write(rank, steps)
        schedules.append(steps.build())
    same = make_layout(send=bytes_of(8, 8), recv=bytes_of(8, 8))
    return schedules, list(layouts or (same, same))


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


# --- Schedules that are broken on purpose ------------------------------------------------------


def changed(pattern: Pattern, rank: int, change: Callable[[Table], Table]) -> Pattern:
    """The pattern with one rank's table changed."""

    def schedule(of: int, world: int) -> Schedule:
        good = pattern.schedule(of, world)
        return Schedule(np.ascontiguousarray(change(good.table.copy()))) if of == rank else good

    return dataclasses.replace(pattern, schedule=schedule)


def without_step(pattern: Pattern, rank: int, op: Op) -> Pattern:
    """The pattern without the last step of this kind of one rank."""

    def drop(table: Table) -> Table:
        last = int(np.flatnonzero(table[:, Column.OP] == op)[-1])
        return np.delete(table, last, axis=0)

    return changed(pattern, rank, drop)


def set_cell(op: Op, nth: int, column: Column, value: int) -> Callable[[Table], Table]:
    def change(table: Table) -> Table:
        table[int(np.flatnonzero(table[:, Column.OP] == op)[nth]), column] = value
        return table

    return change


def swap(op: Op, columns: Sequence[Column], first: int = 0) -> Callable[[Table], Table]:
    """Exchange these columns of two neighbouring steps of a kind."""

    def change(table: Table) -> Table:
        one, two = np.flatnonzero(table[:, Column.OP] == op)[first : first + 2]
        table[np.ix_([one, two], columns)] = table[np.ix_([two, one], columns)]
        return table

    return change


RING_TWICE = repeated(patterns.load("ring"), 2)

BROKEN = {
    "two receives swapped": (
        changed(RING_TWICE, 1, swap(Op.RECV, [Column.DST_BLOCK])),
        "RECV byte 0 must be byte 0 of rank 0 in iteration 0, found byte 20 of rank 0",
    ),
    "two sends swapped": (
        changed(RING_TWICE, 1, swap(Op.SEND, [Column.SRC_BLOCK])),
        "rank 2, iteration 0: RECV byte 0 must be byte 0 of rank 1",
    ),
    "two receives of a forwarded ring swapped": (
        changed(all_gather(), 1, swap(Op.RECV, [Column.DST_BLOCK])),
        "rank 1: step 3 .* and step 4 .* touch the same bytes",
    ),
    "two receives of a forwarded ring swapped, and what forwards them": (
        changed(
            all_gather(),
            1,
            lambda table: swap(Op.SEND, [Column.SRC_BLOCK], 1)(
                swap(Op.RECV, [Column.DST_BLOCK])(table)
            ),
        ),
        "rank 1, iteration 0: RECV byte 0 must be byte 0 of rank 0 .* found byte 0 of rank 3",
    ),
    "a block to the wrong place in a mesh": (
        changed(patterns.load("mesh"), 2, swap(Op.RECV, [Column.DST_BLOCK])),
        "mesh: rank 2, iteration 0: RECV byte .* must be",
    ),
    "one send dropped": (
        without_step(patterns.load("mesh"), 2, Op.SEND),
        "deadlock: .*receive of RECV block 2 from rank 2",
    ),
    "one receive dropped": (
        without_step(patterns.load("mesh"), 2, Op.RECV),
        "deadlock: .*send of SEND block 2 to rank 2",
    ),
    "a copy dropped": (
        without_step(patterns.load("mesh"), 2, Op.COPY),
        "mesh: rank 2, iteration 0: RECV byte .* found untouched",
    ),
    "a wrong block sent": (
        changed(patterns.load("mesh"), 3, set_cell(Op.SEND, 0, Column.SRC_BLOCK, 1)),
        "mesh: rank 0, iteration 0: RECV byte 15 must be byte 0 of rank 3 .*, found byte 5",
    ),
    "a receive into a block that another step writes": (
        changed(patterns.load("mesh"), 3, set_cell(Op.RECV, 0, Column.DST_BLOCK, 1)),
        "rank 3: step .* and step .* touch the same bytes",
    ),
    "a wrong peer": (
        changed(patterns.load("mesh"), 3, set_cell(Op.SEND, 0, Column.PEER, 2)),
        "deadlock",
    ),
    "a peer beyond the world": (
        changed(patterns.load("ring"), 3, set_cell(Op.SEND, 0, Column.PEER, 4)),
        "rank 3: step 1 .*: there are 4 ranks",
    ),
    "another lane on one side": (
        changed(patterns.load("ring"), 3, set_cell(Op.SEND, 0, Column.LANE, 1)),
        "deadlock: .*on lane 1",
    ),
    "a block that does not exist": (
        changed(patterns.load("ring"), 3, set_cell(Op.SEND, 0, Column.SRC_BLOCK, 1)),
        "rank 3: step 1: beyond the 1 blocks of SEND",
    ),
    "a forward that does not wait": (
        changed(
            all_gather(),
            2,
            lambda table: set_cell(Op.SEND, 1, Column.PRED0, NONE)(
                set_cell(Op.SEND, 1, Column.WAIT0, NONE)(table)
            ),
        ),
        "rank 2: step 2 .* and step 3 .* touch the same bytes",
    ),
    "a forward that waits for another block": (
        changed(all_gather(), 2, set_cell(Op.SEND, 2, Column.PRED0, 2)),
        "rank 2: step 4 .* and step 5 .* touch the same bytes",
    ),
}


@pytest.mark.parametrize("rendezvous", [True, False])
@pytest.mark.parametrize("what", list(BROKEN))
def test_a_broken_schedule_is_refused(what: str, rendezvous: bool) -> None:
    pattern, complaint = BROKEN[what]
    if what == "one receive dropped" and not rendezvous:
        complaint = "is received by nobody"
    with pytest.raises(ScheduleError, match=complaint):
        prove(pattern, 4, 20, EngineModel(chunk_bytes=3, rendezvous=rendezvous))


def test_a_circle_through_all_ranks_is_a_deadlock() -> None:
    def wait_first(table: Table) -> Table:
        # In a ring the receive stands before the send: now every send waits for it.
        return set_cell(Op.SEND, 0, Column.PRED0, 0)(
            set_cell(Op.SEND, 0, Column.WAIT0, Wait.WHOLE)(table)
        )

    pattern = patterns.load("ring")
    for rank in range(4):
        pattern = changed(pattern, rank, wait_first)
        if rank < 3:  # one rank that does not wait is enough
            prove(pattern, 4, 20)
    with pytest.raises(ScheduleError, match="deadlock"):
        prove(pattern, 4, 20)


@pytest.mark.parametrize(
    ("send", "recv", "complaint"),
    [
        (8, 7, "8 bytes: it overflows the posted 7"),
        (7, 8, "7 bytes: it falls short of the posted 8"),
        (1, 0, "1 bytes: it overflows the posted 0"),
    ],
)
def test_a_message_of_another_length_than_its_receive_is_refused(
    send: int, recv: int, complaint: str
) -> None:
    def write(rank: int, steps: ScheduleBuilder) -> None:
        _ = steps.receive(0, 0) if rank else steps.send(1, 0)

    layouts = make_layout(send=bytes_of(send)), make_layout(recv=bytes_of(recv))
    with pytest.raises(ScheduleError, match=complaint):
        interpret(*two_ranks(write, layouts))


def test_a_longer_message_in_chunks_leaves_chunks_that_nobody_receives() -> None:
    def write(rank: int, steps: ScheduleBuilder) -> None:
        _ = steps.receive(0, 0) if rank else steps.send(1, 0)

    layouts = make_layout(send=bytes_of(8)), make_layout(recv=bytes_of(4))
    with pytest.raises(ScheduleError, match="chunk 1 of iteration 0 is received by nobody"):
        interpret(*two_ranks(write, layouts), EngineModel(4, 1, rendezvous=False))


def test_steps_in_another_order_are_refused_where_only_the_chunks_tell() -> None:
    # 8 then 4 bytes meet 4 then 8: in chunks of 4 every length fits.
    def write(rank: int, steps: ScheduleBuilder) -> None:
        for block in range(2):
            _ = steps.receive(0, block) if rank else steps.send(1, block)

    layouts = make_layout(send=bytes_of(8, 4)), make_layout(recv=bytes_of(4, 8))
    with pytest.raises(ScheduleError, match="disagree in order"):
        interpret(*two_ranks(write, layouts), EngineModel(4, 1))


def test_a_message_that_meets_a_receive_of_another_iteration_is_refused() -> None:
    def write(rank: int, steps: ScheduleBuilder) -> None:
        if rank == 0:
            steps.send(1, 0)
            steps.send(1, 0)
        else:
            steps.receive(0, 0)

    with pytest.raises(ScheduleError, match=r"of iteration 0 meets .* of iteration 1: disagree"):
        interpret(*two_ranks(write), EngineModel(rendezvous=False), iterations=2)


def test_sending_bytes_that_nobody_wrote_is_refused() -> None:
    def write(rank: int, steps: ScheduleBuilder) -> None:
        _ = steps.receive(0, 0) if rank else steps.send(1, 1, buffer=BufferId.RECV)

    with pytest.raises(ScheduleError, match=r"rank 0: step 0 .* reads bytes that nobody has"):
        interpret(*two_ranks(write))


def test_a_promise_that_names_bytes_twice_or_leaves_written_ones_out_is_refused() -> None:
    ring = patterns.load("ring")
    twice = dataclasses.replace(
        ring, expected=lambda rank, world: Expected.of_rows([(0, 1 - rank, 0)] * 2)
    )
    with pytest.raises(ScheduleError, match="rank 0 promises bytes at 0 twice"):
        prove(twice, 2, 8)
    none = dataclasses.replace(ring, expected=lambda rank, world: Expected.of_rows([]))
    with pytest.raises(ScheduleError, match="byte 0 must be untouched, found byte 0 of rank 1"):
        prove(none, 2, 8)


def test_one_written_byte_too_many_at_the_very_end_is_refused() -> None:
    def schedule(rank: int, world: int) -> Schedule:
        steps = ScheduleBuilder()
        steps.receive(1 - rank, 0, blocks=2)
        steps.send(1 - rank, 0, blocks=2)
        return steps.build()

    pattern = dataclasses.replace(
        patterns.load("ring"),
        schedule=schedule,
        layout=lambda rank, world, size: make_layout(
            send=bytes_of(size - 1, 1), recv=bytes_of(size - 1, 1)
        ),
        expected=lambda rank, world: Expected.of_rows([(0, 1 - rank, 0)]),
    )
    with pytest.raises(ScheduleError, match="byte 7 must be untouched, found byte 7 of rank 1"):
        prove(pattern, 2, 8)


# --- Races within a rank -----------------------------------------------------------------------


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
