"""The clocks of a row on one time, that of clock 0: lines between knots, and what breaks them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tcpx_mpi.arrays import Int64s, np
from tcpx_mpi.clock.rounds import path
from tcpx_mpi.clock.trips import MOST_RATE, Knot

_Times = TypeVar("_Times", int, Int64s)

#: A rate is known well enough to predict by it if the bounds leave no more doubt than this.
_KNOWN_RATE = 50e-6
#: A clock whose rate changes by more between two looks was stepped or slewed.
_MOST_CHANGE = 100e-6


@dataclass(frozen=True)
class Edge:
    """One clock against the one that asks it, in a row: its knots, oldest first."""

    knots: Sequence[Knot]
    #: Of the offset, outside the knots.
    rate: float = 0.0

    def offset_at(self, times_ns: Int64s) -> Int64s:
        """Own time less the other's, at instants of the own time."""
        # From the first knot on: nanoseconds of a year are more than a float tells apart.
        first = self.knots[0]
        at = np.array([knot.at_ns - first.at_ns for knot in self.knots], np.float64)
        offset = np.array([knot.offset_ns - first.offset_ns for knot in self.knots], np.float64)
        since = (times_ns - first.at_ns).astype(np.float64)
        found = np.interp(since, at, offset)
        if self.rate:
            found += self.rate * (np.minimum(since, 0) + np.maximum(since - at[-1], 0))
        return np.rint(found).astype(np.int64) + first.offset_ns

    @property
    def bound_ns(self) -> int:
        """The offset is off by no more anywhere between the knots: of two ends whose errors are
        within bounds the line between is, too. By as much as a clock moved it is wider: before
        that instant the one end is right, behind it the other.
        """
        return max(knot.bound_ns for knot in self.knots) + self.moved_ns

    @property
    def drift(self) -> float:
        """From the first knot to the last: so much is gained in a unit of time; NaN of one."""
        first, last = self.knots[0], self.knots[-1]
        if last.at_ns <= first.at_ns:
            return float("nan")
        return (last.offset_ns - first.offset_ns) / (last.at_ns - first.at_ns)

    @property
    def moved_ns(self) -> int:
        """By how much the clock moved beyond what any rate explains; 0: it did not."""
        within = max(knot.moved_ns for knot in self.knots)
        rate: float | None = None
        moved = 0
        for one, other in itertools.pairwise(self.knots):
            since = other.at_ns - one.at_ns
            apart = other.offset_ns - one.offset_ns
            doubt = one.bound_ns + other.bound_ns
            expected, most = (0.0, MOST_RATE) if rate is None else (rate * since, _MOST_CHANGE)
            beyond = abs(apart - expected) - doubt - most * since
            if beyond > 0:
                moved = max(moved, round(abs(apart - expected)))
            elif since > 0 and doubt <= _KNOWN_RATE * since:
                rate = apart / since
        return max(within, moved)

    def ahead(self) -> Edge:
        """The expected knot from now on: the last one, with the rate if it is known."""
        first, last = self.knots[0], self.knots[-1]
        since = last.at_ns - first.at_ns
        known = self.moved_ns == 0 and since > 0
        known = known and first.bound_ns + last.bound_ns <= _KNOWN_RATE * since
        return Edge([last], self.drift if known else 0.0)


class Tree:
    """All clocks of a run for a while; `edges` are by the clock that answers, 0 has none."""

    def __init__(self, edges: Mapping[int, Edge]) -> None:
        self.edges = edges

    def to_common(self, clock: int, times_ns: _Times) -> _Times:
        """Instants of a clock, on clock 0."""
        times = np.atleast_1d(np.asarray(times_ns, np.int64))
        for each in path(clock):
            times = times - self.edges[each].offset_at(times)
        return times if isinstance(times_ns, np.ndarray) else int(times[0])

    def to_local(self, clock: int, times_ns: _Times) -> _Times:
        """The inverse."""
        times = np.atleast_1d(np.asarray(times_ns, np.int64))
        for each in reversed(path(clock)):
            edge = self.edges[each]
            # Offsets are told by the own time, which this looks for: they hardly change with it.
            own = times + edge.knots[-1].offset_ns
            for _ in range(2):
                own = times + edge.offset_at(own)
            times = own
        return times if isinstance(times_ns, np.ndarray) else int(times[0])

    def bound_ns(self, clock: int) -> int:
        """The bound of a clock against clock 0: those of all steps on the way."""
        return sum(self.edges[each].bound_ns for each in path(clock))

    def bound_between_ns(self, one: int, other: int) -> int:
        """The bound of an interval that begins on one clock and ends on another; 0 for the same
        clock."""
        ways = {*path(one)} ^ {*path(other)}  # what both have in common cancels out
        return sum(self.edges[each].bound_ns for each in ways)


def better(by_trips: Knot, word: Knot | None) -> tuple[Knot, int]:
    """The knot with the lower bound: by round trips, or by what keeps both clocks.

    The second value is by how much they contradict each other, beyond both bounds: then the round
    trips are right, which need no third clock.
    """
    if word is None:
        return by_trips, 0
    apart = abs(word.offset_ns - by_trips.offset_ns) - word.bound_ns - by_trips.bound_ns
    if apart > 0:
        return by_trips, apart
    return (word if word.bound_ns < by_trips.bound_ns else by_trips), 0
