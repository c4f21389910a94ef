"""A slow rail is one name, on whatever shape of nodes; what is no rail keeps its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from tcpx_mpi.stragglers.detect import find_stragglers
from tcpx_mpi.stragglers.links import ONE_DIRECTION, ROUND_TRIP, Link, Measured, Places, Straggler
from tcpx_mpi.stragglers.outlier import QUARTERS
from tcpx_mpi.stragglers.retest import judged, retests

Slowness = Callable[[Link], float]
Name = tuple[str, tuple[int, ...], tuple[str, ...]]


def places(nodes: int, ranks: int, nics: int) -> Places:
    each = list(itertools.product(range(nodes), range(ranks)))
    return Places([f"node{n}" for n, _ in each], [f"eth{1 + k % nics}" for _, k in each])


#: Nodes, ranks of a node, NICs of a node.
SHAPES = [(2, 2, 2), (2, 4, 4), (3, 2, 2), (4, 2, 2), (2, 4, 2), (4, 4, 2)]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=lambda s: "x".join(map(str, s)))


def measured(
    at: Places, slowness: Slowness, seed: int, noise: float = 0.03, spread: float = 0.0
) -> dict[Link, Measured]:
    """100 us within a node and 300 us between nodes, times the slowness; `spread` is from way to
    way, `noise` from quarter to quarter.
    """
    random = np.random.default_rng(seed)
    found = {}
    for link in itertools.permutations(range(len(at.nodes)), 2):
        way = (300e3 if at.apart(link) else 100e3) * np.exp(spread * random.standard_normal())
        found[link] = of_quarters(
            way * slowness(link) * np.exp(noise * random.standard_normal(QUARTERS))
        )
    return found


def of_quarters(quarters: np.ndarray) -> Measured:
    first, second = float(np.median(quarters[:2])), float(np.median(quarters[2:]))
    return Measured(float(np.median(quarters)), first, second, tuple(quarters.tolist()))


def as_in_a_mesh(links: dict[Link, Measured]) -> dict[Link, Measured]:
    """As a mesh has them."""
    return {
        (a, b): of_quarters((np.array(each.quarters_ns) + np.array(links[b, a].quarters_ns)) / 2)
        for (a, b), each in links.items()
        if a < b
    }


def slow_at(
    at: Places, ends: Callable[[str, str], bool], role: str, factor: float, near: bool = False
) -> Slowness:
    """Ways of ranks on some NICs; of role "inner" those from one of them to another."""

    def of(link: Link) -> float:
        sends, receives = (ends(at.nodes[rank], at.nics[rank]) for rank in link)
        hit = {
            "sending": sends, "receiving": receives, "both": sends or receives,
            "inner": sends and receives,
        }  # fmt: skip
        return factor if hit[role] and (near or at.apart(link)) else 1.0

    return of


def rail(nic: str) -> Callable[[str, str], bool]:
    return lambda node, its: its == nic


def names(found: list[Straggler]) -> list[Name]:
    return [(each.kind, each.ranks, each.roles) for each in found]


def names_after_meetings(at: Places, slowness: Slowness, seed: int, **noise: float) -> list[Name]:
    """What is named after all have met, and suspects again."""
    first, now = (measured(at, slowness, each, **noise) for each in (seed, seed + 1000))
    meetings = retests(find_stragglers(first, at), first, at)
    fresh = {way: now[way] for pairs in meetings for a, b in pairs for way in ((a, b), (b, a))}
    return names([each.suspect for each in judged(first, fresh, at) if each.named])


def ranks_on(at: Places, nic: str) -> tuple[int, ...]:
    return tuple(rank for rank, its in enumerate(at.nics) if its == nic)


ROLES = {
    "sending": ONE_DIRECTION[:1],
    "receiving": ONE_DIRECTION[1:],
    "both": ONE_DIRECTION,
    "inner": (),
}


@shapes
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("factor", [2.0, 10.0])
def test_a_slow_rail_is_named_once_with_its_role(
    shape: tuple[int, int, int], role: str, factor: float
) -> None:
    at = places(*shape)
    for seed, nic in enumerate(("eth1", "eth2")):
        slowness = slow_at(at, rail(nic), role, factor)
        assert names_after_meetings(at, slowness, seed) == [
            ("rail", ranks_on(at, nic), ROLES[role])
        ]


@pytest.mark.parametrize("shape", [(2, 4, 4), (3, 2, 2), (4, 2, 2), (4, 4, 2)])
@pytest.mark.parametrize("role", ["sending", "both"])
def test_a_slow_rail_is_named_where_all_was_measured_at_once(
    shape: tuple[int, int, int], role: str
) -> None:
    at = places(*shape)
    for seed in range(3):
        links = as_in_a_mesh(measured(at, slow_at(at, rail("eth2"), role, 6.0), seed, 0.01))
        found = names(find_stragglers(links, at, ROUND_TRIP))
        assert found == [("rail", ranks_on(at, "eth2"), ROUND_TRIP)]


def test_of_a_slow_rail_the_factor_and_the_ways_are_told() -> None:
    at = places(4, 2, 2)
    (found,) = find_stragglers(measured(at, slow_at(at, rail("eth2"), "both", 3.0), 1), at)
    assert found.factor == pytest.approx(3.0, rel=0.1)
    assert found.good_ns == pytest.approx(300e3, rel=0.05)
    # Of 48 ways between nodes 12 have no part in it.
    assert 33 <= found.links <= found.of_links == 36
    assert found.apart


def test_two_slow_rails_of_four_are_named_together() -> None:
    at = places(3, 4, 4)
    slowness = slow_at(at, lambda _, nic: nic in ("eth2", "eth3"), "both", 3.0)
    ranks = tuple(sorted(ranks_on(at, "eth2") + ranks_on(at, "eth3")))
    for seed in range(5):
        assert names_after_meetings(at, slowness, seed) == [("rail", ranks, ONE_DIRECTION)]


def test_a_rail_that_one_of_four_nodes_has_good_is_named_with_the_others() -> None:
    at = places(4, 2, 2)
    slowness = slow_at(at, lambda node, nic: nic == "eth2" and node != "node3", "both", 4.0)
    for seed in range(5):
        assert names_after_meetings(at, slowness, seed) == [("rail", (1, 3, 5), ONE_DIRECTION)]


@pytest.mark.parametrize("role", ["sending", "receiving"])
def test_one_nic_of_a_rail_is_no_rail(role: str) -> None:
    for shape in SHAPES:
        at = places(*shape)
        slowness = slow_at(at, lambda *its: its == ("node1", "eth2"), role, 6.0)
        found = names_after_meetings(at, slowness, 1)
        assert [kind for kind, _, _ in found] == ["NIC"], (shape, found)


def test_a_nic_far_slower_than_its_slow_rail_is_named_beside_it() -> None:
    at = places(4, 4, 4)

    def slowness(link: Link) -> float:
        of_rail = slow_at(at, rail("eth2"), "sending", 2.0)(link)
        return max(of_rail, 20.0 if link[0] == 5 and at.apart(link) else 1.0)

    found = names(find_stragglers(measured(at, slowness, 1), at))
    assert found == [("NIC", (5,), ("sending",)), ("rail", (1, 5, 9, 13), ("sending",))]


def test_a_slow_node_and_slow_ranks_are_no_rail() -> None:
    at = places(4, 4, 4)
    for role in ("sending", "receiving"):
        node = slow_at(at, lambda name, _: name == "node3", role, 5.0)
        assert {kind for kind, _, _ in names_after_meetings(at, node, 1)} == {"NIC"}
        # They are as slow within their nodes.
        ranks = slow_at(at, rail("eth2"), role, 5.0, near=True)
        assert {kind for kind, _, _ in names_after_meetings(at, ranks, 1)} == {"rank"}


def test_nodes_with_one_nic_in_common_have_no_rail() -> None:
    at = Places(["a", "a", "b", "b"], ["eth1"] * 4)
    for role in ROLES:
        slowness = slow_at(at, lambda node, _: node == "b", role, 4.0)
        assert not [each for each in names_after_meetings(at, slowness, 1) if each[0] == "rail"]


@pytest.mark.parametrize("shape", SHAPES[:5])
@pytest.mark.parametrize("spread", [0.0, 0.1, 0.2])
def test_where_nothing_is_slow_no_rail_is_named(shape: tuple[int, int, int], spread: float) -> None:
    """Ways may differ, and go on to: what meets again is as it was."""
    at = places(*shape)
    false = []
    for seed in range(20):
        links = measured(at, lambda link: 1.0, seed, 0.02, spread)
        again = judged(links, links, at)
        false += [seed for each in again if each.named and each.suspect.kind == "rail"]
        at_once = find_stragglers(as_in_a_mesh(links), at, ROUND_TRIP)
        false += [seed for each in at_once if each.kind == "rail"]
    assert not false
