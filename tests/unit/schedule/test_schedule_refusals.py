"""Schedules that are broken on purpose are refused, with what is wrong."""

from __future__ import annotations

import dataclasses

import pytest
from schedules import (
    Table,
    all_gather,
    bytes_of,
    changed,
    set_cell,
    swap,
    two_ranks,
    without_step,
)

from tcpx_mpi import patterns
from tcpx_mpi.patterns import repeated
from tcpx_mpi.schedule.builder import ScheduleBuilder
from tcpx_mpi.schedule.engine_model import EngineModel
from tcpx_mpi.schedule.interpreter import prove
from tcpx_mpi.schedule.interpreter.proof import interpret
from tcpx_mpi.schedule.promise import Expected
from tcpx_mpi.schedule.table import (
    NONE,
    BufferId,
    Column,
    Op,
    Schedule,
    ScheduleError,
    Wait,
    make_layout,
)

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
