"""One time for all ranks: their nodes' clocks are compared between batches, and put on rank 0's.

Where all ranks read one clock nothing is ever sent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tcpx_mpi.arrays import Int64s
from tcpx_mpi.clock.model import Edge, Tree, better
from tcpx_mpi.clock.rounds import parent, rounds_of
from tcpx_mpi.clock.source import ClockSource, Monotonic
from tcpx_mpi.clock.trips import Knot, knot_of
from tcpx_mpi.machine.disciplined_clock import Word, word
from tcpx_mpi.records.clock import TRIP_COLUMNS, RowClock, row_clock
from tcpx_mpi.world import World

#: Round trips of two clocks: so many, but where they are slow no more than fit in this time.
_TRIPS, _LEAST_TRIPS = 32, 8
_LONG_NS = 20_000_000
#: Those of the first time, which is to find a fast one among all that ranks do when they start.
_FIRST_TRIPS = 100
#: A row with more time between its batches compares clocks there, too.
_EVERY_NS = 1_000_000_000
#: Of an exchange so many are kept, the fastest.
_KEPT = 16
#: A machine was suspended where its clocks say so by this much.
_SUSPENDED_NS = 1_000_000


def clock_numbers(clocks: Sequence[str]) -> list[int]:
    """Ranks that read one clock have one number; rank 0's is 0."""
    order = {clock: number for number, clock in enumerate(dict.fromkeys(clocks))}
    return [order[clock] for clock in clocks]


@dataclass(frozen=True, eq=False)
class _Look:
    """The look that the first rank of a clock sends to all others after an exchange."""

    suspended_ns: int
    word: Word | None
    #: By the clock that answered, int64[trip, (asked, answered, heard)].
    trips: dict[int, Int64s]


class CommonClock:
    """The common clock on one rank; every method that says so is collective."""

    def __init__(
        self,
        world: World,
        clocks: Sequence[str],
        source: ClockSource | None = None,
        find_word: Callable[[], Word | None] = word,
    ) -> None:
        """`clocks`: what tells the clock of each rank from others."""
        self._world = world
        self._source = source if source is not None else Monotonic()
        self._find_word = find_word
        self.numbers = clock_numbers(clocks)
        self.is_one = max(self.numbers) == 0
        self._own = self.numbers[world.rank]
        self._first_ranks = [self.numbers.index(number) for number in range(max(self.numbers) + 1)]
        self._rounds = rounds_of(len(self._first_ranks))
        #: Since the last row ended, its last knot too, and since the run began.
        self._row: dict[int, list[Knot]] = defaultdict(list)
        self._trips: list[Int64s] = []
        self._begun: dict[int, Knot] = {}
        self._exchanges = 0
        self._suspended: dict[int, int] = {}
        self._was_suspended: dict[int, int] = defaultdict(int)
        self._contradicted: dict[int, int] = {}
        self._ahead = Tree({})
        self._looked_at = self._last_start = 0

    def begin_row(self, patience_s: float) -> None:
        """Collective: from here on rows have clocks."""
        if not self.is_one and not self._exchanges:
            self.exchange(patience_s)

    def end_row(self, patience_s: float) -> RowClock | None:
        """Collective: the clocks of the row that ends here; None where there is but one."""
        if self.is_one:
            return None
        self.exchange(patience_s)
        found = row_clock(
            self._row, np.concatenate(self._trips), self._was_suspended, self._contradicted
        )
        for knots in self._row.values():
            del knots[:-1]
        self._trips = self._trips[-1:]
        self._was_suspended = defaultdict(int)
        return found

    def agreed_start(self, lead_ns: int, what: str, patience_s: float) -> int:
        """Collective: an instant, on this rank's clock, that is at least `lead_ns` ahead of every
        rank; all ranks mean the same one, to the bound of their clocks."""
        if not self.is_one and self._last_start - self._looked_at > _EVERY_NS:
            self.exchange(patience_s)
        ready = self._ahead.to_common(self._own, self._source.now_ns()) + lead_ns
        start = self._world.maximum(ready, what, patience_s, while_alive=True)
        self._last_start = start
        return self._ahead.to_local(self._own, start)

    def exchange(self, patience_s: float | None = None) -> None:
        """Collective: compare all clocks, and fit them anew."""
        trips: dict[int, Int64s] = {}
        for pairs in self._rounds:
            for asks, answers in pairs:
                if self._world.rank == self._first_ranks[asks]:
                    trips[answers] = self._ask(answers, patience_s)
                elif self._world.rank == self._first_ranks[answers]:
                    peer = self._first_ranks[asks]
                    more = True
                    while more:
                        more = self._world.answer(peer, self._source.now_ns, "clocks", patience_s)
        look = None
        if self._world.rank == self._first_ranks[self._own]:
            look = _Look(self._source.suspended_ns(), self._find_word(), trips)
        told = self._world.allgather(look, "clocks", patience_s, while_alive=True)
        self._take([told[rank] for rank in self._first_ranks])

    def _ask(self, clock: int, patience_s: float | None) -> Int64s:
        peer, known = self._first_ranks[clock], self._row.get(clock)
        wanted = known[-1].bound_ns if known else 0  # as good as the last time, if it can be
        least = _TRIPS if known else _FIRST_TRIPS
        found: list[tuple[int, int, int]] = []
        began = self._source.now_ns()
        best = None
        more = True
        while more:
            spent = self._source.now_ns() - began
            enough = len(found) >= least and (best is None or best <= 3 * wanted or not known)
            more = not enough and not (len(found) >= _LEAST_TRIPS and spent > _LONG_NS)
            trip = self._world.ask(peer, more, self._source.now_ns, "clocks", patience_s)
            found.append(trip)
            took = trip[2] - trip[0]
            best = took if best is None else min(best, took)
        return np.array(found, np.int64)

    def _take(self, looks: Sequence[_Look]) -> None:
        trips = {clock: of_clock for look in looks for clock, of_clock in look.trips.items()}
        words = [look.word for look in looks]
        for clock, of_clock in sorted(trips.items()):
            by_trips = knot_of(of_clock)
            by_words = _word_knot(words[clock], words[parent(clock)], by_trips)
            knot, self._contradicted[clock] = better(by_trips, by_words)
            self._row[clock].append(knot)
            self._begun.setdefault(clock, knot)
        self._trips.append(_fastest_trips(self._exchanges, trips))
        for clock, look in enumerate(looks):
            before = self._suspended.setdefault(clock, look.suspended_ns)
            if look.suspended_ns - before > _SUSPENDED_NS:
                self._was_suspended[clock] += look.suspended_ns - before
            self._suspended[clock] = look.suspended_ns
        self._exchanges += 1
        self._ahead = Tree({clock: self._from_now_on(clock) for clock in sorted(self._row)})
        # Equal on all ranks, so that they decide alike when to look again.
        self._looked_at = max(self._last_start, self._looked_at)

    def _from_now_on(self, clock: int) -> Edge:
        """The rate is known the better the longer ago the run began; anew where a clock moved."""
        knots = self._row[clock]
        if Edge(knots).moved_ns:
            self._begun[clock] = knots[-1]
        return Edge([self._begun[clock], knots[-1]]).ahead()


def _fastest_trips(exchange: int, trips: dict[int, Int64s]) -> Int64s:
    """The fastest of each pair, in order: `TRIP_COLUMNS`."""
    parts = [np.zeros((0, len(TRIP_COLUMNS)), np.int64)]
    for clock, of_clock in sorted(trips.items()):
        fastest = np.argsort(of_clock[:, 2] - of_clock[:, 0], kind="stable")[:_KEPT]
        chosen = of_clock[np.sort(fastest)]
        names = np.tile(np.array([exchange, clock], np.int64), (len(chosen), 1))
        parts.append(np.hstack([names, chosen]))
    joined: Int64s = np.concatenate(parts)
    return joined


def _word_knot(own: Word | None, others: Word | None, beside: Knot) -> Knot | None:
    """The knot by two nodes' words on their clocks; None if there are none, or not of one time."""
    if own is None or others is None or (own.name, own.of) != (others.name, others.of):
        return None
    offset = others.ahead_ns - own.ahead_ns
    return Knot(beside.at_ns, offset, own.bound_ns + others.bound_ns, own.name)
