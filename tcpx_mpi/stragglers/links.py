"""The links between ranks, measured apart: their times, what is good among them, and what is noise.

Times, each of the faster half of its row, are compared as logarithms, within two classes that
nobody mixes: pairs of one node and pairs of two. What is good is the first quartile of the class.

The noise floor is the larger of two standard deviations of log time: between the two halves of each
row's iterations (1.4826 x the median absolute difference / sqrt(2)), and between the good pairs
(from their median to the fastest, over the expected maximum of as many normal values).
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.stragglers.outlier import (
    LEAST_SHARE,
    TIMES_NOISE,
    Outlier,
    Times,
    gap,
    orders,
    outlier_of,
)

#: Fewer links than this of a class have no quartile to speak of.
_LEAST_LINKS = 3
#: Links that are the slowest by chance are so in one of as many orders of all links.
RARE = 50
#: A rank that takes so many times as long must not go unseen.
HALF_SPEED = 2.0

Link = tuple[int, int]  # sender, receiver; of both directions together the lower rank comes first

#: What a rank does in a link, where each link has a time of its own,
ONE_DIRECTION = ("sending", "receiving")
#: and where only both directions together have one.
ROUND_TRIP = ("both ways",)


@dataclass(frozen=True)
class Measured:
    """One direction between two ranks: the time of an iteration, and that in both halves, in ns."""

    time_ns: float
    first_half_ns: float
    second_half_ns: float
    #: The same in the quarters of the row.
    quarters_ns: tuple[float, ...] = ()


@dataclass(frozen=True)
class Straggler:
    """A straggler and its factor over the good; `kind` is "rank", "NIC", "rail", "link" or "pair".

    `roles` are of ONE_DIRECTION or ROUND_TRIP; a link or pair has none, nor a rail that is slow
    between its own NICs only. A pair may be slow by either of its two ranks. A NIC or rail has all
    of its ranks that are slow.
    """

    kind: str
    ranks: tuple[int, ...]
    roles: tuple[str, ...]
    factor: float
    #: Of `factor` - 1 in log time.
    noise: float
    #: How many links say so, of how many there are.
    links: int
    of_links: int
    #: The time of a good link, and whether those compared were between two nodes.
    good_ns: float
    apart: bool


@dataclass(frozen=True)
class Sensitivity:
    """Among the links between two nodes, or within one: how slow a rank must be to be named."""

    #: Over the time of a good link: below this no rank is named,
    least: float
    #: and above this each; against some ranks there is more noise.
    most: float
    good_ns: float
    apart: bool
    #: Whether it is noise that asks for `most`, not a least share, and that noise in log time.
    by_noise: bool
    noise: float
    #: The rank whose best link is the slowest, in which role, and how slow over the good.
    rank: int
    role: str
    farthest: float
    #: Whether noise hides what matters: a rank of half the speed, or this one if it is half as far
    #: off as the threshold (as a logarithm).
    hides: bool


@dataclass(frozen=True)
class Places:
    """Node and NIC by rank."""

    nodes: Sequence[str]
    nics: Sequence[str]

    def apart(self, link: Link) -> bool:
        return self.nodes[link[0]] != self.nodes[link[1]]

    def sharing(self, rank: int) -> tuple[int, ...]:
        """The ranks of the same NIC, this one too."""
        mine = (self.nodes[rank], self.nics[rank])
        return tuple(r for r, p in enumerate(zip(self.nodes, self.nics, strict=True)) if p == mine)


def class_of(
    measured: Mapping[Link, Measured],
    places: Places,
    apart: bool,
    roles: Sequence[str] = ONE_DIRECTION,
) -> LinkTimes:
    """The links between two nodes, or those within one."""
    # Of both classes, for a few links tell little.
    within = _noise_within(measured.values())
    of_class = {link: each for link, each in measured.items() if places.apart(link) == apart}
    return LinkTimes(of_class, within, apart, roles)


class LinkTimes:
    """Links that may be compared with each other."""

    def __init__(
        self, measured: Mapping[Link, Measured], within: float, apart: bool, roles: Sequence[str]
    ) -> None:
        self.apart, self.roles = apart, roles
        self._measured, self._within = measured, within
        self._quarters = {link: m.quarters_ns for link, m in measured.items() if m.quarters_ns}
        #: Whether ranks are judged by their standing.
        self.at_once = bool(self._quarters) and tuple(roles) == ROUND_TRIP
        # What was slow for a while only is somebody's bad moment.
        halves = {link: min(m.first_half_ns, m.second_half_ns) for link, m in measured.items()}
        self.logs = {link: math.log(time_ns) for link, time_ns in halves.items() if time_ns > 0}
        self._by_role: dict[tuple[int, str], list[Link]] = defaultdict(list)
        for link in self.logs:
            for rank, role in zip(link, ONE_DIRECTION, strict=True):
                self._by_role[rank, role].append(link)
                self._by_role[rank, ROUND_TRIP[0]].append(link)
        self._ordered: dict[tuple[int, str], list[float]] = {}
        values = np.sort(np.array(list(self.logs.values())))
        #: Whether one may be called slower than another, and whether one may be named.
        self.comparable = values.size > 1
        self.usable = values.size >= _LEAST_LINKS
        self.good = float(np.quantile(values, 0.25)) if self.comparable else math.nan
        self.noise = max(within, _noise_between(values)) if self.comparable else math.nan
        self.threshold = max(TIMES_NOISE * self.noise, math.log1p(LEAST_SHARE))

    def without(self, links: Iterable[Link]) -> LinkTimes:
        """All other links of the class."""
        left_out = set(links)
        others = {link: m for link, m in self._measured.items() if link not in left_out}
        return LinkTimes(others, self._within, self.apart, self.roles)

    @property
    def link_threshold(self) -> float:
        """Threshold for a link's slowness without its ranks', which has noise, too."""
        return math.sqrt(2) * self.threshold

    def excess(self, link: Link) -> float:
        return self.logs[link] - self.good

    def best(self, rank: int, role: str) -> float:
        """The slowness of even the best link of a rank in a role; -inf: it has none."""
        return min(map(self.excess, self.of(rank, role)), default=-math.inf)

    def is_slow(self, rank: int, role: str, orders_needed: int = RARE) -> bool:
        """Whether its best link stands out of the noise, or all of its links apart, which by chance
        they do in one of so many orders."""
        best = self.best(rank, role)
        if best > self.threshold:
            return True
        return best > math.log1p(LEAST_SHARE) and self._stands_apart(rank, role, orders_needed)

    def _stands_apart(self, rank: int, role: str, orders_needed: int) -> bool:
        without = [link for link in self.logs if rank not in link]
        own, others = self.quarters(self.of(rank, role)), self.quarters(without)
        return stand_apart(own, others, orders(own, others) >= orders_needed)

    def quarters(self, links: Iterable[Link]) -> Times:
        """Times [link, quarter]."""
        return np.array([self._quarters.get(link, ()) for link in links])

    def of(self, rank: int, role: str) -> list[Link]:
        return self._by_role.get((rank, role), [])

    def typical_beside(self, rank: int, role: str, link: Link) -> float | None:
        """The median excess of a rank's links in a role but for this one; None: it has no other."""
        key = rank, role
        if key not in self._ordered:
            self._ordered[key] = sorted(map(self.excess, self.of(rank, role)))
        ordered = self._ordered[key]
        ends = link if role in ROUND_TRIP else (link[ONE_DIRECTION.index(role)],)
        left_out = (
            bisect_left(ordered, self.excess(link)) if link in self.logs and rank in ends else -1
        )
        count = len(ordered) - (left_out >= 0)
        if count == 0:
            return None
        places = ((count - 1) // 2, count // 2)
        return sum(ordered[at + (0 <= left_out <= at)] for at in places) / 2

    def outlier(self, rank: int) -> Outlier | None:
        """The outlier test of a rank among those of its class, if all links were measured at
        once."""
        own, others = (
            self.quarters(link for link in self._quarters if (rank in link) == mine)
            for mine in (True, False)
        )
        return outlier_of(own, others)

    def sensitivity(self, world: int) -> Sensitivity | None:
        """None if no rank has several links here, or nothing to compare them with."""
        if self.at_once:
            stands = {rank: each for rank in range(world) if (each := self.outlier(rank))}
            if not stands:
                return None
            in_order = sorted(stands.values(), key=lambda each: each.least_factor)
            least, most = in_order[0], in_order[-1]
            rank = max(stands, key=lambda r: stands[r].certain_factor)
            far = stands[rank]
            return Sensitivity(
                least.least_factor, most.least_factor, least.good_ns, self.apart, most.by_noise,
                math.log1p(most.noise_ns / most.good_ns), rank, ROUND_TRIP[0], far.certain_factor,
                _hides(most.by_noise, most.least_factor)
                or _hides(far.by_noise, far.least_factor, far.certain_factor),
            )  # fmt: skip
        all_ends = itertools.product(range(world), self.roles)
        ends = [end for end in all_ends if len(self.of(*end)) > 1]
        if not (self.usable and ends):
            return None
        factor = math.exp(self.threshold)
        by_noise = self.threshold <= TIMES_NOISE * self.noise
        end = max(ends, key=lambda end: self.best(*end))
        farthest = math.exp(self.best(*end))
        return Sensitivity(
            factor, factor, math.exp(self.good), self.apart, by_noise, self.noise, *end, farthest,
            _hides(by_noise, factor, farthest),
        )  # fmt: skip

    def roles_in(self, link: Link) -> list[tuple[int, str]]:
        """The roles of its 2 ranks."""
        return [(rank, self.roles[n % len(self.roles)]) for n, rank in enumerate(link)]


def stand_apart(own: Times, others: Times, rare: bool) -> bool:
    """Whether all quarters of links are above all of others; if that is not rare by chance, by more
    than the others are from one another."""
    if not (own.size and others.size):
        return False
    return gap(own, others) > (1 if rare else float(others.max() / others.min()))


def _hides(by_noise: bool, least: float, farthest: float = 0.0) -> bool:
    return by_noise and (least > HALF_SPEED or farthest**2 > least)


def _noise_within(measured: Iterable[Measured]) -> float:
    """Between the halves of every link."""
    halves = [
        abs(math.log(m.first_half_ns / m.second_half_ns))
        for m in measured
        if m.first_half_ns > 0 and m.second_half_ns > 0
    ]
    return 1.4826 * float(np.median(halves)) / math.sqrt(2) if halves else 0.0


def _noise_between(sorted_logs: NDArray[np.float64]) -> float:
    """Between the good links: at most half of them are slow."""
    count = sorted_logs.size
    lower_median = float(sorted_logs[(count - 1) // 2])
    expected = NormalDist().inv_cdf(1 - 1 / (2 * count))
    return (lower_median - float(sorted_logs[0])) / expected
