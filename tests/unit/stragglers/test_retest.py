"""Suspects meet others again: whom, how often, and what is left of a name."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tcpx_mpi.config.settings import load_settings
from tcpx_mpi.machine.topology import read_host
from tcpx_mpi.patterns.pairs import meeting
from tcpx_mpi.run.plan import RowPlanner
from tcpx_mpi.schedule.pattern import pairs_of_text, text_of_pairs
from tcpx_mpi.stragglers.detect import find_stragglers
from tcpx_mpi.stragglers.links import Link, Measured, Places, Straggler
from tcpx_mpi.stragglers.retest import _badness, _wanted, judged, most_retests, retests
from tcpx_mpi.workload import workload_of

ONE_NODE = Places(["a"] * 8, ["lo"] * 8)
TWO_NODES = Places(["a"] * 4 + ["b"] * 4, [f"eth{1 + r % 4}" for r in range(8)])


LinkTimes = dict[Link, Measured]


def measured(places: Places, slow: dict[Link, float] | None = None, seed: int = 1) -> LinkTimes:
    random = np.random.default_rng(seed)
    found = {}
    for link in itertools.permutations(range(len(places.nodes)), 2):
        base = (300e3 if places.apart(link) else 100e3) * (slow or {}).get(link, 1.0)
        first, second = base * np.exp(0.02 * random.standard_normal(2))
        found[link] = Measured((first + second) / 2, first, second)
    return found


def again(places: Places, first: LinkTimes, now: LinkTimes) -> LinkTimes:
    """What the retests after `first` see, where the truth has become `now`."""
    pairs = retests(find_stragglers(first, places), first, places)
    return {w: now[w] for each in pairs for pair in each for w in (pair, pair[::-1])}


def slow_sender(rank: int, world: int = 8, factor: float = 2.0) -> dict[Link, float]:
    return {(rank, other): factor for other in range(world) if other != rank}


def names(
    places: Places, first: LinkTimes, fresh: LinkTimes
) -> list[tuple[str, tuple[int, ...], bool]]:
    return [(e.suspect.kind, e.suspect.ranks, e.named) for e in judged(first, fresh, places)]


@pytest.mark.parametrize("places", [ONE_NODE, TWO_NODES], ids=["one", "two"])
def test_everybody_is_in_one_pair_of_every_meeting(places: Places) -> None:
    first = measured(places, slow_sender(3) | slow_sender(5) | {(1, 6): 5.0})
    found = retests(find_stragglers(first, places), first, places)
    assert 0 < len(found) <= most_retests(8)
    for pairs in found:
        assert sorted(rank for pair in pairs for rank in pair) == list(range(8))


def test_a_suspect_meets_the_best_ones_first_and_no_other_suspect() -> None:
    # 0 is the best, then 6; 1 and 2 are a little slow, not enough to be named.
    shares = {0: 0.9, 6: 0.95, 1: 1.04, 2: 1.04}
    slow = {
        link: math.prod(shares.get(rank, 1.0) for rank in link)
        for link in itertools.permutations(range(8), 2)
    }
    for rank in (3, 5):
        slow |= slow_sender(rank)
    first = measured(ONE_NODE, slow)
    suspects = find_stragglers(first, ONE_NODE)
    assert {each.ranks for each in suspects} == {(3,), (5,)}
    found = retests(suspects, first, ONE_NODE)
    met = [{*pair} - {3} for pairs in found for pair in pairs if 3 in pair]
    assert met[:2] == [{0}, {6}]
    met = [{*pair} - {5} for pairs in found for pair in pairs if 5 in pair]
    assert {0} in met[:3]
    assert {6} in met[:3]


def accused(*ranks: int) -> list[Straggler]:
    return [Straggler("rank", (r,), ("sending",), 2.0, 0.0, 7, 7, 100e3, False) for r in ranks]


def test_a_suspect_meets_no_other_one_however_quick_that_is_elsewhere() -> None:
    quick = {link: 0.5 for link in itertools.permutations(range(8), 2) if 5 in link}
    wanted = _wanted(accused(3, 5), measured(ONE_NODE, quick), ONE_NODE)
    assert not [link for link in wanted if set(link) == {3, 5}]


def test_nobody_is_the_worse_for_having_met_suspects() -> None:
    """0 was slow with four suspects only, 1 a little with everybody else."""
    suspects = {3, 5, 6, 7}
    slow = {link: 3.0 for link in itertools.permutations(range(8), 2) if 0 in link}
    slow |= {link: 1.0 for link in slow if not suspects.intersection(link)}
    slow |= {(1, other): 1.2 for other in (2, 4)} | {(other, 1): 1.2 for other in (2, 4)}
    badness = _badness(suspects, measured(ONE_NODE, slow), ONE_NODE)
    assert badness[0] < badness[1]


def test_the_ends_of_a_link_meet_each_other_and_good_ones() -> None:
    first = measured(ONE_NODE, {(2, 5): 3.0})
    found = retests(find_stragglers(first, ONE_NODE), first, ONE_NODE)
    assert (2, 5) in found[0]
    for end in (2, 5):
        partners = {other for pairs in found for pair in pairs if end in pair for other in pair}
        assert len(partners - {2, 5}) >= 2


def test_a_nic_meets_ranks_of_other_nodes_and_so_do_those_it_is_compared_with() -> None:
    first = measured(TWO_NODES, {(o, 6): 8.0 for o in range(4)})
    for pairs in retests(find_stragglers(first, TWO_NODES), first, TWO_NODES):
        assert all(TWO_NODES.apart(pair) for pair in pairs)


def test_without_suspects_nobody_meets() -> None:
    assert retests([], measured(ONE_NODE), ONE_NODE) == []


def test_many_suspects_meet_no_more_often_than_the_bound() -> None:
    first = measured(ONE_NODE)
    suspects = [
        Straggler("link", link, (), 2.0, 0.01, 1, 1, 1e5, False)
        for link in itertools.permutations(range(8), 2)
    ]
    assert len(retests(suspects, first, ONE_NODE)) == most_retests(8) == 7


# --- What is left of a name -----------------------------------------------------------------------


@pytest.mark.parametrize("places", [ONE_NODE, TWO_NODES], ids=["one", "two"])
@pytest.mark.parametrize("seed", range(20))
def test_what_is_slow_shows_again_and_is_named(places: Places, seed: int) -> None:
    cases: list[tuple[tuple[str, tuple[int, ...]], dict[Link, float]]] = [
        (("rank", (3,)), slow_sender(3)),
        (("rank", (3,)), {link[::-1]: f for link, f in slow_sender(3).items()}),
        (("link", (1, 6)), {(1, 6): 3.0}),
    ]
    if places is TWO_NODES:
        cases.append((("NIC", (6,)), {(other, 6): 8.0 for other in range(4)}))
    for expected, slow in cases:
        first, now = measured(places, slow, seed), measured(places, slow, seed + 1000)
        assert names(places, first, again(places, first, now)) == [(*expected, True)]


@pytest.mark.parametrize("places", [ONE_NODE, TWO_NODES], ids=["one", "two"])
def test_what_was_slow_once_is_not_named(places: Places) -> None:
    for slow in (slow_sender(3), {(1, 6): 3.0}):
        for seed in range(20):
            first, now = measured(places, slow, seed), measured(places, None, seed + 1000)
            verdicts = names(places, first, again(places, first, now))
            assert verdicts
            assert not any(named for _, _, named in verdicts)


@pytest.mark.parametrize("places", [ONE_NODE, TWO_NODES], ids=["one", "two"])
@pytest.mark.parametrize(("again_by", "named"), [(1.3, False), (1.6, True)])
def test_what_shows_again_far_less_slow_is_not_named(
    places: Places, again_by: float, named: bool
) -> None:
    for seed in range(20):
        first = measured(places, slow_sender(3), seed)
        now = measured(places, slow_sender(3, factor=again_by), seed + 1000)
        assert names(places, first, again(places, first, now)) == [("rank", (3,), named)]


def test_a_machine_that_has_become_slower_accuses_nobody_and_acquits_nobody() -> None:
    """Fresh times are compared with each other, never with those of the tournament."""
    for slow, named in ((None, False), (slow_sender(3), True)):
        first = measured(ONE_NODE, slow_sender(3))
        now = measured(ONE_NODE, slow, seed=2)
        fresh = {
            link: Measured(3 * m.time_ns, 3 * m.first_half_ns, 3 * m.second_half_ns)
            for link, m in again(ONE_NODE, first, now).items()
        }
        assert names(ONE_NODE, first, fresh) == [("rank", (3,), named)]


def test_a_suspect_that_nobody_met_again_is_not_named_unless_nobody_met_at_all() -> None:
    first = measured(ONE_NODE, slow_sender(3))
    others = {link: each for link, each in measured(ONE_NODE).items() if 3 not in link}
    assert names(ONE_NODE, first, others) == [("rank", (3,), False)]
    assert names(ONE_NODE, first, {}) == [("rank", (3,), True)]


def test_a_link_is_not_confirmed_by_the_slowness_of_its_ranks() -> None:
    first = measured(ONE_NODE, {(3, 5): 2.0})
    assert names(ONE_NODE, first, {}) == [("link", (3, 5), True)]
    now = measured(ONE_NODE, slow_sender(3))
    assert names(ONE_NODE, first, again(ONE_NODE, first, now)) == [("link", (3, 5), False)]


# --- Rows with pairs of their own -----------------------------------------------------------------


def test_pairs_survive_being_text() -> None:
    pairs = [(0, 12), (3, 1)]
    assert text_of_pairs(pairs) == "0>12 3>1"
    assert pairs_of_text("0>12 3>1") == pairs


def test_in_a_meeting_the_first_of_a_pair_sends_to_the_second() -> None:
    pattern = meeting("0>2 3>1")
    for rank, peers, sends in ((0, 2, True), (2, 0, False), (3, 1, True), (1, 3, False)):
        schedule = pattern.schedule(rank, 4)
        assert (schedule.sends, schedule.receives) == (sends, not sends)
        there = schedule.peers_sent if sends else schedule.peers_received
        assert [peer for peer, _ in there] == [peers]


def test_rows_of_meetings_come_behind_all_others_and_each_size_has_its_own() -> None:
    settings = load_settings({"pattern": "pairs", "all": "1", "sizes": "1,2", "iters": "8"}, {})
    planner = RowPlanner(workload_of(settings, 4), [read_host()] * 4)
    rows = list(planner.run(planner.rows(), lambda: {2: ["0>2 3>1", "2>0 1>3"], 1: ["0>1 2>3"]}))
    planned, again = rows[:12], rows[12:]
    assert [row.facts.index for row in planned] == list(range(12))
    assert not any(row.facts.pairs for row in planned)
    assert [(row.facts.index, row.facts.size_bytes, row.facts.pairs) for row in again] == [
        (12, 1, "0>1 2>3"),
        (13, 2, "0>2 3>1"),
        (15, 2, "2>0 1>3"),
    ]
    assert len(again[0].plan.batches) == len(planned[0].plan.batches) == 8


def test_without_all_nobody_is_asked_who_should_meet() -> None:
    settings = load_settings({"pattern": "pairs", "sizes": "1"}, {})
    planner = RowPlanner(workload_of(settings, 4), [read_host()] * 4)

    def never() -> dict[int, list[str]]:
        raise AssertionError("asked")

    assert len(list(planner.run(planner.rows(), never))) == 2
