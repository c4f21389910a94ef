"""Who is slow, where pairs of ranks were measured apart: a rank, its NIC, or the way between two.

Times, each of the faster half of its row, are compared as logarithms, within two classes that
nobody mixes: pairs of one node and pairs of two. What is good is the first quartile of the class. A
rank is as slow, sending or receiving, as its *best* pair in that role is over the good: a rank that
only met a slow one has other pairs that are good. What two ranks' own slowness does not explain is
the way between them. A NIC is slow where all of its ranks are, towards other nodes, and within
their own not half as much.

The noise floor is the larger of two standard deviations of log time: between the two halves of each
row's iterations (1.4826 x the median absolute difference / sqrt(2)), and between the good pairs
(from their median to the fastest, over the expected maximum of as many normal values). Below 5 x
the noise floor, or 5 %, nothing is named.

Whatever the noise, a rank is named whose ways stand apart: every quarter of each is above every
quarter of every way without that rank; of few ways, by more than those are from one another.

Where all pairs were measured at once, by their both ways, a rank is judged by its standing
(`outlier.py`): by times, beside the other ranks in the same quarters of the row, and by the noise
of these alone.
"""

from __future__ import annotations

import dataclasses
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
    gap,
    orders,
    outlier_of,
)

#: Fewer ways than this of a class have no quartile to speak of.
_LEAST_LINKS = 3
#: Ways that are the slowest by chance are so in one of as many orders of all ways.
_RARE = 50
#: Of one that has been named before.
_RARE_AGAIN = 6
#: A rank that takes so many times as long must not go unseen.
HALF_SPEED = 2.0
#: Of a factor's logarithm, this share shows again where it is not the moment that was slow: what is
#: far from what it was is as good as chance, on a machine that is busy with something else.
_AS_SLOW_AGAIN = 0.5

Link = tuple[int, int]  # sender, receiver; of both ways together the lower rank comes first

#: What a rank does in a way, where each way has a time of its own,
ONE_DIRECTION = ("sending", "receiving")
#: and where only both ways together have one.
ROUND_TRIP = ("both ways",)


@dataclass(frozen=True)
class Measured:
    """One way between two ranks: the time of an iteration, and that in both halves, in ns."""

    time_ns: float
    first_half_ns: float
    second_half_ns: float
    #: The same in the quarters of the row.
    quarters_ns: tuple[float, ...] = ()


@dataclass(frozen=True)
class Straggler:
    """What is slow and by which factor over the good; `kind` is "rank", "NIC", "link" or "pair".

    `roles` are of ONE_WAY or BOTH_WAYS; a link or pair has none. A pair may be slow by either of
    its two ranks. A NIC has all of its ranks.
    """

    kind: str
    ranks: tuple[int, ...]
    roles: tuple[str, ...]
    factor: float
    #: Of `factor` - 1 in log time.
    noise: float
    #: How many ways say so, of how many there are.
    links: int
    of_links: int
    #: The time of a good way, and whether those compared were between two nodes.
    good_ns: float
    apart: bool


@dataclass(frozen=True)
class Sensitivity:
    """Among the ways between two nodes, or within one: how slow a rank must be to be named."""

    #: Over the time of a good way: below this no rank is named,
    least: float
    #: and above this each; against some ranks there is more noise.
    most: float
    good_ns: float
    apart: bool
    #: Whether it is noise that asks for `most`, not a least share, and that noise in log time.
    by_noise: bool
    noise: float
    #: The rank whose best way is the slowest, in which role, and how slow over the good.
    rank: int
    role: str
    farthest: float
    #: Whether noise keeps from sight what matters: a rank of half the speed, or this one, if it is
    #: half as far off as it would have to be (as a logarithm).
    hides: bool


@dataclass(frozen=True)
class Places:
    """By rank: its node and its NIC."""

    nodes: Sequence[str]
    nics: Sequence[str]

    def apart(self, link: Link) -> bool:
        return self.nodes[link[0]] != self.nodes[link[1]]

    def sharing(self, rank: int) -> tuple[int, ...]:
        """The ranks of the same NIC, this one too."""
        mine = (self.nodes[rank], self.nics[rank])
        return tuple(r for r, p in enumerate(zip(self.nodes, self.nics, strict=True)) if p == mine)


def find_stragglers(
    measured: Mapping[Link, Measured], places: Places, roles: Sequence[str] = ONE_DIRECTION
) -> list[Straggler]:
    """The slow ones, slowest first; empty where nothing stands out of the noise."""
    near, far = (class_of(measured, places, apart, roles) for apart in (False, True))
    found: list[Straggler] = []
    nics: dict[int, Straggler] = {}
    for rank in range(len(places.nodes)):
        of_near, of_far = _slow_rank(rank, near), _slow_rank(rank, far)
        if of_far and _fast_at_home(of_far, near):
            nics[rank] = dataclasses.replace(of_far, kind="NIC")
        elif slow := of_far or of_near:
            found.append(slow)
    found += _by_nic(nics, places)
    at_once = near.at_once or far.at_once
    accused = {rank for suspect in found for rank in suspect.ranks if at_once}
    # Within a node a way is slow where its two ranks share a core with somebody else, and a mesh,
    # where nobody has it alone, does not tell that from a link.
    slow_links = (
        _slow_links(far, near) if at_once else _slow_links(near, far) + _slow_links(far, near)
    )
    # Where all wait for all, the ways of a slow rank differ: what waits for it in one is there
    # early in another.
    found += [suspect for suspect in slow_links if accused.isdisjoint(suspect.ranks)]
    return sorted(found, key=lambda s: -s.factor)


def sensitivities(
    measured: Mapping[Link, Measured], places: Places, roles: Sequence[str] = ONE_DIRECTION
) -> list[Sensitivity]:
    """Of each class in which a rank can be named, by noise as it is; empty where there is none."""
    both = (class_of(measured, places, apart, roles) for apart in (False, True))
    return [found for links in both if (found := links.sensitivity(len(places.nodes)))]


def factor_again(
    suspect: Straggler, fresh: Mapping[Link, Measured], places: Places
) -> tuple[float, bool] | None:
    """A suspect by fresh samples: its factor, and whether that confirms it: it stands out of their
    noise, and is half as much as at first, as a logarithm.

    None where they have too few of its ways.
    """
    links = class_of(fresh, places, suspect.apart)
    if not links.usable:
        return None
    if suspect.roles:
        slowest = [max(suspect.roles, key=lambda r: links.best(k, r)) for k in suspect.ranks]
        ends = list(zip(suspect.ranks, slowest, strict=True))
        rest = min(links.best(*end) for end in ends)
        stands_out = all(links.is_slow(*end, _RARE_AGAIN) for end in ends)
    else:
        link = (suspect.ranks[0], suspect.ranks[1])
        if link not in links.logs:
            return None
        rest = _beyond_its_ranks(link, links, class_of(fresh, places, not suspect.apart))
        stands_out = rest > links.link_threshold
    if rest == -math.inf:
        return None
    again = math.exp(rest)
    return again, stands_out and as_slow_again(suspect, again)


def as_slow_again(suspect: Straggler, again: float) -> bool:
    """Whether a suspect's factor by fresh samples is not far below what it was."""
    return again >= math.pow(suspect.factor, _AS_SLOW_AGAIN)


def class_of(
    measured: Mapping[Link, Measured],
    places: Places,
    apart: bool,
    roles: Sequence[str] = ONE_DIRECTION,
) -> LinkTimes:
    """The ways between two nodes, or those within one."""
    # Of both classes, for a few ways tell little.
    within = _noise_within(measured.values())
    of_class = {link: each for link, each in measured.items() if places.apart(link) == apart}
    return LinkTimes(of_class, within, apart, roles)


class LinkTimes:
    """Ways that may be compared with each other."""

    def __init__(
        self, measured: Mapping[Link, Measured], within: float, apart: bool, roles: Sequence[str]
    ) -> None:
        self.apart, self.roles = apart, roles
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

    @property
    def link_threshold(self) -> float:
        """For what is left of a way when its ranks' slowness is taken off, which has noise, too."""
        return math.sqrt(2) * self.threshold

    def excess(self, link: Link) -> float:
        return self.logs[link] - self.good

    def best(self, rank: int, role: str) -> float:
        """How slow even the best way of a rank is in a role; -inf: it has none."""
        return min(map(self.excess, self.of(rank, role)), default=-math.inf)

    def is_slow(self, rank: int, role: str, orders_needed: int = _RARE) -> bool:
        """Whether its best way stands out of the noise, or all of its ways apart, which by chance
        they do in one of so many orders."""
        best = self.best(rank, role)
        if best > self.threshold:
            return True
        return best > math.log1p(LEAST_SHARE) and self._stands_apart(rank, role, orders_needed)

    def _stands_apart(self, rank: int, role: str, orders_needed: int) -> bool:
        own, others = (
            np.array([self._quarters.get(link, ()) for link in links])
            for links in (self.of(rank, role), [link for link in self.logs if rank not in link])
        )
        if not (own.size and others.size):
            return False
        rare = orders(own, others) >= orders_needed
        return gap(own, others) > (1 if rare else float(others.max() / others.min()))

    def of(self, rank: int, role: str) -> list[Link]:
        return self._by_role.get((rank, role), [])

    def typical_beside(self, rank: int, role: str, link: Link) -> float | None:
        """The median excess of a rank's ways in a role but for this one; None: it has no other."""
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
        """Of a rank beside those of its class, where all ways were measured at once."""
        own, others = (
            np.array([times for link, times in self._quarters.items() if (rank in link) == mine])
            for mine in (True, False)
        )
        return outlier_of(own, others)

    def sensitivity(self, world: int) -> Sensitivity | None:
        """None where no rank has several ways here, or nothing to compare them with."""
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
        """What its two ranks do in it."""
        return [(rank, self.roles[n % len(self.roles)]) for n, rank in enumerate(link)]


def _hides(by_noise: bool, least: float, farthest: float = 0.0) -> bool:
    return by_noise and (least > HALF_SPEED or farthest**2 > least)


def _noise_within(measured: Iterable[Measured]) -> float:
    """Between the halves of every way."""
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


def _slow_rank(rank: int, links: LinkTimes) -> Straggler | None:
    if links.at_once:
        return _slow_beside_others(rank, links)
    roles = _roles_of(rank, links)
    if not roles:
        return None
    mine = [link for role in roles for link in links.of(rank, role)]
    least = min(links.threshold, *roles.values())
    slow = sum(links.excess(link) >= least for link in mine)
    factor = math.exp(max(roles.values()))
    return Straggler(
        "rank", (rank,), tuple(roles), factor, links.noise, slow, len(mine), math.exp(links.good),
        links.apart,
    )  # fmt: skip


def _slow_beside_others(rank: int, links: LinkTimes) -> Straggler | None:
    stand = links.outlier(rank)
    if stand is None or not stand.is_slow:
        return None
    return Straggler(
        "rank", (rank,), ROUND_TRIP, 1 + stand.typical_ns / stand.good_ns,
        math.log1p(stand.noise_ns / stand.good_ns), stand.own, stand.own, stand.good_ns,
        links.apart,
    )  # fmt: skip


def _roles_of(rank: int, links: LinkTimes) -> dict[str, float]:
    """The roles in which even the best pair of a rank is slow, with that slowness."""
    if not links.usable:
        return {}
    found = {}
    for role in links.roles:
        # One pair alone cannot tell its two ranks apart.
        if len(links.of(rank, role)) > 1 and links.is_slow(rank, role):
            found[role] = links.best(rank, role)
    return found


def _fast_at_home(slow: Straggler, near: LinkTimes) -> bool:
    """Whether within its node a rank is not half as slow as to others; not where nothing is there
    to compare it with.
    """
    (rank,) = slow.ranks
    at_home = [near.excess(link) for role in slow.roles for link in near.of(rank, role)]
    return near.comparable and bool(at_home) and max(at_home) < math.log(slow.factor) / 2


def _beyond_its_ranks(link: Link, links: LinkTimes, others: LinkTimes) -> float:
    """What of the slowness of a way its ranks have not in their other ways, of either class.

    A rank counts as slow as half of its other ways are, also where that is not enough to name it.
    """
    own = [0.0]
    for end in links.roles_in(link):
        for each in (links, others):
            typical = each.typical_beside(*end, link) if each.comparable else None
            own += [] if typical is None else [typical]
    return links.excess(link) - max(own)


def _by_nic(of_ranks: Mapping[int, Straggler], places: Places) -> list[Straggler]:
    """One suspect for each NIC all of whose ranks are; of any other NIC its ranks are."""
    found: dict[tuple[int, ...], Straggler] = {}
    for rank, suspect in of_ranks.items():
        sharing = places.sharing(rank)
        if not set(sharing) <= of_ranks.keys():
            found[rank,] = dataclasses.replace(suspect, kind="rank")
        elif sharing not in found:
            all_of_it = [of_ranks[each] for each in sharing]
            roles = {role: None for each in all_of_it for role in each.roles}
            found[sharing] = dataclasses.replace(
                suspect,
                ranks=sharing,
                roles=tuple(roles),
                factor=min(each.factor for each in all_of_it),
                links=sum(each.links for each in all_of_it),
                of_links=sum(each.of_links for each in all_of_it),
            )
    return list(found.values())


def _slow_links(links: LinkTimes, others: LinkTimes) -> list[Straggler]:
    if not links.usable:
        return []
    found = []
    for link in links.logs:
        rest = _beyond_its_ranks(link, links, others)
        if rest > links.link_threshold:
            # Only where both have other pairs in these roles is it the way between them.
            known = min(len(links.of(*end)) for end in links.roles_in(link)) > 1
            found.append(
                Straggler(
                    "link" if known else "pair", link, (), math.exp(rest), links.noise, 1, 1,
                    math.exp(links.good), links.apart,
                )
            )  # fmt: skip
    return found
