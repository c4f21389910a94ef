"""Round trips between two clocks: an offset that is within its bound whatever the network did.

Clock A reads `asked`, sends, and reads `heard` when the answer is there; B reads `answered` in
between. When B read it, A's clock was between `asked` and `heard`, so B - A is between
`answered - heard` and `answered - asked`: half of the round trip around the middle.
"""

from __future__ import annotations

from dataclasses import dataclass

from tcpx_mpi.arrays import Int64s, np

#: Columns of round trips.
ASKED, ANSWERED, HEARD = range(3)
#: Two clocks that nobody steps do not part faster: crystals are within 100 ppm, and the kernel
#: slews by at most 500 ppm.
MOST_RATE = 600e-6


@dataclass(frozen=True)
class Knot:
    """The offset between two clocks at an instant of the one that answered."""

    at_ns: int
    #: Of the clock that answered, less the one that asked; off by at most the bound.
    offset_ns: int
    bound_ns: int
    #: Who says so: "" the round trips, else the name of what keeps both clocks.
    source: str = ""
    #: By how much a clock moved while they were compared.
    moved_ns: int = 0


def middles(trips: Int64s) -> Int64s:
    """The offset by each round trip, as if both directions took as long."""
    found: Int64s = trips[:, ANSWERED] - (trips[:, ASKED] + trips[:, HEARD]) // 2
    return found


def knot_of(trips: Int64s) -> Knot:
    """The knot by round trips int64[trip, (asked, answered, heard)]: the fastest bounds it by half
    of its time.

    A clock that moved meanwhile leaves round trips that exclude each other: by so much the bound
    is wider, and `moved_ns` says it.
    """
    best = int(np.argmin(trips[:, HEARD] - trips[:, ASKED]))
    asked, answered, heard = (int(value) for value in trips[best])
    least = int((trips[:, ANSWERED] - trips[:, ASKED]).min())  # the offset is not above it,
    most = int((trips[:, ANSWERED] - trips[:, HEARD]).max())  # nor below this
    span = int(trips[:, HEARD].max() - trips[:, ASKED].min())
    apart = most - least
    moved = apart if apart > MOST_RATE * span else 0
    bound = (heard - asked + 1) // 2 + moved
    return Knot(answered, int(middles(trips)[best]), bound, moved_ns=moved)
