"""Symmetries of a pattern: what all ranks do is what a few of them do, seen from other places.

A pattern that declares one of a world says: for any rank r, the map that takes rank 0 to r takes
the schedule of rank 0, in peers and lengths, to that of r. So all ranks have the same times on a
network whose places are alike, and a simulation of one of them, or of those that share a NIC, is a
simulation of all.
"""

from __future__ import annotations

from enum import Enum


class Symmetry(Enum):
    """The maps of a world that leave a pattern as it is."""

    #: r -> r + k mod n.
    SHIFT = "shift"
    #: r -> r xor k, where n is a power of 2.
    XOR = "xor"
    #: r -> r + k mod n, but that a message whose blocks pass the last one is sent in two parts.
    PARTED_SHIFT = "parted shift"

    def folds(self, world: int, ranks: int) -> bool:
        """Whether the first so many ranks can stand for all: each of them for those that have as
        many ranks, or a multiple of that, before it."""
        if self is Symmetry.PARTED_SHIFT:
            # Where several share a NIC, the parts change in which order it takes their chunks.
            return ranks == 1
        powers = all(number & (number - 1) == 0 for number in (world, ranks))
        return world % ranks == 0 and (self is Symmetry.SHIFT or powers)

    def moved(self, rank: int, place: int, world: int) -> int:
        """The image of a rank by the map that takes rank 0 to `place`."""
        return rank ^ place if self is Symmetry.XOR else (rank + place) % world

    def stand_in(self, rank: int, other: int, world: int, ranks: int) -> tuple[int, int]:
        """(which of the first `ranks` stands for `rank`, who is to that one what `other` is to
        `rank`)."""
        place = rank % ranks
        if self is Symmetry.XOR:
            return place, other ^ rank ^ place
        return place, (other - (rank - place)) % world
