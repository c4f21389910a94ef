"""The search for slow ranks, NICs and links, if pairs of ranks were measured apart.

A rank is as slow, sending or receiving, as its *best* pair in that role is over the good: a rank
that only met a slow one has other pairs that are good. What two ranks' own slowness does not
explain is the link between them. A NIC is slow where all of its ranks are, towards other nodes, and
within their own not half as much. Below 5 x the noise floor, or 5 %, nothing is named.

Whatever the noise, a rank is named whose links stand apart: every quarter of each is above every
quarter of every link without that rank; of few links, by more than those are from one another.

Where all pairs were measured at once, by both of their links, a rank is judged by its standing
(`outlier.py`): by times, beside the other ranks in the same quarters of the row, and by the noise
of these alone.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

from tcpx_mpi.stragglers.links import (
    ONE_DIRECTION,
    ROUND_TRIP,
    Link,
    LinkTimes,
    Measured,
    Places,
    Sensitivity,
    Straggler,
    class_of,
)
from tcpx_mpi.stragglers.rails import by_rail, rail_again, slow_rails

#: As many orders are enough for one that has been named before.
_RARE_AGAIN = 6
#: A retest shows this share of a factor's logarithm again, if more than the moment was slow. A
#: factor far from the first is as good as chance, on a machine that is busy with something else.
_AS_SLOW_AGAIN = 0.5


def find_stragglers(
    measured: Mapping[Link, Measured], places: Places, roles: Sequence[str] = ONE_DIRECTION
) -> list[Straggler]:
    """The slow ones, slowest first; empty if nothing stands out of the noise."""
    explained = slow_rails(measured, places, roles)
    measured = explained.rest
    near, far = (class_of(measured, places, apart, roles) for apart in (False, True))
    found = list(explained.rails)
    nics: dict[int, Straggler] = {}
    for rank in range(len(places.nodes)):
        of_near, of_far = _slow_rank(rank, near), _slow_rank(rank, far)
        if of_far and _fast_at_home(of_far, near):
            nics[rank] = dataclasses.replace(of_far, kind="NIC")
        elif slow := of_far or of_near:
            found.append(slow)
    found += _by_nic(nics, places)
    accused = {rank for suspect in found for rank in suspect.ranks}
    # Within a node a link is slow if its 2 ranks share a core with another process. In a mesh no
    # pair has the link alone, so it does not tell that from a slow link.
    slow_links = list(by_rail(_slow_links(far, near), far, places))
    if not (near.at_once or far.at_once):
        slow_links += _slow_links(near, far)
    of_class = {False: near, True: far}
    found += [
        suspect
        for suspect in slow_links
        if not any(_unlike(rank, of_class[suspect.apart]) for rank in accused & {*suspect.ranks})
    ]
    return sorted(found, key=lambda s: -s.factor)


def sensitivities(
    measured: Mapping[Link, Measured], places: Places, roles: Sequence[str] = ONE_DIRECTION
) -> list[Sensitivity]:
    """The sensitivity of each class in which a rank can be named, by noise as it is; empty if there
    is none."""
    both = (class_of(measured, places, apart, roles) for apart in (False, True))
    return [found for links in both if (found := links.sensitivity(len(places.nodes)))]


def factor_again(
    suspect: Straggler, fresh: Mapping[Link, Measured], places: Places
) -> tuple[float, bool] | None:
    """A suspect by fresh samples: its factor, and whether that confirms it: it stands out of their
    noise, and is half as much as at first, as a logarithm.

    None if they have too few of its links.
    """
    links = class_of(fresh, places, suspect.apart)
    if not links.usable:
        return None
    if suspect.kind == "rail":
        found = rail_again(suspect, fresh, places, _RARE_AGAIN)
        if found is None:
            return None
        rest, stands_out = found
    elif suspect.roles:
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


def _unlike(rank: int, links: LinkTimes) -> bool:
    """Whether the links of a slow rank differ by what makes it slow, so that it alone is named.

    Where all wait for all, what waits for it in one link is there early in another. What it serves
    two at a time it need not serve alike, and two links do not say how much theirs differ.
    """
    return links.at_once or any(len(links.of(rank, role)) == 2 for role in links.roles)


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
    """The part of a link's slowness that its ranks have not in their other links, of either class.

    A rank counts as slow as half of its other links are, also where that is not enough to name it.
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
            # Only where both have other pairs in these roles is it the link between them.
            known = min(len(links.of(*end)) for end in links.roles_in(link)) > 1
            found.append(
                Straggler(
                    "link" if known else "pair", link, (), math.exp(rest), links.noise, 1, 1,
                    math.exp(links.good), links.apart,
                )
            )  # fmt: skip
    return found
