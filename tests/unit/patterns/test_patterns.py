"""Who sends what to whom, checked against what a person would write down."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest

from tcpx_mpi import patterns
from tcpx_mpi.errors import UsageError
from tcpx_mpi.patterns import repeated
from tcpx_mpi.patterns.loaded import MESH, PING, READY
from tcpx_mpi.patterns.pair import begins, partner
from tcpx_mpi.patterns.permutation import sources, targets
from tcpx_mpi.patterns.program import Form
from tcpx_mpi.schedule.engine_model import EngineModel
from tcpx_mpi.schedule.interpreter import prove
from tcpx_mpi.schedule.pattern import Pattern, expected_bytes
from tcpx_mpi.schedule.promise import Expected
from tcpx_mpi.schedule.table import BufferId, Column, Op, ScheduleError

SEND, RECV = Op.SEND, Op.RECV
ALL = [name for name in patterns.NAMES if name not in patterns.PROGRAMS]
EVERY = list(patterns.NAMES)


def form(name: str, **of_form: Any) -> Pattern:
    return patterns.find_program(name).pattern(Form(**of_form))


def moves(of: str | Pattern, rank: int, world: int) -> list[tuple[int, int, int]]:
    """(operation, peer, block) of every step."""
    pattern = patterns.load(of) if isinstance(of, str) else of
    return [
        (row[Column.OP], row[Column.PEER], max(row[Column.SRC_BLOCK], row[Column.DST_BLOCK]))
        for row in pattern.schedule(rank, world).table.tolist()
    ]


# --- The registry ------------------------------------------------------------------------------


def test_listing_the_patterns_needs_no_numpy() -> None:
    code = "import sys, tcpx_mpi.patterns as p; list(p.NAMES);sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.parametrize("name", EVERY)
def test_every_name_loads_the_pattern_of_that_name(name: str) -> None:
    pattern = patterns.load(name)
    assert pattern is patterns.load(name)
    assert pattern.name == name
    assert "\n" not in patterns.NAMES[name]


def test_an_unknown_pattern_is_one_line_that_names_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        patterns.load("torus")
    assert (
        str(caught.value)
        == f"unknown pattern torus: use one of {', '.join([*patterns.NAMES, patterns.SMOKE])}"
    )
    assert patterns.find("torus") is None


# --- What is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
def test_one_rank_is_refused_with_what_to_do(name: str) -> None:
    refusal = patterns.load(name).refuse(1)
    assert refusal is not None
    assert refusal == f"{name} needs at least 2 ranks; found 1; start 2 or more (mpirun -n 2)"


@pytest.mark.parametrize("name", ["pair", "pingpong", "bidirectional"])
def test_an_odd_number_of_ranks_has_no_pairs(name: str) -> None:
    refuse = patterns.load(name).refuse
    assert refuse(5) == f"{name} needs an even number of ranks; found 5; start 4 or 6 ranks"
    assert [refuse(world) for world in (2, 4, 6)] == [None] * 3


@pytest.mark.parametrize("name", ["ring", "mesh"])
def test_any_two_or_more_ranks_make_a_ring_or_a_mesh(name: str) -> None:
    assert [patterns.load(name).refuse(world) for world in range(2, 9)] == [None] * 7


# --- Each pattern ------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [2, 4, 16])
def test_pairs_cross_the_middle_of_the_world(world: int) -> None:
    for rank in range(world):
        other = partner(rank, world)
        assert abs(rank - other) == world // 2
        assert partner(other, world) == rank
        assert begins(rank, world) != begins(other, world)


def test_in_pair_the_first_half_sends_and_the_second_receives() -> None:
    assert [moves("pair", rank, 4) for rank in range(4)] == [
        [(SEND, 2, 0)],
        [(SEND, 3, 0)],
        [(RECV, 0, 0)],
        [(RECV, 1, 0)],
    ]


def test_in_pingpong_only_the_answer_waits_and_it_waits_for_the_whole_message() -> None:
    assert moves("pingpong", 0, 2) == [(SEND, 1, 0), (RECV, 1, 0)]
    assert moves("pingpong", 1, 2) == [(RECV, 0, 0), (SEND, 0, 0)]
    waits = slice(Column.PRED0, Column.WAIT1 + 1)
    first, second = (patterns.load("pingpong").schedule(rank, 2).table for rank in (0, 1))
    assert first[:, waits].tolist() == [[-1] * 4] * 2
    assert second[:, waits].tolist() == [[-1] * 4, [0, 1, -1, -1]]


def test_in_a_ring_all_receive_and_send_at_once() -> None:
    assert moves("ring", 0, 5) == [(RECV, 4, 0), (SEND, 1, 0)]
    assert moves("ring", 4, 5) == [(RECV, 3, 0), (SEND, 0, 0)]
    assert (patterns.load("ring").schedule(0, 5).column(Column.PRED0) == -1).all()


def test_in_a_mesh_receives_and_sends_alternate_by_distance_and_the_copy_is_last() -> None:
    assert moves("mesh", 1, 4) == [
        (RECV, 0, 0),
        (SEND, 2, 2),
        (RECV, 3, 3),
        (SEND, 3, 3),
        (RECV, 2, 2),
        (SEND, 0, 0),
        (Op.COPY, -1, 1),
    ]


def test_at_each_distance_of_a_mesh_no_two_ranks_have_one_target() -> None:
    world = 7
    sends = [[m[1] for m in moves("mesh", rank, world) if m[0] == SEND] for rank in range(world)]
    for at_once in zip(*sends, strict=True):
        assert sorted(at_once) == list(range(world))


def test_a_mesh_divides_the_send_buffer_and_receives_own_block_from_everybody() -> None:
    layouts = [patterns.load("mesh").layout(rank, 4, 10) for rank in range(4)]
    assert [layout[BufferId.SEND].lengths.tolist() for layout in layouts] == [[3, 3, 2, 2]] * 4
    assert [layout[BufferId.RECV].lengths.tolist() for layout in layouts] == [
        *([3] * 4, [3] * 4, [2] * 4, [2] * 4)
    ]


@pytest.mark.parametrize("name", EVERY)
def test_the_number_of_blocks_does_not_depend_on_the_size(name: str) -> None:
    pattern = patterns.load(name)
    for rank in range(4):
        counts = {
            tuple(pattern.layout(rank, 4, size)[key].blocks for key in BufferId)
            for size in (0, 1, 3, 17, 5 << 30)
        }
        assert len(counts) == 1


@pytest.mark.parametrize("name", ALL)
def test_what_a_rank_receives_in_bytes_is_what_the_others_send_it(name: str) -> None:
    pattern, world, size = patterns.load(name), 6, 1003
    for rank in range(world):
        rows = expected_bytes(pattern, rank, world, size)
        recv = pattern.layout(rank, world, size)[BufferId.RECV]
        assert int(rows[:, 1].sum()) == recv.total_bytes


def test_bus_bandwidth_and_time_are_those_of_the_size_but_of_a_mesh_and_of_round_trips() -> None:
    found = {name: patterns.load(name) for name in ALL}
    factors = {name: pattern.busbw_factor(4) for name, pattern in found.items()}
    assert math.isnan(factors.pop("moe"))  # by what left a rank
    assert factors == {**dict.fromkeys(sorted({*ALL} - {"moe"}), 1.0), "mesh": 0.75}
    divisors = {name: pattern.time_divisor for name, pattern in found.items()}
    assert divisors == {**dict.fromkeys(ALL, 1), "pingpong": 2, "loaded_pingpong": 2}


# --- What is expected, in bytes ----------------------------------------------------------------


def test_expected_bytes_name_the_origin_of_every_range() -> None:
    rows = expected_bytes(patterns.load("mesh"), 1, 4, 10)
    # dst_offset, length, origin_rank, origin_offset: block 1 of everybody is at 3, 3 bytes long.
    assert rows.tolist() == [[0, 3, 0, 3], [3, 3, 1, 3], [6, 3, 2, 3], [9, 3, 3, 3]]
    assert rows.dtype == np.int64


def test_expected_bytes_leave_out_empty_blocks_and_keep_large_offsets() -> None:
    mesh = patterns.load("mesh")
    assert expected_bytes(mesh, 0, 4, 1).tolist() == [
        *([0, 1, 0, 0], [1, 1, 1, 0], [2, 1, 2, 0], [3, 1, 3, 0])
    ]
    assert expected_bytes(mesh, 1, 4, 1).shape == (0, 4)
    large = expected_bytes(mesh, 3, 4, 16 << 30)
    assert large[3].tolist() == [12 << 30, 4 << 30, 3, 12 << 30]
    assert expected_bytes(patterns.load("pair"), 0, 2, 8).shape == (0, 4)


def test_expected_bytes_are_sorted_by_where_they_go() -> None:
    backwards = Expected.of_rows([(1, 0, 1), (0, 1, 1)])
    pattern = dataclasses.replace(patterns.load("mesh"), expected=lambda rank, world: backwards)
    assert expected_bytes(pattern, 1, 2, 6).tolist() == [[0, 3, 1, 3], [3, 3, 0, 3]]


def test_expecting_a_block_of_another_length_is_refused() -> None:
    mesh = patterns.load("mesh")
    wrong = dataclasses.replace(mesh, expected=lambda rank, world: Expected.of_rows([(0, 1, 3)]))
    with pytest.raises(ScheduleError, match="mesh: rank 0 expects 3 bytes in block 0, but block 3"):
        expected_bytes(wrong, 0, 4, 10)


# --- Several messages --------------------------------------------------------------------------


def test_repeating_once_is_the_pattern_itself_and_less_is_refused() -> None:
    ring = patterns.load("ring")
    assert patterns.repeated(ring, 1) is ring
    with pytest.raises(UsageError, match=r"-m \(0\) must be at least 1"):
        patterns.repeated(ring, 0)


def test_repeated_messages_have_their_own_bytes_and_the_same_rules() -> None:
    twice = patterns.repeated(patterns.load("mesh"), 2)
    assert expected_bytes(twice, 1, 2, 5).tolist() == [
        *([0, 2, 0, 3], [2, 2, 1, 3]),
        *([4, 2, 0, 8], [6, 2, 1, 8]),
    ]
    assert twice.schedule(0, 2).steps == 2 * patterns.load("mesh").schedule(0, 2).steps
    assert (twice.refuse(1), twice.busbw_factor(2)) == (patterns.load("mesh").refuse(1), 0.5)


# --- Forms: a root, a seed, a matrix, a load ---------------------------------------------------

FANS = ["fan_in", "fan_out"]


def test_both_ways_nobody_of_a_pair_waits_for_the_other() -> None:
    pattern = patterns.load("bidirectional")
    assert moves(pattern, 0, 4) == [(RECV, 2, 0), (SEND, 2, 0)]
    assert moves(pattern, 3, 4) == [(RECV, 1, 0), (SEND, 1, 0)]
    assert (pattern.schedule(3, 4).column(Column.PRED0) == -1).all()


def test_a_fan_has_a_block_for_each_other_rank_beginning_behind_the_root() -> None:
    into, out = (form(name, root=1) for name in FANS)
    assert moves(into, 1, 4) == [(RECV, 2, 0), (RECV, 3, 1), (RECV, 0, 2)]
    assert moves(out, 1, 4) == [(SEND, 2, 0), (SEND, 3, 1), (SEND, 0, 2)]
    assert [moves(into, rank, 4) for rank in (0, 2, 3)] == [[(SEND, 1, 0)]] * 3
    assert [moves(out, rank, 4) for rank in (0, 2, 3)] == [[(RECV, 1, 0)]] * 3


@pytest.mark.parametrize("name", FANS)
def test_the_size_of_a_fan_is_what_passes_its_root(name: str) -> None:
    pattern = form(name, root=2)
    at_root, elsewhere = (
        (BufferId.RECV, BufferId.SEND) if name == "fan_in" else (BufferId.SEND, BufferId.RECV)
    )
    layouts = [pattern.layout(rank, 4, 1000) for rank in range(4)]
    assert layouts[2][at_root].lengths.tolist() == [334, 333, 333]
    assert [layouts[rank][elsewhere].total_bytes for rank in (3, 0, 1)] == [334, 333, 333]


@pytest.mark.parametrize("name", FANS)
def test_a_root_that_no_rank_has_is_refused(name: str) -> None:
    pattern = form(name, root=4)
    assert pattern.refuse(4) == "-r/--root (4) is none of 4 ranks; use 0 to 3"
    assert pattern.refuse(5) is None


def test_an_incast_is_of_those_behind_the_root_and_its_mesh_has_a_lane_of_its_own() -> None:
    pattern = form("incast", root=2, senders=2)
    assert [moves(pattern, rank, 4) for rank in range(4)] == [
        [(SEND, 2, 0)], [], [(RECV, 3, 0), (RECV, 0, 1)], [(SEND, 2, 0)],
    ]  # fmt: skip
    assert pattern.layout(2, 4, 11)[BufferId.RECV].lengths.tolist() == [6, 5]
    assert pattern.place is not None
    assert [pattern.place(rank, 4) for rank in range(4)] == [1, 0, 0, 0]
    loaded = form("incast", root=2, senders=2, background_bytes=8)
    lanes = [loaded.schedule(rank, 4).peers_received for rank in range(4)]
    assert lanes[0] == [(1, 1), (2, 1), (3, 1)]
    assert lanes[2] == [(0, 0), (0, 1), (1, 1), (3, 0), (3, 1)]
    engine = EngineModel(3, 2, window_send=1, window_recv=1)
    for world in (3, 4, 6):
        for senders in (0, 1, 2):
            for background in (0, 13):
                of = form("incast", root=1, senders=senders, background_bytes=background)
                prove(of, world, 17, engine, iterations=2)
    assert pattern.refuse(2) == "--senders (2) is more than the 1 other ranks; use fewer"


def test_a_permutation_is_one_without_fixed_points_and_its_inverse_is_the_sources() -> None:
    for seed in range(20):
        for world in (2, 3, 4, 17, 100):
            found = targets(seed, world)
            assert sorted(found) == list(range(world))
            assert all(target != rank for rank, target in enumerate(found))
            assert [found[source] for source in sources(seed, world)] == list(range(world))


def test_every_permutation_without_fixed_points_is_drawn_as_often() -> None:
    drawn = Counter(targets(seed, 4) for seed in range(1800))
    assert len(drawn) == 9
    assert all(150 < times < 250 for times in drawn.values())


def test_a_seed_gives_the_same_permutation_for_ever() -> None:
    assert targets(1, 8) == (2, 6, 4, 0, 5, 1, 7, 3)
    assert targets((1 << 64) - 1, 2) == (1, 0)
    pattern = form("permutation", seed=1)
    assert pattern.notes == ("who sends to whom is drawn by --seed 1",)
    assert [moves(pattern, rank, 8)[1][1] for rank in range(8)] == [2, 6, 4, 0, 5, 1, 7, 3]


def test_a_permutation_of_any_seed_keeps_its_promise() -> None:
    engine = EngineModel(3, 2, window_send=1, window_recv=1)
    for seed in range(6):
        for world in range(2, 7):
            prove(form("permutation", seed=seed), world, 17, engine, iterations=2)


#: The picture of docs/reference/patterns.md, with a row and a column more than there are ranks.
WEIGHTS = ((0, 3, 0, 1, 9), (0, 9, 0, 0, 9), (0, 1, 0, 0, 9), (2, 0, 0, 0, 9), (9, 9, 9, 9, 9))


def test_the_busiest_rank_of_a_matrix_has_the_size_and_its_diagonal_does_not_travel() -> None:
    pattern = form("matrix", matrix=WEIGHTS)
    layouts = [pattern.layout(rank, 4, 1001) for rank in range(4)]
    assert [layout[BufferId.SEND].lengths.tolist() for layout in layouts] == [
        [0, 750, 0, 250],
        [0, 0, 0, 0],
        [0, 250, 0, 0],
        [500, 0, 0, 0],
    ]
    assert layouts[1][BufferId.RECV].lengths.tolist() == [750, 0, 250, 0]


def test_nothing_is_sent_where_a_matrix_has_nothing() -> None:
    pattern = form("matrix", matrix=WEIGHTS)
    assert [moves(pattern, rank, 4) for rank in range(4)] == [
        [(RECV, 3, 3), (SEND, 1, 1), (SEND, 3, 3)],
        [(RECV, 0, 0), (RECV, 2, 2)],
        [(SEND, 1, 1)],
        [(SEND, 0, 0), (RECV, 0, 0)],
    ]


def test_without_a_matrix_the_further_behind_a_rank_the_more_it_gets() -> None:
    layout = patterns.load("matrix").layout(1, 4, 60)
    assert layout[BufferId.SEND].lengths.tolist() == [30, 0, 10, 20]
    assert layout[BufferId.RECV].lengths.tolist() == [10, 0, 30, 20]


@pytest.mark.parametrize("weights", [None, WEIGHTS, ((0, 7, 0), (0, 0, 0), (0, 5, 0))])
def test_any_matrix_keeps_its_promise(weights: tuple[tuple[int, ...], ...] | None) -> None:
    engine = EngineModel(3, 2, window_send=1, window_recv=1)
    for world in range(2, len(weights or WEIGHTS) + 1):
        for size in (0, 1, world, 7 * world + 5):
            pattern = form("matrix", matrix=weights)
            prove(pattern, world, size, engine, iterations=2)
            prove(repeated(pattern, 2), world, size, engine, iterations=2)


def test_a_matrix_of_too_few_rows_or_without_traffic_is_refused() -> None:
    refuse = form("matrix", matrix=((5, 0, 0), (0, 5, 0), (0, 1, 5))).refuse
    assert refuse(4) == "--matrix has 3 rows, fewer than the 4 ranks; give one a rank"
    assert refuse(2) == (
        "--matrix has nothing from one of 2 ranks to another; write a number above 0 off its "
        "diagonal"
    )
    assert refuse(3) is None
    assert refuse(1) == "matrix needs at least 2 ranks; found 1; start 2 or more (mpirun -n 2)"


#: A sparser one, and one of which a rank has nothing.
SEQUENCE = (WEIGHTS, ((0, 0, 0, 0, 1),) * 5, ((0, 8, 0, 0, 0), *((0,) * 5,) * 4))


def test_the_matrices_of_a_sequence_have_one_scale_and_an_iteration_each() -> None:
    pattern = form("matrix", sequence=SEQUENCE)
    assert pattern.turn is not None
    layouts = [[pattern.turn(i).layout(rank, 4, 800) for rank in (0, 3)] for i in range(4)]
    sent = [[each[BufferId.SEND].lengths.tolist() for each in of_turn] for of_turn in layouts]
    assert sent == [
        [[0, 300, 0, 100], [200, 0, 0, 0]],
        [[0] * 4] * 2,
        [[0, 800, 0, 0], [0] * 4],
        [[0, 300, 0, 100], [200, 0, 0, 0]],
    ]
    assert moves(pattern.turn(2), 1, 4) == [(RECV, 0, 0)]
    assert moves(pattern.turn(2), 3, 4) == []
    # As a whole: the peers of all, and blocks as long as the longest.
    assert moves(pattern, 0, 4) == moves(pattern.turn(0), 0, 4)
    assert pattern.layout(0, 4, 800)[BufferId.SEND].lengths.tolist() == [0, 800, 0, 100]


def test_the_matrices_of_a_sequence_may_have_a_row_each() -> None:
    pattern = form("matrix", sequence=SEQUENCE, sequence_by="row")
    assert pattern.turn is None
    rounds = pattern.rounds_run(4, False)
    assert [moves(each, 3, 4) for each in rounds] == [[(SEND, 0, 0), (RECV, 0, 0)], [], []]


def test_any_sequence_keeps_its_promise_and_needs_a_row_for_each_rank() -> None:
    engine = EngineModel(3, 2, window_send=1, window_recv=1)
    pattern = form("matrix", sequence=SEQUENCE)
    assert pattern.turn is not None
    for world in (2, 5):
        for number in range(3):
            prove(pattern.turn(number), world, 41, engine, iterations=2)
    assert pattern.refuse(6) == "--sequence has 5 rows, fewer than the 6 ranks; give one a rank"


def alone_of(pattern: Pattern) -> Pattern:
    assert pattern.loaded is not None
    assert pattern.loaded.alone is not None
    return pattern.loaded.alone


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
    pattern = form("loaded_pingpong", load_bytes=1000)
    for size in (0, 8, 4096):
        send = pattern.layout(1, 4, size)[BufferId.SEND].lengths.tolist()
        assert send == [size, 250, 250, 250, 250]
        assert alone_of(pattern).layout(1, 4, size)[BufferId.SEND].lengths.tolist() == [size]


@pytest.mark.parametrize("load", [1, 7, 100])
def test_it_keeps_its_promise_with_any_load(load: int) -> None:
    engine = EngineModel(3, 2, window_send=1, window_recv=1)
    pattern = form("loaded_pingpong", load_bytes=load)
    for world in (2, 4):
        for size in (0, 1, 17):
            prove(pattern, world, size, engine, iterations=2)
            prove(alone_of(pattern), world, size, engine, iterations=2)
