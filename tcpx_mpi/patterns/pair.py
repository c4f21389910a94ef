"""Two ranks at a time: pair (one direction), bidirectional (both), pingpong (there and back)."""

from __future__ import annotations

from tcpx_mpi.patterns.one_to_one import one_to_one
from tcpx_mpi.patterns.program import of_bytes
from tcpx_mpi.schedule.builder import ScheduleBuilder
from tcpx_mpi.schedule.pattern import Pattern, fewer_than_two
from tcpx_mpi.schedule.table import Schedule, Wait


def partner(rank: int, world: int) -> int:
    """The other rank of a pair: half the world away.

    Ranks usually fill one host after the other, so half the world away is another host, and GPU i
    meets GPU i. The one place that chooses pairs.
    """
    half = world // 2
    return rank + half if rank < half else rank - half


def begins(rank: int, world: int) -> bool:
    """Whether this rank is the one of its pair that sends first."""
    return rank < world // 2


def refuse(name: str, world: int) -> str | None:
    """The refusal of an odd number of ranks, which are no pairs."""
    if world >= 2 and world % 2:
        return (
            f"{name} needs an even number of ranks; found {world}; "
            f"start {world - 1} or {world + 1} ranks"
        )
    return fewer_than_two(name, world)


def _first_half_sends(rank: int, world: int) -> tuple[int | None, int | None]:
    other = partner(rank, world)
    return (None, other) if begins(rank, world) else (other, None)


def _exchange(rank: int, world: int) -> tuple[int, int]:
    return partner(rank, world), partner(rank, world)


def _there_and_back(rank: int, world: int) -> Schedule:
    """The second half answers once it has everything."""
    other = partner(rank, world)
    steps = ScheduleBuilder()
    if begins(rank, world):
        steps.send(other, 0)
        # No predecessor: the answer's receive is posted before the answer can be on its link.
        steps.receive(other, 0)
    else:
        ping = steps.receive(other, 0)
        steps.send(other, 0, after=[(ping, Wait.WHOLE)])
    return steps.build()


PAIR = one_to_one(
    "pair",
    _first_half_sends,
    refuse=lambda world: refuse("pair", world),
    sender=lambda number, receiver, world: partner(receiver, world),
    fits_nics=True,
    open_loop=True,
)
BIDIRECTIONAL = one_to_one(
    "bidirectional",
    _exchange,
    refuse=lambda world: refuse("bidirectional", world),
    notes=("algbw and busbw are of one direction; as much goes in the other",),
)
PINGPONG = Pattern(
    name="pingpong",
    schedule=_there_and_back,
    layout=BIDIRECTIONAL.layout,
    expected=BIDIRECTIONAL.expected,
    refuse=lambda world: refuse("pingpong", world),
    time_divisor=2,
    open_loop=True,
    answers=lambda rank, world: None if begins(rank, world) else partner(rank, world),
)
PROGRAMS = (
    of_bytes("pair", lambda form: PAIR),
    of_bytes("bidirectional", lambda form: BIDIRECTIONAL),
    of_bytes("pingpong", lambda form: PINGPONG),
)
