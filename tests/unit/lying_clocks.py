"""Clocks that lie, on a time that is invented, and the network between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.clock.rounds import parent, rounds_of
from tcpx_mpi.clock.trips import Knot, knot_of


@dataclass
class Time:
    """The true time."""

    ns: int = 0


@dataclass
class LyingClock:
    """A clock source that is ahead, drifts and steps."""

    time: Time
    offset_ns: int = 0
    ppm: float = 0.0
    #: (true time, by how much it jumps then).
    steps: Sequence[tuple[int, int]] = ()
    #: How long an answer stays on its way after this clock was read.
    late_ns: int = 0

    def at(self, true_ns: int) -> int:
        jumped = sum(by for when, by in self.steps if true_ns >= when)
        return true_ns + self.offset_ns + round(self.ppm * 1e-6 * true_ns) + jumped

    def now_ns(self) -> int:
        return self.at(self.time.ns)

    def suspended_ns(self) -> int:
        return 0


@dataclass
class Network:
    """What a message takes: at least `least_ns`, more by chance, and one way always `there_ns`."""

    time: Time
    rng: np.random.Generator
    least_ns: int = 15_000
    there_ns: int = 0
    #: Whether the way of the answer is the slow one.
    backwards: bool = False
    spent_ns: list[int] = field(default_factory=list)

    def trips(self, asks: LyingClock, answers: LyingClock, count: int) -> NDArray[np.int64]:
        began = self.time.ns
        found = []
        for _ in range(count):
            asked = asks.now_ns()
            self._pass(self.there_ns * (not self.backwards))
            answered = answers.now_ns()
            self._pass(self.there_ns * self.backwards)
            found.append((asked, answered, asks.now_ns()))
        self.spent_ns.append(self.time.ns - began)
        return np.array(found, np.int64)

    def _pass(self, more_ns: int) -> None:
        self.time.ns += self.least_ns + more_ns + int(self.rng.exponential(8_000))

    def exchange(
        self, clocks: Mapping[int, LyingClock] | Sequence[LyingClock], count: int = 32
    ) -> dict[int, Knot]:
        """All clocks are compared, the pairs of a round at once; how long each took is kept."""
        knots = {}
        for pairs in rounds_of(len(clocks)):
            began, longest = self.time.ns, 0
            for asks, answers in pairs:
                self.time.ns = began
                knots[answers] = knot_of(self.trips(clocks[asks], clocks[answers], count))
                longest = max(longest, self.spent_ns[-1])
                assert parent(answers) == asks
            self.time.ns = began + longest
        return knots
