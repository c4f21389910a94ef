"""Offset and drift by clocks that lie: the truth is within the bound, always."""

from __future__ import annotations

import math

import numpy as np
import pytest
from lying_clocks import LyingClock, Network, Time
from numpy.typing import NDArray

from tcpx_mpi.clock.model import Edge, Tree, better
from tcpx_mpi.clock.rounds import path, rounds_of
from tcpx_mpi.clock.trips import Knot, knot_of
from tcpx_mpi.records.clock import row_clock

DAY_NS = 86_400_000_000_000
S_NS = 1_000_000_000
TRIES = 100


@pytest.mark.parametrize("backwards", [False, True], ids=["question", "answer"])
@pytest.mark.parametrize("there_ns", [0, 100_000, 5_000_000])
def test_the_offset_is_within_its_bound_in_100_of_100_tries(there_ns: int, backwards: bool) -> None:
    rng = np.random.default_rng(there_ns)
    widths, errors = [], []
    for _ in range(TRIES):
        time = Time(int(rng.integers(0, DAY_NS)))
        one = LyingClock(time, int(rng.integers(-9 * DAY_NS, 9 * DAY_NS)), rng.uniform(-90, 90))
        other = LyingClock(time, int(rng.integers(-9 * DAY_NS, 9 * DAY_NS)), rng.uniform(-90, 90))
        network = Network(time, rng, there_ns=there_ns, backwards=backwards)
        began = time.ns
        knot = knot_of(network.trips(one, other, 32))
        # The answering clock told its time, by which the true one is found again.
        true_ns = began + round((knot.at_ns - other.at(began)) / (1 + other.ppm * 1e-6))
        errors.append(abs(knot.offset_ns - (other.at(true_ns) - one.at(true_ns))))
        widths.append(knot.bound_ns)
        assert errors[-1] <= knot.bound_ns
        assert knot.moved_ns == 0
    # The bound has the asymmetry in it, which no exchange can see, and not much more.
    assert there_ns / 2 <= min(widths)
    assert max(widths) <= there_ns / 2 + 40_000
    assert max(errors) >= 0.9 * there_ns / 2


def rows(
    clocks: list[LyingClock], network: Network, times_s: list[float]
) -> tuple[Tree, dict[int, list[Knot]]]:
    knots: dict[int, list[Knot]] = {number: [] for number in range(1, len(clocks))}
    for at_s in times_s:
        network.time.ns = max(network.time.ns, round(at_s * S_NS))
        for number, knot in network.exchange(clocks).items():
            knots[number].append(knot)
    return Tree({number: Edge(tuple(of_clock)) for number, of_clock in knots.items()}), knots


def test_a_drift_of_50_ppm_is_followed_for_60_s() -> None:
    rng, time = np.random.default_rng(1), Time()
    clocks = [LyingClock(time, 0), LyingClock(time, 3 * DAY_NS, 50.0)]
    network = Network(time, rng)
    tree, knots = rows(clocks, network, [float(at) for at in range(61)])
    truth = np.sort(rng.integers(0, 60 * S_NS, 500))
    seen = np.array([clocks[1].at(int(at)) for at in truth])
    error = np.abs(tree.to_common(1, seen) - truth)
    assert error.max() <= tree.bound_ns(1) < 40_000
    assert tree.edges[1].drift == pytest.approx(50e-6, abs=1e-6)
    assert tree.edges[1].moved_ns == 0
    # A row that knows both ends only is as good where the drift is steady;
    ends = Tree({1: Edge([knots[1][0], knots[1][-1]])})
    assert np.abs(ends.to_common(1, seen) - truth).max() <= ends.bound_ns(1)
    # what is expected of the next second holds, and without the rate it would not.
    ahead = ends.edges[1].ahead()
    later = clocks[1].at(61 * S_NS)
    told = Tree({1: ahead}).to_common(1, later)
    assert abs(told - 61 * S_NS) < tree.bound_ns(1)
    assert abs(Tree({1: Edge(ahead.knots)}).to_common(1, later) - 61 * S_NS) > 45_000


def test_a_rate_that_is_not_known_predicts_nothing() -> None:
    knots = [Knot(0, 0, 20_000), Knot(5_000_000, 30_000, 20_000)]
    assert Edge(knots).ahead().rate == 0


@pytest.mark.parametrize("by_ns", [1_000_000, -1_000_000, 40_000_000])
def test_a_step_is_told_and_the_bound_covers_it(by_ns: int) -> None:
    rng, time = np.random.default_rng(2), Time()
    stepping = LyingClock(time, DAY_NS, 20.0, steps=[(2_500_000_000, by_ns)])
    clocks = [LyingClock(time), stepping]
    tree, _ = rows(clocks, Network(time, rng), [0, 1, 2, 3, 4])
    assert tree.edges[1].moved_ns == pytest.approx(abs(by_ns), rel=0.1)
    truth = np.arange(0, 4 * S_NS, 10_000_000)
    seen = np.array([stepping.at(int(at)) for at in truth])
    error = np.abs(tree.to_common(1, seen) - truth)
    assert error.max() > 0.2 * abs(by_ns)
    assert error.max() <= tree.bound_ns(1)


def test_a_step_amid_an_exchange_is_told() -> None:
    rng, time = np.random.default_rng(3), Time()
    other = LyingClock(time, 0, steps=[(600_000, 2_000_000)])
    knot = knot_of(Network(time, rng).trips(LyingClock(time), other, 32))
    assert knot.moved_ns == pytest.approx(2_000_000, rel=0.05)
    assert knot.bound_ns >= knot.moved_ns


def test_a_slow_round_trip_is_no_step() -> None:
    rng, time = np.random.default_rng(4), Time()
    clocks = [LyingClock(time), LyingClock(time, 5, 30.0)]
    network = Network(time, rng)
    tree, knots = rows(clocks, network, [0, 1])
    network.there_ns, time.ns = 5_000_000, 2 * S_NS
    knots[1].append(network.exchange(clocks)[1])
    assert Edge(knots[1]).moved_ns == 0
    assert Edge(knots[1]).bound_ns > 2_500_000 > tree.bound_ns(1)


def test_64_clocks_are_compared_in_6_rounds_and_under_a_second() -> None:
    rng, time = np.random.default_rng(5), Time(DAY_NS)
    clocks = [
        LyingClock(time, int(rng.integers(-DAY_NS, DAY_NS)), rng.uniform(-50, 50))
        for _ in range(64)
    ]
    network = Network(time, rng)
    began = time.ns
    first = network.exchange(clocks, 100)
    assert time.ns - began < S_NS / 10, "invented time, of the 100 round trips of a first exchange"
    time.ns += S_NS
    ends = time.ns
    second = network.exchange(clocks)
    tree = Tree({number: Edge([first[number], second[number]]) for number in first})
    truth = np.linspace(began + S_NS / 10, ends, 50).astype(np.int64)
    for number, clock in enumerate(clocks):
        seen = np.array([clock.at(int(at)) for at in truth])
        common = tree.to_common(number, seen)
        assert np.abs(common - np.array([clocks[0].at(int(at)) for at in truth])).max() <= (
            tree.bound_ns(number)
        )
        assert np.abs(tree.to_local(number, common) - seen).max() <= 2
        assert len(path(number)) <= 6
    assert tree.bound_ns(63) == sum(tree.edges[each].bound_ns for each in path(63))
    assert tree.bound_between_ns(62, 63) == tree.edges[63].bound_ns


def test_the_line_of_each_clock_is_asked_once_for_what_is_left_beside_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of 512 clocks it took 5 s of each rank, at the end of each row, to ask all for each."""
    rng, time = np.random.default_rng(6), Time()
    network, clocks = Network(time, rng), [LyingClock(time, number) for number in range(32)]
    trips, knots = [], {}
    for asks, answers in (pair for pairs in rounds_of(len(clocks)) for pair in pairs):
        found = network.trips(clocks[asks], clocks[answers], 4)
        knots[answers] = [knot_of(found)]
        trips.append(np.hstack([np.full((4, 1), 0), np.full((4, 1), answers), found]))
    asked: list[Edge] = []
    offset_at = Edge.offset_at

    def counted(edge: Edge, times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        asked.append(edge)
        return offset_at(edge, times_ns)

    monkeypatch.setattr(Edge, "offset_at", counted)
    row = row_clock(knots, np.concatenate(trips), {}, {})
    assert [fit.clock for fit in row.fits] == list(range(1, 32))
    assert len(asked) == 31


@pytest.mark.parametrize("clocks", [1, 2, 3, 5, 8, 33, 64])
def test_every_clock_answers_once_in_log2_rounds(clocks: int) -> None:
    rounds = rounds_of(clocks)
    assert len(rounds) == math.ceil(math.log2(clocks))
    answering = [answers for pairs in rounds for _, answers in pairs]
    assert sorted(answering) == list(range(1, clocks))
    for pairs in rounds:
        busy = [clock for pair in pairs for clock in pair]
        assert len(busy) == len(set(busy))


def test_the_word_of_what_keeps_the_clocks_counts_where_it_is_better_and_no_lie() -> None:
    trips = Knot(0, 1_000, 20_000)
    assert better(trips, None) == (trips, 0)
    good = Knot(0, 15_000, 500, "chrony")
    assert better(trips, good) == (good, 0)
    assert better(trips, Knot(0, 15_000, 50_000, "chrony")) == (trips, 0)
    lie = Knot(0, 90_000, 500, "chrony")
    assert better(trips, lie) == (trips, 89_000 - 20_500)
