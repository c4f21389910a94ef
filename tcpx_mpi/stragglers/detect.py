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

Where all pairs were measured at once, by their both ways, a rank is judged by its standing
(`outlier.py`): by times, beside the other ranks in the same quarters of the row, and by the noise
of these alone.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.stragglers.outlier import LEAST_SHARE, TIMES_NOISE, Outlier, outlier_of

#: Fewer ways than this of a class have no quartile to speak of.
_LEAST_LINKS = 3
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
    #: The same in the quarters of the row, where all ways were measured at once.
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
    #: Whether it is noise that asks for `most`, not a least share.
    by_noise: bool


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
        rest = min(_best_in_a_role(rank, suspect.roles, links) for rank in suspect.ranks)
        threshold = links.threshold
    else:
        link = (suspect.ranks[0], suspect.ranks[1])
        if link not in links.logs:
            return None
        rest = _beyond_its_ranks(link, links, class_of(fresh, places, not suspect.apart))
        threshold = links.link_threshold
    if rest == -math.inf:
        return None
    return math.exp(rest), rest > threshold and rest >= _AS_SLOW_AGAIN * math.log(suspect.factor)


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
        self.at_once = bool(self._quarters)
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

    def is_slow(self, link: Link) -> bool:
        return self.comparable and self.excess(link) > self.threshold

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
            stands = sorted(
                filter(None, map(self.outlier, range(world))), key=lambda each: each.least_factor
            )
            if not stands:
                return None
            least, most = stands[0], stands[-1]
            return Sensitivity(
                least.least_factor, most.least_factor, least.good_ns, self.apart, most.by_noise
            )
        several = any(len(self.of(rank, role)) > 1 for rank in range(world) for role in self.roles)
        if not (self.usable and several):
            return None
        factor = math.exp(self.threshold)
        by_noise = self.threshold <= TIMES_NOISE * self.noise
        return Sensitivity(factor, factor, math.exp(self.good), self.apart, by_noise)

    def roles_in(self, link: Link) -> list[tuple[int, str]]:
        """What its two ranks do in it."""
        return [(rank, self.roles[n % len(self.roles)]) for n, rank in enumerate(link)]


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
    slow = sum(map(links.is_slow, mine))
    factor = math.exp(max(roles.values()))
    return Straggler(
        "rank", (rank,), tuple(roles), factor, links.noise, slow, len(mine), math.exp(links.good),
        links.apart,
    )  # fmt: skip


def _slow_beside_others(rank: int, links: LinkTimes) -> Straggler | None:
    stand = links.outlier(rank)
    if stand is None or stand.certain_ns <= stand.least_ns:
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
        mine = links.of(rank, role)
        # One pair alone cannot tell its two ranks apart.
        if len(mine) > 1 and (best := min(map(links.excess, mine))) > links.threshold:
            found[role] = best
    return found


def _fast_at_home(slow: Straggler, near: LinkTimes) -> bool:
    """Whether within its node a rank is not half as slow as to others; not where nothing is there
    to compare it with.
    """
    (rank,) = slow.ranks
    at_home = [near.excess(link) for role in slow.roles for link in near.of(rank, role)]
    return near.comparable and bool(at_home) and max(at_home) < math.log(slow.factor) / 2


def _best_in_a_role(rank: int, roles: Iterable[str], links: LinkTimes) -> float:
    """How slow even the best pair of a rank is, in the role where it is slowest; -inf: unknown."""
    by_role = [min(map(links.excess, mine)) for role in roles if (mine := links.of(rank, role))]
    return max(by_role, default=-math.inf)


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
