"""Two ranks at a time, every rank busy: each meets each, both directions in turn.

Rounds 2t and 2t + 1 have the same pairs; in the second of them the other one sends. The first pairs
are those of `pair`. With `world` ranks, an even number, world - 1 encounters take 2 (world - 1)
rounds: the number of rows grows with the ranks, not with their square. Where that is more than was
asked for, a sample of them is run. Beyond them a row may have any pairs at all, told as text, in
which suspects meet others again.

A sample has every rank meet ranks at all distances, for neighbours share a node, a switch or a rack
and those far away do not: in neighbourhoods of 2, 4, 8, ... ranks it meets the one half of them
away, half of the world away it meets that of `pair`, and the rest are encounters of the tournament,
evenly spaced.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from tcpx_mpi.patterns.one_to_one import Ends, one_to_one, to_and_from_all
from tcpx_mpi.patterns.pair import begins, partner, refuse
from tcpx_mpi.patterns.program import of_bytes
from tcpx_mpi.schedule.pattern import Pattern, Rounds, pairs_of_text

#: Rounds without `--all`: every rank meets one other, in both directions.
_ONE_ENCOUNTER = range(2)
#: Of a sample, so many encounters at least are neither those of neighbours nor that of `pair`.
_LEAST_OF_OTHERS = 3

Pairs = tuple[tuple[int, int], ...]


def encounter(number: int, world: int) -> Pairs:
    """The pairs of an encounter; in a pair the first one sends first.

    Of the first world - 1, every two ranks meet exactly once, by the circle method: one rank stays,
    the others move on by one. In those beyond neighbours meet: at distance 1, 2, 4, ...
    """
    if number >= world - 1:
        return _neighbours(1 << (number - (world - 1)), world)
    # Seats face each other; numbered so that the first encounter is that of `pair`.
    first = [(rank, partner(rank, world)) for rank in range(world) if begins(rank, world)]
    stays, *moving = [a for a, _ in first] + [b for _, b in reversed(first)]
    seats = [stays, *moving[world - 1 - number :], *moving[: world - 1 - number]]
    return tuple((seats[i], seats[world - 1 - i]) for i in range(world // 2))


def _neighbours(distance: int, world: int) -> Pairs:
    """Halves of neighbourhoods of 2 x distance ranks; who has nobody there meets the next of those
    that have not, either."""
    pairs = [
        (rank, rank + distance)
        for rank in range(world)
        if not rank & distance and rank + distance < world
    ]
    left = sorted(set(range(world)) - {rank for pair in pairs for rank in pair})
    return (*pairs, *zip(left[::2], left[1::2], strict=True))


def _scales(world: int) -> int:
    """The number of encounters of neighbours: below half of the world."""
    return max((world // 2 - 1).bit_length(), 0)


def sample(world: int, most_pairs: int) -> Sequence[int]:
    """The encounters of a run with `--all`: the tournament, or a sample of `--pairs` pairs, rounded
    up. A sample always has enough to tell a rank, a node and the links between nodes apart."""
    scales = _scales(world)
    wanted = max(-(-most_pairs // (world // 2)), 1 + scales + _LEAST_OF_OTHERS)
    if not most_pairs or wanted >= world - 1:
        return range(world - 1)
    others = wanted - scales - 1
    spaced = [1 + step * (world - 2) // others for step in range(others)]
    return [0, *range(world - 1, world - 1 + scales), *spaced]


def sender_of(number: int, receiver: int, world: int) -> int:
    """The sender to this rank in this round; -1 if it sends itself."""
    source, _ = _ends(number, receiver, world)
    return -1 if source is None else source


def _ends(number: int, rank: int, world: int) -> tuple[int | None, int | None]:
    """Whom a rank receives from, or sends to, in a round of the tournament."""
    other, is_first = _met(number // 2, world)[rank]
    return (None, other) if is_first == (number % 2 == 0) else (other, None)


@functools.lru_cache(maxsize=256)
def _met(number: int, world: int) -> dict[int, tuple[int, bool]]:
    """Rank -> whom it meets in an encounter, and whether it sends first."""
    met = {}
    for a, b in encounter(number, world):
        met[a], met[b] = (b, True), (a, False)
    return met


def meeting(text: str) -> Pattern:
    """A row with these pairs; every rank is in one of them."""
    senders = {receiver: sender for sender, receiver in pairs_of_text(text)}
    receivers = {sender: receiver for receiver, sender in senders.items()}
    return _round(lambda rank, world: (senders.get(rank), receivers.get(rank)))


def _round(ends: Ends) -> Pattern:
    return one_to_one("pairs", ends, **_FIELDS)


def _rounds(world: int) -> Sequence[Pattern]:
    encounters = world - 1 + _scales(world)
    return [_round(functools.partial(_ends, number)) for number in range(2 * encounters)]


def _chosen(world: int, everybody: bool, most_pairs: int) -> Sequence[int]:
    if not everybody:
        return _ONE_ENCOUNTER
    return [2 * each + way for each in sample(world, most_pairs) for way in (0, 1)]


_FIELDS: dict[str, Any] = {
    "refuse": lambda world: refuse("pairs", world),
    "sender": sender_of,
    "notes": ("a row is one round: half of the ranks send, each to one of the other half",),
}
PAIRS = to_and_from_all("pairs", rounds=Rounds(_rounds, _chosen, meeting), **_FIELDS)
PROGRAMS = (of_bytes("pairs", lambda form: PAIRS),)
