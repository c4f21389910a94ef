"""Two ranks at a time: pair (one way), bidirectional (both at once), pingpong (there and back)."""

from __future__ import annotations

from tcpx_mpi.patterns import NAMES, fewer_than_two
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.table import (
    BlockTable,
    Expected,
    Layout,
    Schedule,
    ScheduleBuilder,
    Wait,
    make_layout,
)


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


# --- pair: the first half sends to the second --------------------------------------------------


def _pair_schedule(rank: int, world: int) -> Schedule:
    steps = ScheduleBuilder()
    if begins(rank, world):
        steps.send(partner(rank, world), 0)
    else:
        steps.receive(partner(rank, world), 0)
    return steps.build()


def _pair_layout(rank: int, world: int, size_bytes: int) -> Layout:
    whole = BlockTable.of_lengths([size_bytes])
    return make_layout(send=whole) if begins(rank, world) else make_layout(recv=whole)


def _pair_expected(rank: int, world: int) -> Expected:
    if begins(rank, world):
        return Expected.of_rows([])
    return Expected.of_rows([(0, partner(rank, world), 0)])


PAIR = Pattern(
    name="pair",
    summary=NAMES["pair"],
    busbw_factor=lambda world: 1.0,
    time_divisor=1,
    refuse=lambda world: refuse("pair", world),
    schedule=_pair_schedule,
    layout=_pair_layout,
    expected=_pair_expected,
    sender=lambda number, receiver, world: partner(receiver, world),
    fits_nics=True,
)


# --- pingpong: the second half answers once it has everything ----------------------------------


def _pingpong_schedule(rank: int, world: int) -> Schedule:
    other = partner(rank, world)
    steps = ScheduleBuilder()
    if begins(rank, world):
        steps.send(other, 0)
        # No predecessor: the answer's receive is posted before the answer can be on its way.
        steps.receive(other, 0)
    else:
        ping = steps.receive(other, 0)
        steps.send(other, 0, after=[(ping, Wait.WHOLE)])
    return steps.build()


def _whole_both_ways(rank: int, world: int, size_bytes: int) -> Layout:
    whole = BlockTable.of_lengths([size_bytes])
    return make_layout(send=whole, recv=whole)


def _from_partner(rank: int, world: int) -> Expected:
    return Expected.of_rows([(0, partner(rank, world), 0)])


PINGPONG = Pattern(
    name="pingpong",
    summary=NAMES["pingpong"],
    busbw_factor=lambda world: 1.0,
    time_divisor=2,
    refuse=lambda world: refuse("pingpong", world),
    schedule=_pingpong_schedule,
    layout=_whole_both_ways,
    expected=_from_partner,
)


# --- bidirectional: nobody waits for the other --------------------------------------------------


def _bidirectional_schedule(rank: int, world: int) -> Schedule:
    steps = ScheduleBuilder()
    steps.receive(partner(rank, world), 0)
    steps.send(partner(rank, world), 0)
    return steps.build()


BIDIRECTIONAL = Pattern(
    name="bidirectional",
    summary=NAMES["bidirectional"],
    busbw_factor=lambda world: 1.0,
    time_divisor=1,
    refuse=lambda world: refuse("bidirectional", world),
    schedule=_bidirectional_schedule,
    layout=_whole_both_ways,
    expected=_from_partner,
    notes=("algbw and busbw are of one way, as much goes the other way",),
)
