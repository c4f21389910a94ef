"""Who is slow: named rightly where something is, and nobody where there is only noise."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from variants import variant

from tcpx_mpi.patterns.pairs import encounter, sample, sender_of
from tcpx_mpi.stragglers.detect import find_stragglers
from tcpx_mpi.stragglers.links import (
    ONE_DIRECTION,
    ROUND_TRIP,
    Link,
    Measured,
    Places,
    _noise_within,
    class_of,
)

NOISE = 0.02


def measured(
    places: Places, slow: dict[Link, float] | None = None, seed: int = 1, noise: float = NOISE
) -> dict[Link, Measured]:
    """100 us within a node and 300 us between nodes, log-normal, times what is slow."""
    random = np.random.default_rng(seed)
    found = {}
    for link in itertools.permutations(range(len(places.nodes)), 2):
        base = (300e3 if places.apart(link) else 100e3) * (slow or {}).get(link, 1.0)
        first, second = base * np.exp(noise * random.standard_normal(2))
        found[link] = Measured((first + second) / 2, first, second)
    return found


ONE_NODE = Places(["a"] * 8, ["eth1"] * 8)
TWO_NODES = Places(["a", "a", "b", "b"], ["eth1", "eth2", "eth1", "eth2"])
LARGER = Places(["a"] * 4 + ["b"] * 4, [f"eth{1 + r % 4}" for r in range(8)])


def ways_of(rank: int, world: int, role: str) -> list[Link]:
    others = [other for other in range(world) if other != rank]
    return [(rank, other) if role == "sending" else (other, rank) for other in others]


@pytest.mark.parametrize(
    "places", [ONE_NODE, TWO_NODES, variant(LARGER)], ids=["one", "two", "larger"]
)
def test_nobody_is_named_where_nothing_is_slow(places: Places) -> None:
    alarms = [seed for seed in range(300) if find_stragglers(measured(places, seed=seed), places)]
    assert not alarms


@pytest.mark.parametrize("places", [ONE_NODE, TWO_NODES, LARGER], ids=["one", "two", "larger"])
@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize("role", ["sending", "receiving"])
def test_a_slow_rank_is_named_with_its_role_and_nobody_else(
    places: Places, rank: int, role: str
) -> None:
    slow = dict.fromkeys(ways_of(rank, len(places.nodes), role), 2.0)
    for seed in range(50):
        (found,) = find_stragglers(measured(places, slow, seed), places)
        assert (found.kind, found.ranks, found.roles) == ("rank", (rank,), (role,))
        assert found.factor == pytest.approx(2.0, rel=0.2)


def test_a_rank_slow_towards_other_nodes_only_has_a_slow_nic() -> None:
    """As a limited NIC does: what its node has to itself does not cross it."""
    for places in (TWO_NODES, LARGER):
        links = ways_of(1, len(places.nodes), "sending")
        slow = {link: 8.0 for link in links if places.apart(link)}
        for seed in range(50):
            (found,) = find_stragglers(measured(places, slow, seed), places)
            assert (found.kind, found.ranks, found.roles) == ("NIC", (1,), ("sending",))


def test_one_slow_way_is_no_rank() -> None:
    for places in (ONE_NODE, LARGER):
        for seed in range(50):
            (found,) = find_stragglers(measured(places, {(2, 5): 3.0}, seed), places)
            assert (found.kind, found.ranks) == ("link", (2, 5))


def test_a_way_slower_than_its_slow_rank_is_named_beside_it() -> None:
    slow = dict.fromkeys(ways_of(2, 8, "sending"), 2.0) | {(2, 5): 6.0}
    found = find_stragglers(measured(ONE_NODE, slow), ONE_NODE)
    assert {(each.kind, each.ranks) for each in found} == {("rank", (2,)), ("link", (2, 5))}


def test_two_links_that_a_slow_rank_serves_at_different_rates_are_not_named_beside_it() -> None:
    """2 ranks ask 2 others, and one of those divides what it has 2 to 1."""
    times = {(0, 2): 100e3, (1, 2): 101e3, (0, 3): 4800e3, (1, 3): 2500e3}
    links = {link: Measured(t, t, 1.01 * t) for link, t in times.items()}
    (found,) = find_stragglers(links, TWO_NODES)
    assert (found.kind, found.ranks, found.roles) == ("rank", (3,), ("receiving",))


def test_pairs_that_met_once_are_named_together() -> None:
    """`pair` alone: 0 -> 4, 1 -> 5, 2 -> 6, 3 -> 7."""
    times = [100e3, 101e3, 250e3, 102e3]
    links = {(r, r + 4): Measured(t, t, 1.01 * t) for r, t in enumerate(times)}
    (found,) = find_stragglers(links, ONE_NODE)
    assert (found.kind, found.ranks) == ("pair", (2, 6))


def test_below_five_times_the_noise_nothing_is_named() -> None:
    slow = dict.fromkeys(ways_of(3, 8, "sending"), 1.2)
    quiet = measured(ONE_NODE, slow, noise=0.005)
    assert [each.ranks for each in find_stragglers(quiet, ONE_NODE)] == [(3,)]
    assert not find_stragglers(measured(ONE_NODE, slow, noise=0.2), ONE_NODE)


def test_the_noise_within_ways_is_a_standard_deviation() -> None:
    halves = np.exp(np.random.default_rng(1).normal(0, 0.05, (10_000, 2)))
    noise = _noise_within(Measured(1.0, first, second) for first, second in halves)
    assert noise == pytest.approx(0.05, rel=0.05)


@pytest.mark.parametrize("world", [5, 6])
def test_the_typical_way_of_a_rank_is_the_median_of_its_others(world: int) -> None:
    places = Places(["a"] * world, ["eth1"] * world)
    links = class_of(measured(places, noise=0.3), places, False)
    for rank, role in itertools.product(range(world), ONE_DIRECTION):
        for link in links.logs:
            others = [links.excess(each) for each in links.of(rank, role) if each != link]
            typical = links.typical_beside(rank, role, link)
            assert typical == pytest.approx(float(np.median(others)))


def test_halves_that_differ_are_noise_though_the_faster_ones_do_not() -> None:
    slow = dict.fromkeys(ways_of(3, 8, "sending"), 1.3)
    steady = {link: 100e3 * slow.get(link, 1.0) for link in itertools.permutations(range(8), 2)}
    for longer, names in ((1.01, [(3,)]), (1.5, [])):
        links = {
            link: Measured(t, *((longer * t, t) if sum(link) % 2 else (t, longer * t)))
            for link, t in steady.items()
        }
        assert [each.ranks for each in find_stragglers(links, ONE_NODE)] == names


def test_good_ways_that_differ_are_noise_though_each_is_steady() -> None:
    slow = dict.fromkeys(ways_of(3, 8, "sending"), 1.4)
    for noise, names in ((0.02, {(3,)}), (0.15, set())):
        found = []
        for seed in range(20):
            links = measured(ONE_NODE, slow, seed, noise)
            steady = {w: Measured(*3 * [m.first_half_ns]) for w, m in links.items()}
            found += [each.ranks for each in find_stragglers(steady, ONE_NODE)]
        assert set(found) == names


@pytest.mark.parametrize("factor", [1.3, 1.5, 1.7, 2.0])
def test_a_rank_that_hardly_stands_out_is_named_or_nobody_but_none_of_its_ways(
    factor: float,
) -> None:
    """At 5 times the noise some of its ways are above, and others are not."""
    places = Places(["a"] * 4, ["lo"] * 4)
    slow = dict.fromkeys(ways_of(2, 4, "sending"), factor)
    found = [
        (each.kind, each.ranks)
        for seed in range(100)
        for each in find_stragglers(measured(places, slow, seed, noise=0.1), places)
    ]
    assert set(found) <= {("rank", (2,))}


def test_a_nic_is_named_once_with_all_of_its_ranks() -> None:
    """Ranks 1 and 3 of the first node share a NIC, as four ranks do on two."""
    shared = Places(["a"] * 4 + ["b"] * 4, ["eth1", "eth2", "eth1", "eth2"] * 2)
    factors = {1: 8.0, 3: 5.0}
    slow = {(r, other): factor for r, factor in factors.items() for other in range(4, 8)}
    for seed in range(50):
        (found,) = find_stragglers(measured(shared, slow, seed), shared)
        assert (found.kind, found.ranks, found.roles) == ("NIC", (1, 3), ("sending",))
        assert (found.links, found.of_links) == (8, 8)
        assert found.factor == pytest.approx(5.0, rel=0.2)


def test_a_rank_whose_nic_is_good_to_another_one_is_a_slow_rank() -> None:
    shared = Places(["a"] * 4 + ["b"] * 4, ["eth1", "eth2", "eth1", "eth2"] * 2)
    slow = {(1, other): 8.0 for other in range(4, 8)}
    for seed in range(50):
        (found,) = find_stragglers(measured(shared, slow, seed), shared)
        assert (found.kind, found.ranks) == ("rank", (1,))


def test_without_anything_to_compare_its_node_with_a_rank_is_no_nic() -> None:
    """Of three nodes one has two ranks: the way between them is the only one of its kind."""
    places = Places(["a", "a", "b", "c"], ["eth1", "eth2", "eth1", "eth1"])
    slow = {link: 8.0 for link in ways_of(1, 4, "sending") if places.apart(link)}
    links = {link: each for link, each in measured(places, slow).items() if link != (0, 1)}
    (found,) = find_stragglers(links, places)
    assert (found.kind, found.ranks) == ("rank", (1,))


@pytest.mark.parametrize(("at_home", "kind"), [(1.0, "NIC"), (1.6, "NIC"), (6.0, "rank")])
def test_a_rank_not_half_as_slow_within_its_node_has_a_slow_nic(at_home: float, kind: str) -> None:
    """As where one of two ways within nodes had a bad moment, and there are but these two."""
    links = {link: each for link, each in measured(TWO_NODES).items() if link[0] < link[1]}
    for link, factor in {(0, 3): 8.0, (1, 3): 8.0, (2, 3): at_home}.items():
        times = (links[link].time_ns, links[link].first_half_ns, links[link].second_half_ns)
        links[link] = Measured(*(factor * each for each in times))
    (found,) = find_stragglers(links, TWO_NODES, ROUND_TRIP)
    assert (found.kind, found.ranks, found.roles) == (kind, (3,), ROUND_TRIP)


def test_what_was_slow_in_one_half_only_is_nobodys_fault() -> None:
    links = measured(ONE_NODE)
    for link in ways_of(3, 8, "sending"):
        first = 2 * links[link].first_half_ns
        links[link] = Measured(
            (first + links[link].second_half_ns) / 2, first, links[link].second_half_ns
        )
    assert not find_stragglers(links, ONE_NODE)


def test_a_suspect_has_the_figures_that_speak_against_it() -> None:
    slow = dict.fromkeys(ways_of(1, 8, "receiving"), 3.0)
    slow = {link: factor for link, factor in slow.items() if LARGER.apart(link)}
    (found,) = find_stragglers(measured(LARGER, slow, noise=0.005), LARGER)
    assert found.good_ns == pytest.approx(300e3, rel=0.02)
    assert (found.links, found.of_links, found.apart) == (4, 4, True)
    assert 0.001 < found.noise < 0.02


def test_below_five_percent_nothing_is_named_however_quiet_it_is() -> None:
    slow = dict.fromkeys(ways_of(3, 8, "sending"), 1.04)
    assert not find_stragglers(measured(ONE_NODE, slow, noise=1e-6), ONE_NODE)


def test_too_few_ways_name_nobody() -> None:
    two = Places(["a", "a"], ["lo", "lo"])
    assert not find_stragglers(measured(two, {(0, 1): 9.0}), two)
    assert not find_stragglers({}, two)


def test_a_way_without_a_time_is_left_out() -> None:
    links = measured(ONE_NODE) | {(0, 1): Measured(math.nan, math.nan, math.nan)}
    assert not find_stragglers(links, ONE_NODE)


# --- The tournament -------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [2, 4, 6, 8, 16, 64])
def test_every_two_ranks_meet_once_and_everybody_plays_in_every_encounter(world: int) -> None:
    found = [encounter(number, world) for number in range(world - 1)]
    for pairs in found:
        assert sorted(rank for pair in pairs for rank in pair) == list(range(world))
    met = [frozenset(pair) for pairs in found for pair in pairs]
    assert len(set(met)) == len(met) == world * (world - 1) // 2


@pytest.mark.parametrize("world", [2, 4, 8])
def test_both_ways_are_run_and_the_first_encounter_is_that_of_pair(world: int) -> None:
    links = {
        (sender_of(number, rank, world), rank)
        for number in range(2 * (world - 1))
        for rank in range(world)
        if sender_of(number, rank, world) >= 0
    }
    assert links == set(itertools.permutations(range(world), 2))
    assert all(sender_of(0, rank + world // 2, world) == rank for rank in range(world // 2))


@pytest.mark.parametrize("world", [24, 36, 62, 64, 100, 1000])
def test_of_many_ranks_a_sample_meets_at_all_distances_in_rounds_that_grow_with_no_rank(
    world: int,
) -> None:
    numbers = sample(world, 2 * world)
    assert len(numbers) <= 4 + 9  # as many pairs as were asked for, or what tells all apart
    partners: dict[int, set[int]] = {rank: set() for rank in range(world)}
    for number in numbers:
        pairs = encounter(number, world)
        assert sorted(rank for pair in pairs for rank in pair) == list(range(world))
        for a, b in pairs:
            partners[a].add(b)
            partners[b].add(a)
    assert min(map(len, partners.values())) >= 4
    # Its own node has 8 ranks, and its rack 32: it meets several of each, and of others.
    for rank, met in partners.items():
        assert sum(other // 8 == rank // 8 for other in met) >= 2, rank
        assert sum(other // 8 != rank // 8 for other in met) >= 2, rank
        if world >= 100:
            assert sum(other // 32 != rank // 32 for other in met) >= 2, rank


@pytest.mark.parametrize("world", [2, 4, 6, 8, 16])
def test_where_there_are_no_more_pairs_than_were_asked_for_all_are_met(world: int) -> None:
    for most in (0, world * (world - 1) // 2):
        assert list(sample(world, most)) == list(range(world - 1))


def test_a_sample_has_as_many_pairs_as_were_asked_for() -> None:
    assert len(sample(64, 32 * 20)) == 20
    assert len(sample(64, 32 * 20 + 1)) == 21
    assert len(set(sample(64, 32 * 62))) == 62
