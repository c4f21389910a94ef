"""Two ranks at a time, every rank busy: a tournament in which each meets each, both ways in turn.

Rounds 2t and 2t + 1 have the same pairs; in the second of them the other one sends. The first pairs
are those of `pair`. With `world` ranks, an even number, world - 1 encounters take 2 (world - 1)
rounds: the number of rows grows with the ranks, not with their square. Beyond them a row may have
any pairs at all, told as text, in which suspects meet others again.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from tcpx_mpi.patterns.one_to_one import Ends, one_to_one, to_and_from_all
from tcpx_mpi.patterns.pair import begins, partner, refuse
from tcpx_mpi.patterns.program import of_bytes
from tcpx_mpi.schedule.pattern import Pattern, Rounds, pairs_of_text

#: Rounds without `--all`: every rank meets one other, both ways.
_ONE_ENCOUNTER = 2


@functools.lru_cache(maxsize=8)
def encounters(world: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    """The pairs of each encounter, by the circle method: one rank stays, the others move on by one.

    Every two of `world` ranks meet exactly once. In a pair the first one sends first.
    """
    # Seats face each other; numbered so that the first encounter is that of `pair`.
    first = [(rank, partner(rank, world)) for rank in range(world) if begins(rank, world)]
    seats = [a for a, _ in first] + [b for _, b in reversed(first)]
    found = []
    for _ in range(world - 1):
        found.append(tuple((seats[i], seats[world - 1 - i]) for i in range(world // 2)))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return tuple(found)


def sender_of(number: int, receiver: int, world: int) -> int:
    """Who sends to this rank in this round; -1 where it sends itself."""
    source, _ = _ends(number, receiver, world)
    return -1 if source is None else source


def _ends(number: int, rank: int, world: int) -> tuple[int | None, int | None]:
    """Whom a rank receives from, or sends to, in a round of the tournament."""
    for a, b in encounters(world)[number // 2]:
        if rank in (a, b):
            other = b if rank == a else a
            return (None, other) if (rank == a) == (number % 2 == 0) else (other, None)
    raise AssertionError("everybody meets somebody")


def meeting(text: str) -> Pattern:
    """A row with these pairs; every rank is in one of them."""
    senders = {receiver: sender for sender, receiver in pairs_of_text(text)}
    receivers = {sender: receiver for receiver, sender in senders.items()}
    return _round(lambda rank, world: (senders.get(rank), receivers.get(rank)))


def _round(ends: Ends) -> Pattern:
    return one_to_one("pairs", ends, **_FIELDS)


def _rounds(world: int) -> Sequence[Pattern]:
    return [_round(functools.partial(_ends, number)) for number in range(2 * (world - 1))]


_FIELDS: dict[str, Any] = {
    "refuse": lambda world: refuse("pairs", world),
    "sender": sender_of,
    "notes": ("a row is one round: half of the ranks send, each to one of the other half",),
}
PAIRS = to_and_from_all("pairs", rounds=Rounds(_rounds, _ONE_ENCOUNTER, meeting), **_FIELDS)
PROGRAMS = (of_bytes("pairs", lambda form: PAIRS),)
