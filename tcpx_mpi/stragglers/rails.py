"""Which rail is slow: the NICs of one name on several nodes, where their links were measured. Pure.

A rail is judged by the links between nodes in which it has no part: beside these its NICs are
slow, each as a rank is beside all links (`detect.py`), on more than half of its nodes. Beside all
links it would be its own noise: of two rails the slow one has a part in three links of four. What
it explains is taken off the links, and the rest is judged as if it had never been.

Slow may be what leaves by its NICs, what arrives there, or both; or only what goes from one of its
NICs to another.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tcpx_mpi.stragglers.links import (
    ONE_DIRECTION,
    RARE,
    ROUND_TRIP,
    Link,
    LinkTimes,
    Measured,
    Places,
    Straggler,
    class_of,
    stand_apart,
)
from tcpx_mpi.stragglers.outlier import LEAST_SHARE, outlier_of

#: What a rail may be slow in, the most that explains everything first.
_ROLES = (ONE_DIRECTION, ONE_DIRECTION[:1], ONE_DIRECTION[1:])
#: Fewer orders of the ways than this say little.
_MANY_ORDERS = 1000
#: A rail explains the slowness of a rank up to this power of its own.
_EXPLAINS = 2.0


@dataclass(frozen=True)
class Explained:
    """Rails that are slow, those that are so alike in one, and the links without what is slow by
    them.
    """

    rails: Sequence[Straggler]
    rest: Mapping[Link, Measured]


def slow_rails(
    measured: Mapping[Link, Measured], places: Places, roles: Sequence[str] = ONE_DIRECTION
) -> Explained:
    """The first that are found may hide others."""
    found: list[Straggler] = []
    while explained := _next(measured, places, roles):
        found += explained.rails
        measured = explained.rest
    return Explained(found, measured)


def _next(
    measured: Mapping[Link, Measured], places: Places, roles: Sequence[str]
) -> Explained | None:
    near, far = (class_of(measured, places, apart, roles) for apart in (False, True))
    for nics in _sets_of_rails(far, places):
        for slow_in in _ROLES if tuple(roles) == ONE_DIRECTION else (ROUND_TRIP,):
            suspicion = _Suspicion(nics, slow_in, near, far, places)
            by_nic = [suspicion.slow(nic) for nic in nics] if suspicion.likely else []
            if by_nic and all(by_nic):
                return suspicion.explained(measured, by_nic)
    return None


def rail_again(
    suspect: Straggler, fresh: Mapping[Link, Measured], places: Places, orders_needed: int
) -> tuple[float, bool] | None:
    """By fresh samples how slow its median link is (as a logarithm), and whether it stands out of
    them; None if they do not tell.
    """
    near, far = (class_of(fresh, places, apart) for apart in (False, True))
    nics = dict.fromkeys(places.nics[rank] for rank in suspect.ranks)
    suspicion = _Suspicion(tuple(nics), suspect.roles, near, far, places)
    if not suspicion.is_comparable:
        return None
    if not suspect.roles:
        return suspicion.typical, suspicion.typical > suspicion.others.link_threshold
    return suspicion.typical, all(suspicion.slow(nic, orders_needed) for nic in nics)


def _sets_of_rails(far: LinkTimes, places: Places) -> Iterator[tuple[str, ...]]:
    """Each rail alone, and the slowest ones together, by the links that each has to itself."""
    logs = {
        nic: float(np.median([far.logs[link] for link in ways]))
        for nic, ways in _own_ways(far, places).items()
    }
    slowest = sorted(logs, key=lambda nic: -logs[nic])
    yield from ((nic,) for nic in slowest)
    yield from (tuple(slowest[:count]) for count in range(2, len(slowest)))


def by_rail(
    slow_ways: Sequence[Straggler], links: LinkTimes, places: Places
) -> Iterator[Straggler]:
    """Slow links between nodes; those of a rail in one, if they are most of its own links."""
    of_rails = {nic: set(ways) for nic, ways in _own_ways(links, places).items()}
    for nic, ways in of_rails.items():
        slow = [each for each in slow_ways if each.ranks in ways]
        if len(slow) > 1 and 2 * len(slow) > len(ways):
            ranks = sorted({rank for each in slow for rank in each.ranks})
            yield replace(
                min(slow, key=lambda each: each.factor), kind="rail", ranks=tuple(ranks),
                links=len(slow), of_links=len(ways),
            )  # fmt: skip
        else:
            of_rails[nic] = set()
    told = set().union(*of_rails.values())
    yield from (each for each in slow_ways if each.ranks not in told)


def _own_ways(links: LinkTimes, places: Places) -> dict[str, list[Link]]:
    """Links by NIC, from one of its name to another."""
    found = defaultdict(list)
    for sender, receiver in links.logs:
        if places.nics[sender] == places.nics[receiver]:
            found[places.nics[sender]].append((sender, receiver))
    return found


class _Suspicion:
    """That rails are slow in some roles; without any, from one of their NICs to another."""

    def __init__(
        self, nics: Sequence[str], roles: Sequence[str], near: LinkTimes, far: LinkTimes,
        places: Places,
    ) -> None:  # fmt: skip
        self._nics, self._roles, self._places = nics, tuple(roles), places
        self._near, self._far = near, far
        self._own = [link for link in far.logs if self._ends(link)]
        self.others = far.without(self._own)
        near_others = near.without(link for link in near.logs if self._ends(link))
        # No way within a node need take longer than a good one between two.
        self._good_near = near_others.good if near_others.comparable else self.others.good

    @property
    def is_comparable(self) -> bool:
        return bool(self._own) and self.others.comparable

    @property
    def _least_over_few(self) -> float:
        """Least distance of a link from the good ones, if these are so few that they may be the
        fastest by chance: as far from all of them as they are from one another."""
        orders = math.comb(len(self._own) + len(self.others.logs), len(self._own))
        logs = self.others.logs.values()
        return 2 * max(logs) - min(logs) - self.others.good if orders < _MANY_ORDERS else 0.0

    @property
    def typical(self) -> float:
        """Its median link over the good ones of the others, as a logarithm."""
        return float(np.median([self._far.logs[link] for link in self._own])) - self.others.good

    @property
    def likely(self) -> bool:
        return self.is_comparable and self.typical > math.log1p(LEAST_SHARE)

    def _ends(self, link: Link) -> list[int]:
        """The ranks of a link by which it is one of a rail's."""
        ends = [
            rank
            for rank, role in self._far.roles_in(link)
            if self._places.nics[rank] in self._nics and (role in self._roles or not self._roles)
        ]
        return ends if self._roles or len(ends) == len(link) else []

    def slow(self, nic: str, orders_needed: int = RARE) -> dict[int, float]:
        """Ranks on the slow NICs of a rail, and how slow they are (as a logarithm); empty if at
        most half of the NICs are slow, or all are of one node.
        """
        by_node: dict[str, dict[int, float]] = defaultdict(dict)
        for rank, (node, its) in enumerate(zip(self._places.nodes, self._places.nics, strict=True)):
            if its == nic and any(self._far.of(rank, role) for role in self._roles):
                by_node[node][rank] = self._slow(rank, orders_needed)
        slow = [ranks for ranks in by_node.values() if min(ranks.values()) > 0]
        if len(slow) < 2 or 2 * len(slow) <= len(by_node):
            return {}
        return {rank: log for ranks in slow for rank, log in ranks.items()}

    def _slow(self, rank: int, orders_needed: int) -> float:
        """0 for one that is not slow in one of the roles, or within its node as well."""
        found = [self._slow_in(rank, role, orders_needed) for role in self._roles]
        slow = max(found) if min(found) > 0 else 0.0
        at_home = [
            self._near.logs[way] for role in self._roles for way in self._near.of(rank, role)
        ]
        return 0.0 if at_home and float(np.median(at_home)) - self._good_near >= slow / 2 else slow

    def _slow_in(self, rank: int, role: str, orders_needed: int) -> float:
        own, others = self._far.of(rank, role), list(self.others.logs)
        own_quarters, other_quarters = self._far.quarters(own), self._far.quarters(others)
        if self._far.at_once:
            stand = outlier_of(own_quarters, other_quarters)
            return math.log1p(stand.typical_ns / stand.good_ns) if stand and stand.is_slow else 0.0
        best = min((self._far.logs[link] for link in own), default=-math.inf) - self.others.good
        slow = self.others.usable and best > max(self.others.threshold, self._least_over_few)
        if not slow and best > math.log1p(LEAST_SHARE):
            rare = math.comb(len(self._own) + len(others), len(others)) >= orders_needed
            slow = stand_apart(own_quarters, other_quarters, rare)
        return best if slow else 0.0

    def explained(
        self, measured: Mapping[Link, Measured], by_nic: Sequence[Mapping[int, float]]
    ) -> Explained:
        """By the slow ranks of each rail."""
        slow = {rank: log for each in by_nic for rank, log in each.items()}
        least = min(slow.values())
        ways = [link for link in self._own if not slow.keys().isdisjoint(self._ends(link))]
        over = {link: self._far.logs[link] - self.others.good for link in ways}
        rest = dict(measured)
        for link, log in over.items():
            its = [slow[rank] for rank in self._ends(link) if rank in slow]
            by = max((each for each in its if each <= _EXPLAINS * least), default=0.0)
            # No link becomes quicker than the good ones.
            rest[link] = _quicker(measured[link], math.exp(max(min(by, log), 0.0)))
        rail = Straggler(
            "rail", tuple(sorted(slow)), self._roles, math.exp(least), self.others.noise,
            sum(log >= least for log in over.values()), len(ways),
            math.exp(self.others.good), True,
        )  # fmt: skip
        return Explained([rail], rest)


def _quicker(way: Measured, factor: float) -> Measured:
    return replace(
        way,
        time_ns=way.time_ns / factor,
        first_half_ns=way.first_half_ns / factor,
        second_half_ns=way.second_half_ns / factor,
        quarters_ns=tuple(ns / factor for ns in way.quarters_ns),
    )
