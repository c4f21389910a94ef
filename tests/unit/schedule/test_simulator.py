"""The simulator: times that can be worked out by hand, and the symmetries that patterns declare."""

from __future__ import annotations

import dataclasses

import pytest
from schedules import without_step

from tcpx_mpi import patterns
from tcpx_mpi.errors import UsageError
from tcpx_mpi.patterns.program import Form
from tcpx_mpi.schedule.engine_model import EngineModel
from tcpx_mpi.schedule.interpreter import prove
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.simulator import Costs, Prediction, predict
from tcpx_mpi.schedule.simulator.predict import MOST_CHUNKS
from tcpx_mpi.schedule.symmetry import Symmetry
from tcpx_mpi.schedule.table import Op, ScheduleError

CHUNK = 1 << 12
ENGINE = EngineModel(chunk_bytes=CHUNK)
#: 1 us from NIC to NIC, 2 ns a byte, 100 ns a chunk.
COSTS = Costs(1000.0, 2.0, 100.0)
WORLDS = (4, 5, 12)


def program(name: str, algo: str, in_place: bool = False) -> Pattern:
    return patterns.find_program(name).pattern(Form(algo, 4, in_place=in_place))


def all_patterns() -> dict[str, Pattern]:
    found = {name: patterns.load(name) for name in patterns.NAMES if name not in patterns.PROGRAMS}
    for name in patterns.PROGRAMS:
        one = patterns.find_program(name)
        for place in (False, True) if one.in_place else (False,):
            for algo in one.algos:
                found[f"{name} {algo}{' in place' * place}"] = program(name, algo, place)
    return found


ALL = all_patterns()


def once(pattern: Pattern, world: int, size: int, **more: object) -> Prediction:
    return predict(pattern, world, size, ENGINE, COSTS, **more)  # type: ignore[arg-type]


def hop(size: int) -> float:
    """A message of one chunk from one rank to another."""
    return COSTS.latency_ns + COSTS.at_nic_ns(size)


def test_a_round_trip_is_two_latencies_and_twice_the_bytes() -> None:
    assert once(patterns.load("pingpong"), 2, 1000).rank_0_ns == pytest.approx(2 * hop(1000))


def test_a_ring_of_reductions_is_as_many_hops_as_it_has_steps() -> None:
    found = once(program("all_reduce", "ring"), 4, 4 * 1000)
    assert found.max_ns == pytest.approx(6 * hop(1000))
    assert (found.steps, found.connections, found.nic_bytes) == (12, 4, 6000)


def test_chunks_of_a_chain_follow_each_other() -> None:
    found = once(program("broadcast", "ring"), 5, 8 * CHUNK)
    assert found.max_ns == pytest.approx(4 * hop(CHUNK) + 7 * COSTS.at_nic_ns(CHUNK))


def test_a_binomial_tree_takes_a_hop_a_level() -> None:
    found = once(program("broadcast", "tree"), 8, 16)
    # The root serves the largest subtree first.
    assert found.max_ns == pytest.approx(3 * hop(16))


HALF = dataclasses.replace(COSTS, half_duplex=True)


def test_one_way_at_a_time_a_ring_takes_twice_the_bytes_and_a_round_trip_as_long() -> None:
    both, one = (predict(patterns.load("ring"), 4, 64 * CHUNK, ENGINE, c, 3) for c in (COSTS, HALF))
    bytes_ns = 64 * COSTS.at_nic_ns(CHUNK)
    assert both.mean_ns == pytest.approx(bytes_ns + COSTS.latency_ns)
    assert 2 * bytes_ns <= one.mean_ns <= 2 * bytes_ns + 2 * COSTS.latency_ns
    for name in ("pair", "pingpong"):
        pattern = patterns.load(name)
        both, one = (predict(pattern, 2, 1000, ENGINE, c, 3) for c in (COSTS, HALF))
        assert one.mean_ns == pytest.approx(both.mean_ns)


def test_one_way_at_a_time_a_symmetry_holds_too() -> None:
    for name in ("all_reduce ring", "alltoall spread", "all_reduce doubling", "mesh"):
        few, many = (
            predict(ALL[name], 8, 8 * 3 * CHUNK, ENGINE, HALF, 3, symmetric=each)
            for each in (True, False)
        )
        assert few.simulated == 1
        assert few.mean_ns == pytest.approx(many.mean_ns, rel=1e-6)


def test_what_is_reduced_takes_longer_to_come_in() -> None:
    reducing = dataclasses.replace(COSTS, ns_a_reduced_byte=3.0)
    found = predict(program("all_reduce", "ring"), 4, 4 * 1000, ENGINE, reducing)
    # Of 6 hops 3 reduce.
    assert found.max_ns == pytest.approx(6 * hop(1000) + 3 * 3000)
    ring = predict(patterns.load("ring"), 4, 1000, ENGINE, reducing)
    assert ring.max_ns == pytest.approx(hop(1000))


def test_ranks_that_share_a_nic_take_turns() -> None:
    alone, shared = (
        once(patterns.load("mesh"), 8, 8 * CHUNK, ranks_per_nic=ranks) for ranks in (1, 4)
    )
    of_nic = [found.max_ns - COSTS.latency_ns for found in (alone, shared)]
    assert of_nic[1] >= 4 * of_nic[0] * 0.99
    assert shared.nic_bytes == 4 * alone.nic_bytes


def test_iterations_of_one_way_overlap_and_those_of_a_ring_do_not() -> None:
    stream = once(patterns.load("pair"), 2, 1000, iterations=1000)
    assert stream.mean_ns == pytest.approx(COSTS.at_nic_ns(1000), rel=0.01)
    assert once(patterns.load("ring"), 2, 1000, iterations=1000).mean_ns == pytest.approx(hop(1000))


def test_a_window_of_one_waits_for_each_chunk_to_leave() -> None:
    """A relay with one receive at a time cannot be faster than with many."""
    narrow = dataclasses.replace(ENGINE, window_send=1, window_recv=1)
    pattern = program("all_gather", "ring")
    wide = once(pattern, 4, 64 * CHUNK).max_ns
    assert predict(pattern, 4, 64 * CHUNK, narrow, COSTS).max_ns >= wide


@pytest.mark.parametrize("name", [name for name in ALL if name != "pairs"])
def test_a_nic_sends_what_the_interpreter_counts(name: str) -> None:
    world, size = 4, 4 * 96
    outcome = prove(ALL[name], world, size, ENGINE)
    sent = [
        sum(number for (source, _), number in outcome.link_bytes.items() if source == rank)
        for rank in range(world)
    ]
    assert once(ALL[name], world, size, symmetric=False).nic_bytes == max(sent)


@pytest.mark.parametrize("name", ALL)
def test_a_declared_symmetry_gives_the_times_of_all_ranks_simulated(name: str) -> None:
    pattern, tried = ALL[name], 0
    for world in WORLDS:
        if pattern.refuse(world) is not None:
            continue
        symmetry = pattern.symmetry(world)
        for ranks in (1, 2, 4):
            if symmetry is None or not symmetry.folds(world, ranks):
                continue
            # In parts there are more chunks, each of which costs something by itself.
            costs = COSTS
            if symmetry is Symmetry.PARTED_SHIFT:
                costs = dataclasses.replace(COSTS, overhead_ns=0.0)
            for size in (0, world * 3 * CHUNK):
                few, all_ranks = (
                    predict(pattern, world, size, ENGINE, costs, 3, ranks, symmetric=folded)
                    for folded in (True, False)
                )
                assert few.simulated == ranks
                assert few.mean_ns == pytest.approx(all_ranks.mean_ns, rel=1e-6)
                assert few.max_ns == pytest.approx(all_ranks.max_ns, rel=1e-6)
                assert few.nic_bytes == all_ranks.nic_bytes
                tried += 1
    assert tried > 0 or not any(map(pattern.symmetry, WORLDS))


def test_what_parts_cost_is_at_most_their_overhead() -> None:
    for name, algo in (("all_gather", "doubling"), ("reduce_scatter", "halving")):
        pattern, world = program(name, algo), 12
        few, many = (once(pattern, world, world * 16, symmetric=each) for each in (True, False))
        assert 0 <= many.max_ns - few.max_ns <= 2 * 4 * COSTS.overhead_ns


def test_a_wrong_symmetry_is_seen() -> None:
    for wrong in (Symmetry.SHIFT, Symmetry.XOR):
        lying = dataclasses.replace(
            program("broadcast", "tree"), symmetry=lambda world, wrong=wrong: wrong
        )
        with pytest.raises(ScheduleError, match="does not receive"):
            once(lying, 8, 16)


@pytest.mark.parametrize(
    "pattern",
    [
        patterns.load("ring"), patterns.load("mesh"), program("all_reduce", "doubling"),
        program("all_gather", "doubling"), program("reduce_scatter", "halving"),
    ],
    ids=lambda pattern: pattern.name,
)  # fmt: skip
def test_many_ranks_are_predicted_by_one(pattern: Pattern) -> None:
    found = once(pattern, 4096, 4096 * 16)
    assert found.simulated == 1
    assert found.max_ns >= hop(16)


def test_more_than_can_be_simulated_is_refused_before_it_is_built() -> None:
    many = patterns.load("permutation")
    with pytest.raises(UsageError, match=rf"can be simulated.*{MOST_CHUNKS}|{MOST_CHUNKS}"):
        predict(many, 64, 1 << 40, EngineModel(chunk_bytes=1 << 20), COSTS)


def test_a_schedule_that_waits_for_ever_is_an_error() -> None:
    broken = without_step(program("all_gather", "ring"), 1, Op.SEND)
    with pytest.raises(ScheduleError):
        once(broken, 4, 4 * 64, symmetric=False)
