"""Suspects of a tournament meet others again, the best ones first: who with whom. Pure.

A name from one meeting with each may be chance, or the doing of whoever was met. So every suspect
meets two of those who are good beyond doubt once more, and the ends of a slow link each other, as
do the ranks of a slow rail; the other ranks meet too, for a busy machine must stay as busy. Only
what shows again is named.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tcpx_mpi.stragglers.detect import as_slow_again, factor_again, find_stragglers
from tcpx_mpi.stragglers.links import ONE_DIRECTION, Link, Measured, Places, Straggler

#: So many good ranks does a suspect meet.
_PARTNERS = 2
#: So many times do all ranks meet again, at most: not more often than before, where they are few.
_MOST_MEETINGS = 8

Pairs = list[Link]


@dataclass(frozen=True)
class Judgement:
    """A suspect, and what fresh samples say of it."""

    suspect: Straggler
    #: Its factor by them; None if it was not measured again.
    again: float | None
    #: Whether it may be called slow: it shows again, or nothing was measured again at all.
    named: bool
    #: Whether it may be slow all the same: noise hides it, or it was not measured again.
    doubted: bool


def judged(
    measured: Mapping[Link, Measured],
    fresh: Mapping[Link, Measured],
    places: Places,
    roles: Sequence[str] = ONE_DIRECTION,
) -> list[Judgement]:
    """All suspects, slowest first; `fresh` is of meetings after that, empty if there were none.

    `roles` are those of `find_stragglers`.
    """
    found = []
    suspects = find_stragglers(measured, places, roles)
    for suspect in suspects:
        told = _without_other_rails(suspect, suspects, fresh, places)
        factor, stands_out = factor_again(suspect, told, places) or (None, not fresh)
        doubted = not stands_out and (factor is None or as_slow_again(suspect, factor))
        found.append(Judgement(suspect, factor, stands_out, doubted))
    return found


def _without_other_rails(
    suspect: Straggler,
    suspects: Sequence[Straggler],
    fresh: Mapping[Link, Measured],
    places: Places,
) -> dict[Link, Measured]:
    """The links in which no rail has a part that is slow for itself."""
    slow = {
        rank
        for each in suspects
        if each.kind == "rail" and set(each.ranks).isdisjoint(suspect.ranks)
        for rank in each.ranks
    }
    return {
        link: each
        for link, each in fresh.items()
        if not places.apart(link) or slow.isdisjoint(link)
    }


def most_retests(world: int) -> int:
    """An upper bound for the meetings of one size; each is two rows, one for each direction."""
    return min(_MOST_MEETINGS, world - 1)


def retests(
    stragglers: Sequence[Straggler], measured: Mapping[Link, Measured], places: Places
) -> list[Pairs]:
    """Pairs of all ranks, a list for each meeting; those of the slowest suspects come first."""
    world = len(places.nodes)
    wanted = _wanted(stragglers, measured, places)
    found: list[Pairs] = []
    while wanted and len(found) < most_retests(world):
        free = set(range(world))
        pairs: Pairs = []
        for pair in list(wanted):
            if free.issuperset(pair):
                pairs.append(pair)
                wanted.remove(pair)
                free -= set(pair)
        # The others meet as the first suspects do, within a node or not: to compare them with.
        apart = places.apart(pairs[0])
        while free:
            rank = free.pop()
            alike = [other for other in sorted(free) if places.apart((rank, other)) == apart]
            other = alike[0] if alike else min(free)
            free.remove(other)
            pairs.append((rank, other))
        found.append(pairs)
    return found


def _wanted(
    stragglers: Sequence[Straggler], measured: Mapping[Link, Measured], places: Places
) -> list[Link]:
    """Pairs that should meet, the most wanted first; no pair twice, in either order."""
    accused = {rank for straggler in stragglers for rank in straggler.ranks}
    badness = _badness(accused, measured, places)
    wanted: dict[frozenset[int], Link] = {}
    for straggler in stragglers:
        if straggler.kind == "rail":
            for pair in _within(straggler.ranks, places):
                wanted.setdefault(frozenset(pair), pair)
        elif not straggler.roles:
            link = (straggler.ranks[0], straggler.ranks[1])
            wanted.setdefault(frozenset(link), link)
        for rank in straggler.ranks:
            others = [
                other
                for other in range(len(places.nodes))
                if other not in straggler.ranks and places.apart((rank, other)) == straggler.apart
            ]
            others.sort(key=lambda other: (other in accused, badness[other]))
            for other in others[:_PARTNERS]:
                wanted.setdefault(frozenset((rank, other)), (rank, other))
    return list(wanted.values())


def _within(ranks: Sequence[int], places: Places) -> list[Link]:
    """Each rank of a rail with the next ones: what only they do is slow, and the others, who meet
    each other then, have no part in it.
    """
    turned = [(ranks, [*ranks[by:], *ranks[:by]]) for by in range(1, 1 + _PARTNERS)]
    pairs = [pair for both in turned for pair in zip(*both, strict=True)]
    return [pair for pair in pairs if places.apart(pair)]


def _badness(
    accused: set[int], measured: Mapping[Link, Measured], places: Places
) -> dict[int, float]:
    """By rank its median log time over that of all such links, with ranks that nobody accuses."""
    logs = {link: math.log(each.time_ns) for link, each in measured.items() if each.time_ns > 0}
    of_class = {
        apart: [log for link, log in logs.items() if places.apart(link) == apart]
        for apart in (False, True)
    }
    typical = {apart: float(np.median(found)) for apart, found in of_class.items() if found}

    def of(rank: int) -> float:
        rest = [
            log - typical[places.apart(link)]
            for link, log in logs.items()
            if rank in link and not (accused - {rank}).intersection(link)
        ]
        return float(np.median(rest)) if rest else math.inf

    return {rank: of(rank) for rank in range(len(places.nodes))}
