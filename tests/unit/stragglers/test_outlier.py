"""How far one rank stands out of the others: matrices with known answers, no timing."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from variants import variants_where

from tcpx_mpi.stragglers.detect import find_stragglers
from tcpx_mpi.stragglers.links import ROUND_TRIP, Link, Measured, Places
from tcpx_mpi.stragglers.outlier import QUARTERS, Outlier, outlier_of

FLAT = np.ones(QUARTERS)


def steady(*times_us: float) -> np.ndarray:
    """Ways that take as long in each quarter."""
    return 1e3 * np.array(times_us)[:, None] * FLAT


def stand(own: np.ndarray, others: np.ndarray) -> Outlier:
    found = outlier_of(own, others)
    assert found is not None
    return found


def named(found: Outlier) -> bool:
    return found.certain_ns > found.least_ns


# --- One rank ------------------------------------------------------------------------------------


def test_good_noise_and_excess_are_what_can_be_counted_by_hand() -> None:
    found = stand(steady(300, 200, 250), steady(104, 100, 108))
    assert found.good_ns == 104e3
    assert found.typical_ns == 250e3 - 104e3
    assert found.certain_ns == 200e3 - 104e3
    # Three normal values are 1.69 deviations apart; Blom's approximation is 3 % off.
    assert found.noise_ns == pytest.approx(8e3 / 1.69, rel=0.04)
    assert (found.own, found.others) == (3, 3)


def test_of_many_ways_the_noise_is_a_standard_deviation() -> None:
    random = np.random.default_rng(1)
    found = [
        stand(steady(1, 1), 1e3 * (100 + 5 * random.standard_normal((count, 1))) * FLAT).noise_ns
        for count in (3, 6, 21)
        for _ in range(400)
    ]
    for each in np.array_split(found, 3):
        assert np.mean(each) == pytest.approx(5e3, rel=0.07)


def test_the_wobble_of_a_way_from_quarter_to_quarter_is_noise() -> None:
    random = np.random.default_rng(1)
    alike = 1e3 * (100 + 5 * random.standard_normal((200, 21, QUARTERS)))
    # Of a quarter; the medians of four of them differ less.
    assert np.mean([stand(steady(1, 1), each).noise_ns for each in alike]) == pytest.approx(
        5e3, rel=0.05
    )


def test_what_all_ways_have_in_common_is_no_noise() -> None:
    gears = np.array([1.0, 3.0, 1.5, 1.0])
    found = stand(steady(200, 200, 200) * gears, steady(100, 104, 108) * gears)
    assert found.noise_ns < 10e3
    assert found.certain_ns == pytest.approx(96e3), "of the quarter where it is least"


def test_a_ranks_own_ways_are_no_noise_against_it() -> None:
    calm = stand(steady(300, 300, 300), steady(100, 104, 108))
    own = steady(300, 600, 900) * np.array([1.0, 2.0, 1.3, 1.8])
    wild = stand(own, steady(100, 104, 108))
    assert wild.noise_ns == calm.noise_ns
    assert named(wild)


def test_one_good_way_clears_a_rank() -> None:
    assert named(stand(steady(300, 300, 300), steady(100, 104, 108)))
    assert not named(stand(steady(300, 300, 104), steady(100, 104, 108)))


def test_one_good_quarter_clears_a_rank_but_not_one_way_in_it() -> None:
    own, others = steady(300, 300, 300), steady(100, 104, 108)
    own[0, 2] = 100e3
    assert named(stand(own, others)), "in each quarter its other two are slow"
    own[1, 2] = 100e3
    assert not named(stand(own, others))


@pytest.mark.parametrize(
    ("others", "share"), [(2, 0.75), (3, 0.5), (6, 0.25), (21, 1.5 / 21), (66, 0.05)]
)
def test_the_fewer_others_are_alike_the_slower_a_rank_must_be(others: int, share: float) -> None:
    alike = steady(*others * [100])
    for over, name in ((0.01, True), (-0.01, False)):
        found = stand(steady(*3 * [100 * (1 + share + over)]), alike)
        assert named(found) is name
        assert not found.by_noise


def test_one_more_slow_rank_hides_none_where_there_are_six() -> None:
    """Of the ten ways without the one, four are those of the other."""
    others = steady(*np.linspace(100, 105, 6), 300, 310, 320, 330)
    found = stand(steady(300, 305, 310, 315, 600), others)
    assert found.good_ns < 106e3
    assert named(found)


def test_few_ways_tell_nothing() -> None:
    assert outlier_of(steady(9, 9), steady(1)) is None
    assert outlier_of(steady(9), steady(1, 1, 1)) is None
    assert outlier_of(np.zeros((0, QUARTERS)), steady(1, 1, 1)) is None


# --- All ranks of a mesh -------------------------------------------------------------------------


def mesh(places: Places, times_us: dict[Link, float] | list[float]) -> dict[Link, Measured]:
    links = list(itertools.combinations(range(len(places.nodes)), 2))
    if isinstance(times_us, list):
        times_us = dict(zip(links, times_us, strict=True))
    return {
        link: Measured(1e3 * t, 1e3 * t, 1e3 * t, QUARTERS * (1e3 * t,))
        for link, t in times_us.items()
    }


FOUR = Places(["a"] * 4, ["lo"] * 4)
TWO_BY_TWO = Places(["a", "a", "b", "b"], ["eth1", "eth2", "eth1", "eth2"])
FIVE = Places(["a"] * 5, ["lo"] * 5)
EIGHT = Places(["a"] * 4 + ["b"] * 4, [f"eth{1 + r % 4}" for r in range(8)])


#: us of 01 02 03 12 13 23, as meshes of four ranks on two cores had them: rank 2 takes 200 us from
#: one message to the next. The others wait for it, and so some of its ways look half as slow, or
#: better still.
SLOWED = [
    [47, 214, 29, 216, 35, 114],
    [60, 110, 47, 218, 62, 223],
    [49, 197, 39, 98, 39, 117],
    [36, 169, 28, 166, 38, 175],
    [33, 112, 37, 112, 41, 112],
    [38, 219, 29, 110, 44, 112],
    # Here one of them would be a slow link.
    [40, 110, 41, 112, 42, 230],
]
#: And these with nothing slow. In the last ones three ranks share a core, so that their ways among
#: themselves are slow and no rank is.
QUIETS = [
    [37, 52, 42, 54, 53, 42],
    [48, 63, 64, 45, 30, 64],
    [66, 67, 30, 67, 53, 54],
    [42, 44, 50, 68, 68, 69],
    [47, 45, 50, 69, 69, 70],
]


@pytest.mark.parametrize("times", SLOWED)
@pytest.mark.parametrize("rank", range(4))
def test_a_slowed_rank_is_named_and_none_of_its_ways_whichever_it_is(
    times: list[float], rank: int
) -> None:
    seats = [rank if r == 2 else 2 if r == rank else r for r in range(4)]
    links = itertools.combinations(range(4), 2)
    measured = mesh(
        FOUR,
        {
            (min(seats[a], seats[b]), max(seats[a], seats[b])): time
            for (a, b), time in zip(links, times, strict=True)
        },
    )
    (found,) = find_stragglers(measured, FOUR, ROUND_TRIP)
    assert (found.kind, found.ranks, found.roles) == ("rank", (rank,), ROUND_TRIP)
    assert (found.links, found.of_links) == (3, 3)
    good = sorted(time for time in times if time < 70)[1]
    assert found.good_ns == 1e3 * good
    assert found.factor == pytest.approx(sorted(time for time in times if time > 70)[1] / good)


@pytest.mark.parametrize("times", QUIETS)
def test_ways_that_differ_as_they_do_on_a_core_for_two_accuse_nobody(times: list[float]) -> None:
    assert find_stragglers(mesh(FOUR, times), FOUR, ROUND_TRIP) == []


#: Ranks, and at most so many alarms by spreads of a third.
PLACES = {"four": (FOUR, 2), "two-by-two": (TWO_BY_TWO, 12), "five": (FIVE, 2), "eight": (EIGHT, 2)}


@pytest.mark.parametrize(
    ("spread", "ranks"),
    variants_where(
        lambda spread, ranks: (spread, ranks) == (0.1, "eight"),
        itertools.product((0.02, 0.1, 0.3), PLACES),
    ),
)
def test_ways_that_always_differ_in_no_order_of_ranks_hardly_ever_name_one(
    spread: float, ranks: str
) -> None:
    """By a tenth in none of these runs, by a third in at most so many of 200.

    Of two nodes with two ranks each the noise is that of two ways, which tell little.
    """
    places, most = PLACES[ranks]
    random = np.random.default_rng(1)
    alarms = 0
    for _ in range(200):
        links = {
            link: 100 * math.exp(spread * random.standard_normal())
            for link in itertools.combinations(range(len(places.nodes)), 2)
        }
        suspects = find_stragglers(mesh(places, links), places, ROUND_TRIP)
        alarms += any(each.kind in ("rank", "NIC") for each in suspects)
    assert alarms <= (most if spread > 0.1 else 0)
