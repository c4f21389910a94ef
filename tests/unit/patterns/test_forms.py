"""Patterns of which a run chooses one form: by a root, by a seed, by a matrix."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tcpx_mpi import patterns
from tcpx_mpi.patterns import repeated
from tcpx_mpi.patterns.permutation import sources, targets
from tcpx_mpi.patterns.program import Form
from tcpx_mpi.schedule.interpreter import EngineModel, prove
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.table import BufferId, Column, Op

FANS = ["fan_in", "fan_out"]
SEND, RECV = Op.SEND, Op.RECV


def form(name: str, **of_form: Any) -> Pattern:
    return patterns.find_program(name).pattern(Form(**of_form))


def moves(pattern: Pattern, rank: int, world: int) -> list[tuple[int, int, int]]:
    """(operation, peer, block) of every step."""
    return [
        (row[Column.OP], row[Column.PEER], max(row[Column.SRC_BLOCK], row[Column.DST_BLOCK]))
        for row in pattern.schedule(rank, world).table.tolist()
    ]


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
def test_a_fan_of_any_root_keeps_its_promise(name: str) -> None:
    engine = EngineModel(3, 2, window_send=1, window_recv=1)
    for world in range(2, 6):
        for root in range(world):
            for size in (0, 1, world, 7 * world + 5):
                pattern = form(name, root=root)
                prove(pattern, world, size, engine, iterations=2)
                prove(repeated(pattern, 2), world, size, engine, iterations=2)


@pytest.mark.parametrize("name", FANS)
def test_a_root_that_no_rank_has_is_refused(name: str) -> None:
    pattern = form(name, root=4)
    assert pattern.refuse(4) == "-r/--root (4) is none of 4 ranks; use 0 to 3"
    assert pattern.refuse(5) is None


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
