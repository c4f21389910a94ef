"""Which clocks are compared with which, in how many rounds: a binomial tree below clock 0."""

from __future__ import annotations


def rounds_of(clocks: int) -> list[list[tuple[int, int]]]:
    """(clock that asks, clock that answers) of each round; a clock is in one pair of a round.

    log2(clocks) rounds, rounded up. Each clock but 0 answers in exactly one of them, and whoever
    asks it is nearer to clock 0 by one step.
    """
    distance = 1
    found = []
    while distance < clocks:
        asking = range(0, clocks - distance, 2 * distance)
        found.append([(asks, asks + distance) for asks in asking])
        distance *= 2
    return found


def parent(clock: int) -> int:
    """The clock that asks this one: the same number without its lowest bit."""
    return clock & (clock - 1)


def path(clock: int) -> list[int]:
    """The clocks from this one on that are left on the way to clock 0, which is not among them."""
    found = []
    while clock:
        found.append(clock)
        clock = parent(clock)
    return found
