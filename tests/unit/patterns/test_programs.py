"""Every pattern keeps its promise, whatever its form, and every broken program is caught."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
from variants import variant, variants_where

from tcpx_mpi import patterns
from tcpx_mpi.patterns.program import Form, Program
from tcpx_mpi.schedule.engine_model import EngineModel
from tcpx_mpi.schedule.interpreter import prove
from tcpx_mpi.schedule.interpreter.run import Outcome
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.promise import Scaled
from tcpx_mpi.schedule.simulator import Costs, predict
from tcpx_mpi.schedule.table import NONE, RECEIVE_OPS, BufferId, Column, Op, Schedule, ScheduleError

ALL = [patterns.find_program(name) for name in patterns.NAMES]
VARIANTS = [(program, algo) for program in ALL for algo in program.algos]
IDS = [f"{program.name}-{algo}".rstrip("-") for program, algo in VARIANTS]
every_algorithm = pytest.mark.parametrize(("program", "algo"), VARIANTS, ids=IDS)
TYPED = [(program, algo) for program, algo in VARIANTS if program.typed]
every_typed = pytest.mark.parametrize(
    ("program", "algo"), TYPED, ids=[f"{program.name}-{algo}" for program, algo in TYPED]
)
ELEMENT = 4


def forms(program: Program, algo: str, world: int) -> Iterator[Form]:
    """Every form of an algorithm: each root that differs, in place or not, scaled or not."""
    has_root = program.rooted or "root" in program.options
    for root in {0, world // 2, world - 1} if has_root else {0}:
        for in_place in (False, True) if program.in_place else (False,):
            for scaled in Scaled if program.reduces else (Scaled.NO,):
                yield Form(algo, ELEMENT, root, in_place, scaled)


def runs_with(program: Program, world: int) -> bool:
    """Whether it has rows with so many ranks; programs are proved for one rank, too."""
    refused = world > 1 or not program.typed
    return not program.skips(world) and not (refused and program.first().refuse(world))


def proved(
    program: Program, form: Form, world: int, size: int, engine: EngineModel, iterations: int = 1
) -> Outcome:
    shown = program.division(size, form.element_bytes, world, form).size_bytes
    # What a load moves whatever the size is made a few chunks.
    asked = dataclasses.replace(form, asked_bytes=size, load_bytes=70)
    pattern = program.pattern(asked)
    for one in pattern.rounds_run(world, everybody=True):
        outcome = prove(one, world, shown, engine, iterations)
    return outcome


@every_algorithm
def test_every_form_keeps_its_promise_in_worlds_up_to_eight(program: Program, algo: str) -> None:
    for world in range(1, 9):
        if not runs_with(program, world):
            continue
        for number, form in enumerate(forms(program, algo, world)):
            engines = (EngineModel(16, 2, order=number), EngineModel(8, 1, 1, 1))
            # An odd number of elements, so that blocks are ragged, and 2 or 3 chunks a block.
            proved(program, form, world, 36 * world + ELEMENT, engines[number % 2])


@pytest.mark.parametrize(
    "worlds",
    [
        pytest.param((9, 11, 12, 15, 16, 17, 32), id="to 32"),
        variant((10, 13, 14, 64, 100), id="to 100"),
    ],
)
@pytest.mark.parametrize(
    ("program", "algo"),
    variants_where(
        lambda program, algo: f"{program.name}-{algo}" in ("pairs-", "all_reduce-doubling"),
        VARIANTS,
    ),
    ids=IDS,
)
def test_it_keeps_its_promise_in_worlds_up_to_a_hundred(
    program: Program, algo: str, worlds: tuple[int, ...]
) -> None:
    for world in worlds:
        if not runs_with(program, world) or (world > 64 and program.first().rounds is not None):
            continue
        form = Form(algo, ELEMENT, root=world // 3, in_place=program.in_place and world % 2 == 0)
        engine = EngineModel(16 if world < 32 else 256)
        proved(program, form, world, 16 * world + ELEMENT, engine)


@every_algorithm
@pytest.mark.parametrize("size", [0, variant(1), 4, 15, variant(60)])
def test_counts_of_zero_and_fewer_elements_than_ranks_are_well(
    program: Program, algo: str, size: int
) -> None:
    for world in (2, 3, 4, 7):
        if runs_with(program, world):
            for form in forms(program, algo, world):
                proved(program, form, world, size, EngineModel(8), 2)


@every_typed
@pytest.mark.parametrize("element", [1, 2, 8])
def test_elements_of_every_width_are_whole(program: Program, algo: str, element: int) -> None:
    for world in (4, 5) if not program.skips(5) else (4,):
        form = Form(algo, element, in_place=program.in_place, scaled=Scaled.AFTER)
        if not program.reduces:
            form = dataclasses.replace(form, scaled=Scaled.NO)
        proved(program, form, world, 16 * world + 3 * element, EngineModel(16))


@every_algorithm
def test_without_rendezvous_windows_of_one_and_any_order_are_well(
    program: Program, algo: str
) -> None:
    world = 4 if program.skips(6) else 6
    for seed in range(4):
        engine = EngineModel(4, 3, 1, 1, rendezvous=seed % 2 == 0, order=seed)
        proved(program, Form(algo, ELEMENT, root=1), world, 32 * world, engine, 2)


# --- What is promised is what nccl-tests measures ------------------------------------------------


def most_sent(outcome: Outcome, world: int) -> int:
    sent = [0] * world
    for (source, _), count in outcome.link_bytes.items():
        sent[source] += count
    return max(sent)


@pytest.mark.parametrize("world", [2, 3, 4, 8])
@pytest.mark.parametrize(
    "name", ["all_reduce", "all_gather", "reduce_scatter", "alltoall", "sendrecv"]
)
def test_a_rank_sends_the_bytes_that_the_bus_bandwidth_counts(name: str, world: int) -> None:
    program = patterns.find_program(name)
    size = 48 * world
    outcome = proved(program, Form(program.algos[0], ELEMENT), world, size, EngineModel(16))
    factor = program.pattern(Form(program.algos[0])).busbw_factor(world)
    assert most_sent(outcome, world) == factor * size


@pytest.mark.parametrize("world", [2, 3, 4, 5, 8, 9])
def test_logarithmic_algorithms_take_logarithmically_many_messages(world: int) -> None:
    for program, algo in VARIANTS:
        if algo in ("doubling", "halving", "tree") and program.cost is not None:
            steps, _ = program.cost(algo, world, 16 * world)
            assert steps <= 2 + (world - 1).bit_length()


@pytest.mark.parametrize("world", [2, 3, 4, 5, 6, 7, 8, 12])
def test_the_cost_of_doubling_is_the_longest_way_through_its_schedule(world: int) -> None:
    program = patterns.find_program("all_reduce")
    assert program.cost is not None
    steps, sent = program.cost("doubling", world, 1)
    engine = EngineModel(1 << 20)
    pattern = program.pattern(Form("doubling", ELEMENT))
    only_latency = predict(pattern, world, ELEMENT, engine, Costs(1.0, 0.0))
    assert steps == sent
    assert 0 <= steps - only_latency.by_average(3) <= (1 if world & (world - 1) else 0)
    ring, _ = program.cost("ring", world, 1)
    assert world == 2 or steps < ring  # at least of small messages it is the faster one


@pytest.mark.parametrize(
    ("name", "size", "element", "world", "shown"),
    [
        # As the source of nccl-tests divides: blocks of whole 16 bytes for each rank.
        ("all_reduce", 1001, 4, 4, (1000, 250)),
        ("broadcast", 1001, 2, 4, (1000, 500)),
        ("sendrecv", 7, 8, 4, (0, 0)),
        ("all_gather", 1000, 4, 4, (960, 60)),
        ("hypercube", 1000, 4, 4, (960, 60)),
        ("reduce_scatter", 1000, 8, 3, (960, 40)),
        ("alltoall", 100, 1, 3, (96, 32)),
        ("gather", 63, 4, 4, (0, 0)),
        ("scatter", 64, 4, 4, (64, 4)),
        # By distance: 3072 of each rank, in 0, 1/6, 2/6 and 3/6.
        ("alltoallv", 3075, 4, 4, (512 + 1024 + 1536, 192)),
        ("alltoallv", 1000, 4, 4, (160 + 320 + 480, 60)),
    ],
)
def test_sizes_and_counts_are_divided_as_in_nccl_tests(
    name: str, size: int, element: int, world: int, shown: tuple[int, int]
) -> None:
    program = patterns.find_program(name)
    division = program.division(size, element, world, Form(program.algos[0], element))
    assert (division.size_bytes, division.count) == shown


def test_a_matrix_says_who_sends_how_much_and_no_message_is_sent_of_nothing() -> None:
    program = patterns.find_program("alltoallv")
    matrix = ((0, 32, 0), (16, 16, 48), (64, 0, 0))
    form = Form("spread", ELEMENT, matrix=matrix)
    assert program.division(1 << 20, 4, 3, form).size_bytes == 80
    assert program.division(1 << 20, 4, 3, form).count == 0
    outcome = proved(program, form, 3, 80, EngineModel(16))
    assert outcome.link_bytes == {(0, 1): 32, (1, 0): 16, (1, 2): 48, (2, 0): 64}


def test_a_hypercube_is_skipped_in_the_words_of_nccl_tests() -> None:
    program = patterns.find_program("hypercube")
    assert program.skips(6) == "nRanks 6 is not a power of 2, skipping"
    assert [world for world in range(1, 17) if not program.skips(world)] == [1, 2, 4, 8, 16]


# --- What is broken is found ---------------------------------------------------------------------


def with_row(pattern: Pattern, rank: int, step: int, cells: dict[Column, int]) -> Pattern:
    """The pattern with cells of one step of one rank changed."""

    def schedule(of: int, world: int) -> Schedule:
        good = pattern.schedule(of, world)
        if of != rank:
            return good
        table = good.table.copy()
        for column, value in cells.items():
            table[step, column] = value
        return Schedule(table)

    return dataclasses.replace(pattern, schedule=schedule)


def broken(pattern: Pattern, world: int, rank: int) -> Iterator[tuple[str, Pattern]]:
    """Every way to break one step of a rank: a dependency, a block, an operand, the operation."""
    schedule = pattern.schedule(rank, world)
    for step, row in enumerate(schedule.table.tolist()):
        name = schedule.describe(step)

        def change(
            what: str, step: int = step, name: str = name, **cells: int
        ) -> tuple[str, Pattern]:
            named = {Column[column.upper()]: value for column, value in cells.items()}
            return f"{what} of {name}", with_row(pattern, rank, step, named)

        if row[Column.PRED1] != NONE:
            yield change("second dependency", pred1=NONE, wait1=NONE)
            second = {"pred0": row[Column.PRED1], "wait0": row[Column.WAIT1]}
            yield change("first dependency", pred1=NONE, wait1=NONE, **second)
        elif row[Column.PRED0] != NONE:
            yield change("dependency", pred0=NONE, wait0=NONE)
        layout = pattern.layout(rank, world, 64 * world)
        for end in ("src", "dst"):
            buffer, block = (row[Column[f"{end}_{part}".upper()]] for part in ("buffer", "block"))
            if buffer == NONE:
                continue
            blocks = layout[BufferId(buffer)].blocks
            if blocks > row[Column.BLOCKS]:
                other = (block + 1) % (blocks - row[Column.BLOCKS] + 1)
                if other != block:
                    yield change(f"{end}_block", **{f"{end}_block": other})
        if row[Column.OP] == Op.RECV_REDUCE:
            cells = {"op": Op.RECV, "src_buffer": NONE, "src_block": NONE}
            yield change("operand", **cells)
        if row[Column.OP] == Op.SCALE:
            yield change("scaling", op=Op.COPY)
        if row[Column.OP] in (Op.SEND, *RECEIVE_OPS) and world > 2:
            peer = next(p for p in range(world) if p not in (rank, row[Column.PEER]))
            yield change("peer", peer=peer)


@pytest.mark.parametrize(
    ("program", "algo"),
    variants_where(
        lambda program, algo: (
            f"{program.name}-{algo}"
            not in ("reduce_scatter-ring", "broadcast-tree", "alltoall-pairwise", "gather-direct")
        ),
        TYPED,
    ),
    ids=[f"{program.name}-{algo}" for program, algo in TYPED],
)
def test_whatever_is_broken_in_a_schedule_is_found_by_the_proof(
    program: Program, algo: str
) -> None:
    world = 4
    unseen = []
    tried = 0
    for form in forms(program, algo, world):
        pattern = program.pattern(form)
        for rank in {1, form.root}:
            for what, bad in broken(pattern, world, rank):
                # What paces messages alone may be left out without a wrong byte.
                if algo == "pairwise" and "dependency" in what:
                    continue
                tried += 1
                try:
                    prove(bad, world, 64 * world, EngineModel(16, order=1))
                except ScheduleError:
                    continue
                unseen.append(f"{form}: rank {rank}: {what}")
    assert tried >= 10
    assert not unseen, "\n".join(unseen)


def test_a_wrong_result_is_named_by_rank_byte_and_the_operand_that_it_lacks() -> None:
    program = patterns.find_program("all_reduce")
    pattern = program.pattern(Form("ring", ELEMENT))
    reduce = int(np.flatnonzero(pattern.schedule(1, 4).column(Column.OP) == Op.RECV_REDUCE)[0])
    cells = {Column.OP: Op.RECV, Column.SRC_BUFFER: NONE, Column.SRC_BLOCK: NONE}
    with pytest.raises(
        ScheduleError,
        match=r"all_reduce: rank 0, iteration 0: RECV byte 0 must be the reduction of 4 origins, "
        r"found the same without byte 0 of rank 1 in iteration 0",
    ):
        prove(with_row(pattern, 1, reduce, cells), 4, 64, EngineModel(16))
