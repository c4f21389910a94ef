"""Tokens to experts and back: shapes, who gets how many, schedules, and what they promise."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
import pytest

from tcpx_mpi import patterns
from tcpx_mpi.errors import UsageError
from tcpx_mpi.patterns.moe_shape import PRESETS, SKEWS, refuse_ranks, shape_of
from tcpx_mpi.patterns.program import Form
from tcpx_mpi.patterns.routing import Routing, counts_of, shares_of, travels
from tcpx_mpi.schedule.engine_model import EngineModel
from tcpx_mpi.schedule.interpreter import prove
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.table import BufferId, Column

#: Experts that every number of ranks up to 10 divides.
EXPERTS = 2520
TURNS = 16
#: Of every class a world of each kind: even, odd, a power of 2.
QUICK = (2, 3, 8)
EVERY = (*range(2, 18), 32, 64)
#: 1..17, 32 and 64 ranks divide no small number of experts all: each world has its own.
_OF_MODEL = "batch={tokens},hidden=1,experts={experts},topk={topk},dispatch=1,combine=2"


def routing(skew: str, world: int = 4, tokens: int = 1000, **more: int) -> Routing:
    given = {"experts": EXPERTS, "topk": 3, "seed": 7, **more}
    return Routing(tokens, skew=skew, world=world, **given)


def moe(skew: str, world: int, tokens: int = 5, topk: int = 3) -> Pattern:
    text = _OF_MODEL.format(tokens=tokens, experts=4 * world, topk=topk)
    return patterns.find_program("moe").pattern(Form(moe=text, skew=skew, turns=TURNS, seed=7))


def turn(pattern: Pattern, number: int) -> Pattern:
    assert pattern.turn is not None
    return pattern.turn(number)


# --- Shapes --------------------------------------------------------------------------------------


def test_a_shape_is_a_model_or_its_small_form_or_numbers_over_it() -> None:
    assert shape_of("mixtral") == PRESETS["mixtral"]
    small = shape_of("deepseek-v3-small,topk=4")
    assert (small.batch, small.hidden, small.experts, small.topk) == (128, 7168, 256, 4)
    assert (small.token_bytes, small.answer_bytes) == (7168, 2 * 7168)
    assert shape_of("batch=3,hidden=5").experts == PRESETS["deepseek-v3"].experts


def test_the_small_form_of_every_model_fits_four_ranks_and_24_gib_with_any_skew() -> None:
    for name in PRESETS:
        shape = shape_of(f"{name}-small")
        # All tokens of all ranks to one, and back; twice, for a batch has two slots or more.
        slot = 4 * 4 * shape.batch * (shape.token_bytes + shape.answer_bytes)
        assert 2 * 2 * slot < 24 << 30


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpt5", "--moe (gpt5) is unknown: use one of deepseek-v3, mixtral"),
        ("mixtrall", "is unknown (did you mean mixtral?): use one of"),
        ("mixtral,heads=3", "--moe (heads=3): heads is none of batch, hidden, experts"),
        ("mixtral,topk", "--moe: topk () cannot be; use a number from 1 to 1024"),
        ("batch=99999999999999999999", "batch (99999999999999999999) cannot be; use a number from"),
        ("batch=1e3", "--moe: batch (1e3) cannot be"),
        ("dispatch=3", "--moe: dispatch (3) cannot be; use one of 1, 2, 4"),
        ("experts=4,topk=5", "topk (5) is more than the experts there are (4)"),
    ],
)
def test_a_shape_that_cannot_be_is_one_line(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        shape_of(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_ranks_that_do_not_divide_the_experts_are_told_who_do() -> None:
    assert refuse_ranks(PRESETS["mixtral"], 4) is None
    assert refuse_ranks(PRESETS["mixtral"], 3) == (
        "--moe: 3 ranks do not divide 8 experts; start 2 or 4 ranks, or give experts=N, a multiple "
        "of the ranks"
    )


# --- Who gets how many ---------------------------------------------------------------------------


@pytest.mark.parametrize("skew", SKEWS)
@pytest.mark.parametrize("topk", [1, 3, 8])
def test_shares_are_topk_together_and_none_is_above_one(skew: str, topk: int) -> None:
    for number in range(TURNS):
        weights = routing(skew, topk=topk, experts=24)._weights(number)
        shares = shares_of(weights, topk)
        assert sum(shares) == topk << 32
        assert all(0 <= share <= 1 << 32 for share in shares)
        assert all(share == 0 for share, weight in zip(shares, weights, strict=True) if not weight)


@pytest.mark.parametrize("skew", SKEWS)
def test_a_token_goes_to_one_rank_at_least_and_to_topk_at_most(skew: str) -> None:
    found = counts_of(routing(skew, world=8), TURNS)
    of_source = found.sum(axis=2)
    tokens = np.full_like(of_source, 1000) if skew != "ragged" else of_source
    assert (of_source >= tokens * (skew != "ragged")).all()
    assert (of_source <= 3 * 1000).all()
    assert (found <= 1000).all()


def drawn_one_by_one(of: Routing, number: int, source: int) -> list[int]:
    """The same matrix row, by what the module says of a single token."""
    edges = np.cumsum([0, *of.shares(number)]).tolist()
    counts = [0] * of.world
    for point in of._points(number, source).tolist():
        places = [point + (k << 32) for k in range(of.topk + 1)]
        for rank in range(of.world):
            counts[rank] += any(edges[rank] <= place < edges[rank + 1] for place in places)
    return counts


@pytest.mark.parametrize("skew", SKEWS)
def test_counts_are_those_of_tokens_drawn_one_by_one(skew: str) -> None:
    of = routing(skew, world=6, tokens=50)
    for number in range(3):
        found = of.counts(number)
        for source in range(6):
            assert found[source].tolist() == drawn_one_by_one(of, number, source)


def column_shares(skew: str, number: int, world: int = 4) -> list[float]:
    found = routing(skew, world=world, tokens=4000).counts(number).sum(axis=0)
    shares: list[float] = (found / found.sum()).tolist()
    return shares


def test_each_class_is_skewed_as_its_name_says() -> None:
    assert column_shares("balanced", 0) == pytest.approx([0.25] * 4, abs=0.01)
    hot = [max(column_shares("hot-rank", number)) for number in range(4)]
    assert hot == [1.0] * 4
    assert len({np.argmax(column_shares("hot-rank", number)) for number in range(4)}) == 1
    assert [np.argmax(column_shares("rotating", number)) for number in range(5)] == [0, 1, 2, 3, 0]
    bursts = [max(column_shares("bursts", number)) == 1.0 for number in range(64)]
    assert 2 <= sum(bursts) <= 16
    idle = [sum(share == 0 for share in column_shares("idle", number, 8)) for number in range(8)]
    assert idle == [4] * 8
    assert len({tuple(travels(routing("idle", 8), number)) for number in range(8)}) > 2
    ragged = [tuple(routing("ragged").counts(number).sum(axis=1)) for number in range(4)]
    assert len({len(set(row)) for row in ragged}) == 1


def test_an_expert_of_every_token_is_hot_and_popular_ones_are_so_in_every_iteration() -> None:
    of = routing("hot-expert", experts=8, world=8, topk=2)
    columns = [of.counts(number).sum(axis=0) for number in range(4)]
    assert all(sorted(column.tolist())[-1] == 8 * 1000 for column in columns)
    zipf = [np.argsort(column_shares("zipf", number)).tolist() for number in range(4)]
    assert len({each[-1] for each in zipf}) == 1


def test_another_iteration_or_seed_has_another_matrix_and_the_same_one_the_same_for_ever() -> None:
    found = [routing("balanced").counts(number).tolist() for number in range(8)]
    assert len({str(each) for each in found}) == 8
    assert routing("balanced", seed=8).counts(0).tolist() != found[0]
    assert routing("zipf", tokens=100, experts=16).counts(3).tolist() == KNOWN


#: No machine, and no version of numpy, draws others.
KNOWN = [[82, 59, 40, 100], [91, 66, 34, 100], [87, 66, 33, 100], [83, 60, 40, 100]]


# --- Schedules -----------------------------------------------------------------------------------


def test_no_answer_leaves_before_all_tokens_of_a_rank_are_there() -> None:
    one = turn(moe("balanced", 5), 0)
    table = one.schedule(1, 5).table
    arrivals = [step for step, row in enumerate(table) if 0 <= row[Column.DST_BLOCK] < 5]

    @functools.cache
    def before(step: int) -> frozenset[int]:
        preds = [int(p) for p in table[step][[Column.PRED0, Column.PRED1]] if p >= 0]
        return frozenset(preds).union(*map(before, preds))

    answers = [step for step, row in enumerate(table) if row[Column.SRC_BLOCK] in range(5, 10)]
    assert len(arrivals) == len(answers) == 5
    for step in answers:
        assert before(step) >= set(arrivals)


def test_nothing_is_sent_to_ranks_whose_experts_no_token_can_choose() -> None:
    pattern = moe("rotating", 4)
    for number in range(4):
        schedules = [turn(pattern, number).schedule(rank, 4) for rank in range(4)]
        sent = [{peer for peer, _ in schedule.peers_sent} for schedule in schedules]
        others = {0, 1, 2, 3} - {number}
        assert sent == [others if rank == number else {number} for rank in range(4)]
    whole = {peer for peer, _ in pattern.schedule(0, 4).peers_sent}
    assert whole == {1, 2, 3}


def test_the_size_is_whole_tokens_and_the_whole_has_room_for_every_iteration() -> None:
    program = patterns.find_program("moe")
    form = Form(moe="hidden=10,dispatch=2,experts=8,topk=2", skew="bursts", turns=TURNS)
    division = program.division(1019, 1, 4, form)
    assert (division.size_bytes, division.count) == (1000, 50)
    pattern = program.pattern(form)
    for rank in range(4):
        whole = pattern.layout(rank, 4, 1000)
        for number in range(TURNS):
            of_turn = turn(pattern, number).layout(rank, 4, 1000)
            for buffer in (BufferId.SEND, BufferId.RECV):
                assert (of_turn[buffer].lengths <= whole[buffer].lengths).all()


def test_what_one_rank_sends_in_an_iteration_is_what_the_other_receives() -> None:
    pattern = turn(moe("zipf", 6, tokens=40), 2)
    sends = [pattern.layout(rank, 6, 40)[BufferId.SEND].lengths for rank in range(6)]
    receives = [pattern.layout(rank, 6, 40)[BufferId.RECV].lengths for rank in range(6)]
    for a in range(6):
        for b in range(6):
            assert sends[a][b] == receives[b][a]
            assert sends[a][6 + b] == receives[b][6 + a] == 2 * sends[b][a]


def test_more_matrices_than_a_gigabyte_holds_are_refused_with_the_figure() -> None:
    form = Form(moe="experts=4096,topk=1", turns=2000)
    refusal = patterns.find_program("moe").pattern(form).refuse(4096)
    assert refusal == (
        "-n/--iters makes 2000 matrices of 4096 ranks, 250 GiB ahead of a row, more than 1 GiB: "
        "use a smaller -n"
    )


# --- Proofs --------------------------------------------------------------------------------------


def prove_some(skew: str, worlds: Sequence[int], numbers: Sequence[int]) -> None:
    engine = EngineModel(chunk_bytes=2, channels=2, window_send=2, window_recv=2, order=3)
    for world in worlds:
        pattern = moe(skew, world)
        for number in numbers:
            prove(turn(pattern, number), world, 5, engine, iterations=2 if world < 8 else 1)


@pytest.mark.parametrize("skew", SKEWS)
def test_dispatch_and_combine_keep_their_promise_with_any_skew(skew: str) -> None:
    prove_some(skew, QUICK, (0, 5))


@pytest.mark.variant
@pytest.mark.timeout(600)
@pytest.mark.parametrize("skew", SKEWS)
def test_dispatch_and_combine_keep_their_promise_on_1_to_17_32_and_64_ranks(skew: str) -> None:
    assert moe(skew, 1).refuse(1) is not None
    prove_some(skew, EVERY, range(2))
