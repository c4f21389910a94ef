"""The form of a schedule: what native code may rely on, and what cannot be written down."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tcpx_mpi.errors import TcpxError
from tcpx_mpi.schedule.builder import ScheduleBuilder
from tcpx_mpi.schedule.promise import Expected
from tcpx_mpi.schedule.table import (
    NONE,
    BlockTable,
    BufferId,
    Column,
    Op,
    Schedule,
    ScheduleError,
    Wait,
    chunks_of,
    make_layout,
    ragged_division,
    repeated_layout,
    repeated_schedule,
    step_bytes,
)

# --- Blocks and chunks -------------------------------------------------------------------------


@given(total=st.integers(0, 1 << 40), parts=st.integers(1, 300))
def test_a_ragged_division_gives_the_first_blocks_one_byte_more(total: int, parts: int) -> None:
    table = ragged_division(total, parts)
    lengths = table.lengths.tolist()
    assert lengths == [total // parts + (part < total % parts) for part in range(parts)]
    assert table.offsets.tolist() == [sum(lengths[:part]) for part in range(parts)]
    assert table.total_bytes == total


def test_blocks_of_more_than_two_gib_keep_their_offsets() -> None:
    table = BlockTable.of_lengths([3 << 30, 1, 5 << 30])
    assert table.offsets.tolist() == [0, 3 << 30, (3 << 30) + 1]
    assert table.total_bytes == (8 << 30) + 1


def test_a_block_table_does_not_follow_the_array_it_was_made_of() -> None:
    lengths = np.array([1, 2], dtype=np.int64)
    table = BlockTable.of_lengths(lengths)
    lengths[0] = 9
    assert table.lengths.tolist() == [1, 2]


def test_a_negative_length_is_refused() -> None:
    with pytest.raises(ScheduleError, match="negative length; found -4"):
        BlockTable.of_lengths([3, -4])


@pytest.mark.parametrize(("total", "parts"), [(-1, 2), (4, 0)])
def test_an_impossible_division_is_refused(total: int, parts: int) -> None:
    with pytest.raises(ScheduleError, match="cannot divide"):
        ragged_division(total, parts)


@pytest.mark.parametrize(
    ("length", "chunk_bytes", "chunks"),
    [(0, 8, 1), (1, 8, 1), (8, 8, 1), (9, 8, 2), (16, 8, 2), (17, 8, 3), (5 << 30, 1 << 19, 10240)],
)
def test_an_empty_step_is_one_chunk_and_others_have_no_empty_chunk(
    length: int, chunk_bytes: int, chunks: int
) -> None:
    assert chunks_of(length, chunk_bytes) == chunks


@pytest.mark.parametrize(("length", "chunk_bytes"), [(-1, 8), (8, 0)])
def test_impossible_chunks_are_refused(length: int, chunk_bytes: int) -> None:
    with pytest.raises(ScheduleError, match="cannot cut"):
        chunks_of(length, chunk_bytes)


# --- The table ---------------------------------------------------------------------------------


def three_steps() -> Schedule:
    steps = ScheduleBuilder()
    got = steps.receive(3, 1, buffer=BufferId.SCRATCH, lane=2)
    own = steps.copy(4, 5, blocks=2)
    steps.send(6, 1, buffer=BufferId.SCRATCH, lane=1, after=[(got, Wait.CHUNK), (own, Wait.WHOLE)])
    return steps.build()


def test_the_table_is_the_numbers_that_native_code_reads() -> None:
    table = three_steps().table
    assert table.dtype == np.int32
    assert table.flags.c_contiguous
    assert table.tolist() == [
        # op peer lane src_buffer src_block dst_buffer dst_block blocks pred0 wait0 pred1 wait1
        [1, 3, 2, -1, -1, 2, 1, 1, -1, -1, -1, -1],
        [2, -1, -1, 0, 4, 1, 5, 2, -1, -1, -1, -1],
        [0, 6, 1, 2, 1, -1, -1, 1, 0, 0, 1, 1],
    ]


def test_a_reduction_reads_a_local_operand_and_a_peer() -> None:
    builder = ScheduleBuilder()
    first = builder.receive_reduce(3, 1, 2, buffer=BufferId.SCRATCH, lane=1)
    builder.scale(2, 0, source=BufferId.SCRATCH, after=[(first, Wait.CHUNK)])
    schedule = builder.build()
    assert schedule.table.tolist() == [
        [3, 3, 1, 0, 1, 2, 2, 1, -1, -1, -1, -1],
        [4, -1, -1, 2, 2, 1, 0, 1, 0, 0, -1, -1],
    ]
    assert schedule.reduces
    assert schedule.receives
    assert schedule.peers_received == [(3, 1)]
    assert schedule.peers_sent == []
    assert "reduction of SEND block 1 and what rank 3 sends" in schedule.describe(0)


def test_the_numbers_of_the_form_never_change() -> None:
    names = ["SEND", "RECV", "COPY", "RECV_REDUCE", "SCALE", "PAUSE"]
    assert [(op.name, op.value) for op in Op] == [(name, n) for n, name in enumerate(names)]
    assert [b.name for b in BufferId] == ["SEND", "RECV", "SCRATCH"]
    assert [int(b) for b in BufferId] == [0, 1, 2]
    assert (Wait.CHUNK, Wait.WHOLE) == (0, 1)
    assert [column.name.lower() for column in Column] == [
        *("op", "peer", "lane", "src_buffer", "src_block", "dst_buffer", "dst_block", "blocks"),
        *("pred0", "wait0", "pred1", "wait1"),
    ]
    assert [int(column) for column in Column] == list(range(12))


def test_a_schedule_cannot_be_changed_once_it_is_checked() -> None:
    schedule = three_steps()
    with pytest.raises(ValueError, match="read-only"):
        schedule.table[0, 0] = 0


def test_peers_are_sorted_and_named_once_a_lane() -> None:
    steps = ScheduleBuilder()
    for peer, lane in [(5, 1), (2, 0), (5, 0), (2, 0)]:
        steps.send(peer, 0, lane=lane)
    steps.receive(7, 0)
    schedule = steps.build()
    assert schedule.peers_sent == [(2, 0), (5, 0), (5, 1)]
    assert schedule.peers_received == [(7, 0)]


def test_a_schedule_says_whether_it_sends_and_receives() -> None:
    empty, sender, receiver = ScheduleBuilder(), ScheduleBuilder(), ScheduleBuilder()
    sender.send(1, 0)
    receiver.receive(0, 0)
    assert [(s.build().sends, s.build().receives) for s in (empty, sender, receiver)] == [
        (False, False),
        (True, False),
        (False, True),
    ]
    assert empty.build().table.shape == (0, 12)


def test_a_step_is_described_in_words() -> None:
    schedule = three_steps()
    assert [schedule.describe(step) for step in range(3)] == [
        "step 0 (receive of SCRATCH block 1 from rank 3 on lane 2)",
        "step 1 (copy of SEND block 4 to RECV block 5)",
        "step 2 (send of SCRATCH block 1 to rank 6 on lane 1)",
    ]


@pytest.mark.parametrize(
    ("step", "column", "value", "complaint"),
    [
        (0, Column.OP, 6, "unknown operation"),
        (0, Column.OP, -1, "unknown operation"),
        (0, Column.PEER, NONE, "peer is missing"),
        (0, Column.LANE, NONE, "lane is missing"),
        (0, Column.DST_BLOCK, NONE, "dst_block is missing"),
        (0, Column.DST_BUFFER, NONE, "unknown dst_buffer"),
        (0, Column.DST_BUFFER, 3, "unknown dst_buffer"),
        (0, Column.DST_BUFFER, BufferId.SEND, "the SEND buffer is only read"),
        (0, Column.SRC_BLOCK, 0, "src_block does not apply"),
        (0, Column.SRC_BUFFER, 0, "src_buffer does not apply"),
        (0, Column.BLOCKS, 0, "at least one block"),
        (0, Column.WAIT0, 0, "a wait without pred0"),
        (0, Column.PRED0, 0, "pred0 is not an earlier step"),
        (0, Column.PRED0, 2, "pred0 is not an earlier step"),
        (0, Column.PRED0, -2, "pred0 is neither"),
        (1, Column.PEER, 0, "peer does not apply"),
        (1, Column.LANE, 0, "lane does not apply"),
        (1, Column.SRC_BUFFER, 7, "unknown src_buffer"),
        (2, Column.DST_BUFFER, 1, "dst_buffer does not apply"),
        (2, Column.DST_BLOCK, 1, "dst_block does not apply"),
        (2, Column.SRC_BLOCK, -5, "src_block is missing"),
        (2, Column.WAIT0, 2, "unknown wait for pred0"),
        (2, Column.WAIT1, NONE, "unknown wait for pred1"),
        (2, Column.PRED1, 0, "the same step"),
        (2, Column.PRED1, 2, "pred1 is not an earlier step"),
    ],
)
def test_a_malformed_table_cannot_become_a_schedule(
    step: int, column: Column, value: int, complaint: str
) -> None:
    table = three_steps().table.copy()
    table[step, column] = value
    with pytest.raises(ScheduleError, match=f"step {step}: .*{complaint}"):
        Schedule(table)


def test_the_second_predecessor_needs_a_first() -> None:
    table = three_steps().table.copy()
    table[2, [Column.PRED0, Column.WAIT0]] = NONE
    with pytest.raises(ScheduleError, match="step 2: pred1 without pred0"):
        Schedule(table)


@pytest.mark.parametrize(
    "table",
    [
        np.zeros((1, 12), dtype=np.int64),
        np.zeros((1, 11), dtype=np.int32),
        np.zeros(12, dtype=np.int32),
        np.zeros((4, 24), dtype=np.int32)[:, ::2],
        np.asfortranarray(np.zeros((4, 12), dtype=np.int32)),
    ],
    ids=["int64", "11 columns", "one dimension", "a view with strides", "Fortran order"],
)
def test_only_a_contiguous_int32_table_is_accepted(table: np.ndarray) -> None:
    with pytest.raises(ScheduleError, match="C-contiguous int32 array of 12 columns; found"):
        Schedule(table)


def test_three_predecessors_are_refused() -> None:
    steps = ScheduleBuilder()
    for peer in range(3):
        steps.receive(peer, peer)
    with pytest.raises(ScheduleError, match="at most two predecessors; found 3"):
        steps.copy(0, 9, after=[(0, Wait.WHOLE), (1, Wait.WHOLE), (2, Wait.WHOLE)])


def test_a_schedule_error_is_a_defect_of_ours() -> None:
    assert issubclass(ScheduleError, TcpxError)
    assert ScheduleError.exit_code == 1


# --- A schedule with a size --------------------------------------------------------------------


def test_steps_become_bytes_by_the_block_tables() -> None:
    layout = make_layout(
        send=BlockTable.of_lengths([10, 20, 30, 40, 3 << 30, 7]),
        recv=BlockTable.of_lengths([1, 1, 1, 1, 1, 3 << 30, 7]),
        scratch=BlockTable.of_lengths([100, (3 << 30) + 7]),
    )
    sizes = step_bytes(three_steps(), layout)
    assert sizes.src_offset.tolist() == [-1, 100, 100]
    assert sizes.dst_offset.tolist() == [100, 5, -1]
    assert sizes.length.tolist() == [(3 << 30) + 7] * 3


def one_copy_and_a_send(wait: Wait, send_block: int = 0, blocks: int = 1) -> Schedule:
    steps = ScheduleBuilder()
    copied = steps.copy(0, 0)
    steps.send(1, send_block, blocks=blocks, after=[(copied, wait)])
    return steps.build()


def test_waiting_chunk_by_chunk_needs_equal_lengths() -> None:
    for other in (7, 9):
        lengths = BlockTable.of_lengths([8, other])
        layout = make_layout(send=lengths, recv=BlockTable.of_lengths([8]))
        with pytest.raises(ScheduleError, match="step 1: waits chunk by chunk for pred0 of anoth"):
            step_bytes(one_copy_and_a_send(Wait.CHUNK, send_block=1), layout)
    assert step_bytes(one_copy_and_a_send(Wait.CHUNK), layout).length.tolist() == [8, 8]
    assert step_bytes(one_copy_and_a_send(Wait.WHOLE, 1), layout).length.tolist() == [8, 9]


def test_a_block_beyond_its_buffer_is_refused() -> None:
    layout = make_layout(send=BlockTable.of_lengths([8, 9]), recv=BlockTable.of_lengths([8]))
    assert step_bytes(one_copy_and_a_send(Wait.WHOLE, 0, 2), layout).length.tolist() == [8, 17]
    with pytest.raises(ScheduleError, match="step 1: beyond the 2 blocks of SEND"):
        step_bytes(one_copy_and_a_send(Wait.WHOLE, 1, 2), layout)


def test_a_copy_between_unequal_lengths_is_refused() -> None:
    layout = make_layout(send=BlockTable.of_lengths([8]), recv=BlockTable.of_lengths([9]))
    with pytest.raises(ScheduleError, match="step 0: source and destination have unequal lengths"):
        step_bytes(one_copy_and_a_send(Wait.WHOLE), layout)


def test_a_layout_always_has_all_three_buffers() -> None:
    layout = make_layout(send=BlockTable.of_lengths([8]))
    assert [layout[key].blocks for key in BufferId] == [1, 0, 0]


# --- Several messages, and what is expected ----------------------------------------------------


def test_repeated_copies_have_their_own_blocks_and_predecessors() -> None:
    blocks = {BufferId.SEND: 10, BufferId.RECV: 20, BufferId.SCRATCH: 30}
    assert repeated_schedule(three_steps(), blocks, 2).table.tolist() == [
        *three_steps().table.tolist(),
        [1, 3, 2, -1, -1, 2, 31, 1, -1, -1, -1, -1],
        [2, -1, -1, 0, 14, 1, 25, 2, -1, -1, -1, -1],
        [0, 6, 1, 2, 31, -1, -1, 1, 3, 0, 4, 1],
    ]


def test_a_repeated_layout_lays_the_copies_one_behind_the_other() -> None:
    layout = repeated_layout(make_layout(send=BlockTable.of_lengths([3, 2])), 3)
    assert layout[BufferId.SEND].lengths.tolist() == [3, 2, 3, 2, 3, 2]
    assert layout[BufferId.SEND].offsets.tolist() == [0, 3, 5, 8, 10, 13]
    assert layout[BufferId.RECV].blocks == 0


def test_expectations_are_three_columns_of_int32() -> None:
    expected = Expected.of_rows([(0, 4, 7), (1, 5, 8)])
    assert expected.dst_block.tolist() == [0, 1]
    assert expected.origin_rank.tolist() == [4, 5]
    assert expected.origin_block.tolist() == [7, 8]
    assert {a.dtype for a in (expected.dst_block, expected.origin_rank)} == {np.dtype(np.int32)}
    assert Expected.of_rows([]).dst_block.size == 0
