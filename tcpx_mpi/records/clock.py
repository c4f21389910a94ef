"""The nodes' clocks in a row: the round trips, and what follows of them."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tcpx_mpi.arrays import Int64s, np
from tcpx_mpi.clock.model import Edge, Tree
from tcpx_mpi.clock.rounds import parent
from tcpx_mpi.clock.trips import Knot, middles

#: Of a round trip: which exchange of the run it was in, the clock that answered, and three times;
#: the last is what is left of its middle beside the fit.
TRIP_COLUMNS = ("exchange", "clock", "asked_ns", "answered_ns", "heard_ns")
KNOT_COLUMNS = ("clock", *(item.name for item in dataclasses.fields(Knot)))


@dataclass(frozen=True)
class ClockFit:
    """The fit of one clock in a row, against clock 0 unless `other` is named."""

    clock: int
    #: The clock that asks it, and its drift against that: gained in a second, in 1e-6 of it.
    other: int
    drift_ppm: float
    #: No instant of the row that was put on clock 0's time is off by more.
    bound_ns: int
    #: The round trip that is farthest from the line, beyond its own bound; 0: none is.
    residual_ns: int
    #: Beyond what any rate explains; 0: it did not move.
    moved_ns: int
    #: How long its machine was suspended.
    suspended_ns: int
    #: By how much the word of what keeps the clock contradicts the round trips; 0: not at all.
    contradicted_ns: int
    #: "round trips", or what keeps the clock.
    source: str


@dataclass(frozen=True, eq=False)
class RowClock:
    """The clocks of a run of several in one row."""

    tree: Tree
    #: int64[trip, `TRIP_COLUMNS`]: the fastest of each exchange.
    trips: Int64s
    #: By clock, but 0.
    fits: Sequence[ClockFit]

    @property
    def bound_ns(self) -> int:
        """The bound of all clocks against clock 0."""
        return max((fit.bound_ns for fit in self.fits), default=0)


def row_clock(
    knots: Mapping[int, Sequence[Knot]],
    trips: Int64s,
    suspended_ns: Mapping[int, int],
    contradicted_ns: Mapping[int, int],
) -> RowClock:
    """The clocks of a row; what is known of them is by clock."""
    tree = Tree({clock: Edge(tuple(of_clock)) for clock, of_clock in sorted(knots.items())})
    left = residuals(tree, trips)  # at once: of each clock by itself they are a square of clocks
    fits = []
    for clock, edge in tree.edges.items():
        named = sorted({knot.source for knot in edge.knots if knot.source})
        fits.append(
            ClockFit(
                clock,
                parent(clock),
                edge.drift * 1e6,
                tree.bound_ns(clock),
                int(left[trips[:, 1] == clock].max(initial=0)),
                edge.moved_ns,
                suspended_ns.get(clock, 0),
                contradicted_ns.get(clock, 0),
                ", ".join(named) or "round trips",
            )
        )
    return RowClock(tree, trips, fits)


def residuals(tree: Tree, trips: Int64s) -> Int64s:
    """The distance of each trip's middle from the fit, less half of its time and its bound."""
    found = np.zeros(len(trips), np.int64)
    for clock, edge in tree.edges.items():
        mine = trips[:, 1] == clock
        times = trips[mine][:, 2:]
        apart = np.abs(middles(times) - edge.offset_at(times[:, 1]))
        found[mine] = np.maximum(apart - (times[:, 2] - times[:, 0]) // 2 - edge.bound_ns, 0)
    return found


def knot_lines(clock: RowClock) -> Iterable[tuple[int | str, ...]]:
    """The table of knots: `KNOT_COLUMNS`."""
    for number, edge in clock.tree.edges.items():
        for knot in edge.knots:
            yield (number, *dataclasses.astuple(knot))


def read_clock(
    knots: Iterable[Mapping[str, object]], trips: Int64s, fits: Sequence[ClockFit]
) -> RowClock:
    """The inverse, of tables in a file. Raises ValueError where clocks are missing."""
    found: dict[int, list[Knot]] = defaultdict(list)
    for line in knots:
        values = dict(line)
        found[values.pop("clock")].append(Knot(**values))  # type: ignore[index, arg-type]  # by column
    edges = {number: Edge(tuple(of_clock)) for number, of_clock in sorted(found.items())}
    numbers = list(range(1, len(edges) + 1))
    if list(edges) != numbers or [fit.clock for fit in fits] != numbers:
        raise ValueError("the clocks of a row are not 1, 2, ... each once")
    return RowClock(Tree(edges), trips, fits)
