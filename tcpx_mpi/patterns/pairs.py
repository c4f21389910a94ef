"""Two ranks at a time, every rank busy: a tournament in which each meets each, both ways in turn.

Rounds 2t and 2t + 1 have the same pairs; in the second of them the other one sends. The first pairs
are those of `pair`. With `world` ranks, an even number, world - 1 encounters take 2 (world - 1)
rounds: the number of rows grows with the ranks, not with their square. Beyond them a row may have
any pairs at all, told as text, in which suspects meet others again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from tcpx_mpi.patterns import NAMES, fewer_than_two
from tcpx_mpi.patterns.pair import begins, partner
from tcpx_mpi.schedule.pattern import Pattern, pairs_of_text
from tcpx_mpi.schedule.table import (
    BlockTable,
    Expected,
    Layout,
    Schedule,
    ScheduleBuilder,
    make_layout,
)

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
    other, sends = _opponent(number, receiver, world)
    return -1 if sends else other


#: (this rank, the world) -> (the other one, whether this rank sends).
_Opponent = Callable[[int, int], tuple[int, bool]]


def _opponent(number: int, rank: int, world: int) -> tuple[int, bool]:
    """(the other one, whether this rank sends) in a round of the tournament."""
    for a, b in encounters(world)[number // 2]:
        if rank in (a, b):
            return (b if rank == a else a), (rank == a) == (number % 2 == 0)
    raise AssertionError("everybody meets somebody")


def meeting(text: str) -> Pattern:
    """A row with these pairs; every rank is in one of them."""
    senders = {receiver: sender for sender, receiver in pairs_of_text(text)}
    receivers = {sender: receiver for receiver, sender in senders.items()}

    def opponent(rank: int, world: int) -> tuple[int, bool]:
        sends = rank in receivers
        return (receivers if sends else senders)[rank], sends

    return _one_row(opponent)


def _refuse(world: int) -> str | None:
    if world >= 2 and world % 2:
        return (
            f"pairs needs an even number of ranks; found {world}; "
            f"start {world - 1} or {world + 1} ranks"
        )
    return fewer_than_two("pairs", world)


def _one_row(opponent: _Opponent) -> Pattern:
    def schedule(rank: int, world: int) -> Schedule:
        other, sends = opponent(rank, world)
        steps = ScheduleBuilder()
        if sends:
            steps.send(other, 0)
        else:
            steps.receive(other, 0)
        return steps.build()

    def layout(rank: int, world: int, size_bytes: int) -> Layout:
        _, sends = opponent(rank, world)
        return make_layout(
            send=BlockTable.of_lengths([size_bytes if sends else 0]),
            recv=BlockTable.of_lengths([0 if sends else size_bytes]),
        )

    def expected(rank: int, world: int) -> Expected:
        other, sends = opponent(rank, world)
        return Expected.of_rows([] if sends else [(0, other, 0)])

    return _pattern(schedule, layout, expected)


def _rounds(world: int) -> Sequence[Pattern]:
    return [_one_row(functools.partial(_opponent, number)) for number in range(2 * (world - 1))]


def _pattern(
    schedule: Callable[[int, int], Schedule],
    layout: Callable[[int, int, int], Layout],
    expected: Callable[[int, int], Expected],
    rounds: Callable[[int], Sequence[Pattern]] | None = None,
) -> Pattern:
    return Pattern(
        name="pairs",
        summary=NAMES["pairs"],
        busbw_factor=lambda world: 1.0,
        time_divisor=1,
        refuse=_refuse,
        schedule=schedule,
        layout=layout,
        expected=expected,
        rounds=rounds,
        rounds_alone=_ONE_ENCOUNTER,
        sender=sender_of,
        of_pairs=meeting,
        notes=("a row is one round: half of the ranks send, each to one of the other half",),
    )


def _schedule(rank: int, world: int) -> Schedule:
    """To and from everybody: the connections of all rounds."""
    steps = ScheduleBuilder()
    for other in range(world):
        if other != rank:
            steps.receive(other, 0)
            steps.send(other, 0)
    return steps.build()


def _layout(rank: int, world: int, size_bytes: int) -> Layout:
    whole = BlockTable.of_lengths([size_bytes])
    return make_layout(send=whole, recv=whole)


def _expected(rank: int, world: int) -> Expected:
    return Expected.of_rows([(0, (rank + 1) % world, 0)])


PAIRS = _pattern(_schedule, _layout, _expected, _rounds)
