"""Who is slow, where pairs of ranks were measured apart: a rank, its NIC, or one way between two.

Times are compared as logarithms, within two classes that nobody mixes: pairs of one node and pairs
of two. What is good is the first quartile of the class. A rank is as slow, sending or receiving, as
its *best* pair in that role is over the good: a rank that only met a slow one has other pairs that
are good. What two ranks' own slowness does not explain is the way between them.

The noise floor is the larger of two standard deviations of log time: between the two halves of each
row's iterations (1.4826 x the median absolute difference / sqrt(2)), and between the good pairs
(from their median to the fastest, over the expected maximum of as many normal values). Below 5 x
the noise floor, or 5 %, nothing is named.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

#: So many times the noise floor must a difference be, and at least this share.
TIMES_NOISE = 5.0
LEAST_SHARE = 0.05
#: Fewer ways than this of a class have no quartile to speak of.
_LEAST_WAYS = 3

Way = tuple[int, int]  # sender, receiver


@dataclass(frozen=True)
class Measured:
    """One way between two ranks: the time of an iteration, and that in both halves, in ns."""

    time_ns: float
    first_half_ns: float
    second_half_ns: float


@dataclass(frozen=True)
class Suspect:
    """What is slow and by which factor over the good; `kind` is "rank", "NIC", "link" or "pair".

    `roles` are "sending" and "receiving"; a pair may be slow by either of its two ranks.
    """

    kind: str
    ranks: tuple[int, ...]
    roles: tuple[str, ...]
    factor: float
    #: Of `factor` - 1 in log time.
    noise: float
    #: How many ways say so, of how many there are.
    ways: int
    of_ways: int


@dataclass(frozen=True)
class Places:
    """By rank: its node and its NIC."""

    nodes: Sequence[str]
    nics: Sequence[str]

    def apart(self, way: Way) -> bool:
        return self.nodes[way[0]] != self.nodes[way[1]]


def find_suspects(measured: Mapping[Way, Measured], places: Places) -> list[Suspect]:
    """The slow ones, slowest first; empty where nothing stands out of the noise."""
    within = _noise_within(list(measured.values()))
    near, far = (
        _Class({way: m for way, m in measured.items() if places.apart(way) == apart}, within)
        for apart in (False, True)
    )
    found: list[Suspect] = []
    slow: dict[tuple[int, str], float] = {}  # (rank, role) -> its own slowness in log time
    for rank in range(len(places.nodes)):
        of_near, of_far = _roles_of(rank, near), _roles_of(rank, far)
        for each, roles in ((near, of_near), (far, of_far)):
            for role in roles:
                typical = float(np.median([each.excess(way) for way in each.of(rank, role)]))
                slow[rank, role] = max(slow.get((rank, role), 0.0), typical)
        if of_far:
            # Towards other nodes only, though its own node is fast to it: that is its NIC.
            at_home = [way for role in of_far for way in near.of(rank, role)]
            fast_at_home = at_home and not any(near.is_slow(way) for way in at_home)
            found.append(_suspect("NIC" if fast_at_home else "rank", rank, of_far, far))
        elif of_near:
            found.append(_suspect("rank", rank, of_near, near))
    for each in (near, far):
        found += _links(each, slow)
    return sorted(found, key=lambda s: -s.factor)


class _Class:
    """Ways that may be compared with each other."""

    def __init__(self, measured: Mapping[Way, Measured], within: float) -> None:
        self.logs = {way: math.log(m.time_ns) for way, m in measured.items() if m.time_ns > 0}
        values = np.sort(np.array(list(self.logs.values())))
        self.usable = values.size >= _LEAST_WAYS
        self.good = float(np.quantile(values, 0.25)) if self.usable else math.nan
        self.noise = max(within, _noise_between(values)) if self.usable else math.nan
        self.threshold = max(TIMES_NOISE * self.noise, math.log1p(LEAST_SHARE))

    def excess(self, way: Way) -> float:
        return self.logs[way] - self.good

    def is_slow(self, way: Way) -> bool:
        return self.usable and self.excess(way) > self.threshold

    def of(self, rank: int, role: str) -> list[Way]:
        end = 0 if role == "sending" else 1
        return [way for way in self.logs if way[end] == rank]


def _noise_within(measured: Sequence[Measured]) -> float:
    """Between the halves of every way: of both classes, for a few ways tell little."""
    halves = [
        abs(math.log(m.first_half_ns / m.second_half_ns))
        for m in measured
        if m.first_half_ns > 0 and m.second_half_ns > 0
    ]
    return 1.4826 * float(np.median(halves)) / math.sqrt(2) if halves else 0.0


def _noise_between(sorted_logs: NDArray[np.float64]) -> float:
    """Between the good ways: at most half of them are slow."""
    count = sorted_logs.size
    lower_median = float(sorted_logs[(count - 1) // 2])
    expected = NormalDist().inv_cdf(1 - 1 / (2 * count))
    return (lower_median - float(sorted_logs[0])) / expected


def _roles_of(rank: int, ways: _Class) -> dict[str, float]:
    """The roles in which even the best pair of a rank is slow, with that slowness."""
    if not ways.usable:
        return {}
    found = {}
    for role in ("sending", "receiving"):
        mine = ways.of(rank, role)
        # One pair alone cannot tell its two ranks apart.
        if len(mine) > 1 and (best := min(map(ways.excess, mine))) > ways.threshold:
            found[role] = best
    return found


def _suspect(kind: str, rank: int, roles: Mapping[str, float], ways: _Class) -> Suspect:
    mine = [way for role in roles for way in ways.of(rank, role)]
    slow = sum(map(ways.is_slow, mine))
    factor = math.exp(max(roles.values()))
    return Suspect(kind, (rank,), tuple(roles), factor, ways.noise, slow, len(mine))


def _links(ways: _Class, slow: Mapping[tuple[int, str], float]) -> list[Suspect]:
    if not ways.usable:
        return []
    found = []
    for way in ways.logs:
        sender, receiver = way
        own = max(slow.get((sender, "sending"), 0.0), slow.get((receiver, "receiving"), 0.0))
        rest = ways.excess(way) - own
        if rest > ways.threshold:
            # Only where both have other pairs in these roles is it the way between them.
            known = min(len(ways.of(sender, "sending")), len(ways.of(receiver, "receiving"))) > 1
            kind = "link" if known else "pair"
            found.append(Suspect(kind, way, (), math.exp(rest), ways.noise, 1, 1))
    return found
