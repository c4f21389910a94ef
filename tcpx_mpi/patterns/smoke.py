"""One message each way between every two ranks, each of the whole size: what smoke sends.

In one go, or a distance at a time: at distance d every rank sends to rank + d and receives from
rank - d, so that each message has a time of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tcpx_mpi import patterns
from tcpx_mpi.patterns import fewer_than_two
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.table import (
    BlockTable,
    Expected,
    Layout,
    Schedule,
    ScheduleBuilder,
    make_layout,
)


def at_distance(distance: int) -> Pattern:
    """The messages of one distance; all distances 1..world-1 are the whole pattern."""
    return _pattern(lambda world: (distance,))


def _pattern(distances_of: Callable[[int], Sequence[int]]) -> Pattern:
    def schedule(rank: int, world: int) -> Schedule:
        steps = ScheduleBuilder()
        for block, distance in enumerate(distances_of(world)):
            steps.receive((rank - distance) % world, block)
            steps.send((rank + distance) % world, 0)
        return steps.build()

    def layout(rank: int, world: int, size_bytes: int) -> Layout:
        incoming = [size_bytes] * len(distances_of(world))
        return make_layout(
            send=BlockTable.of_lengths([size_bytes]), recv=BlockTable.of_lengths(incoming)
        )

    def expected(rank: int, world: int) -> Expected:
        return Expected.of_rows(
            [
                (block, (rank - distance) % world, 0)
                for block, distance in enumerate(distances_of(world))
            ]
        )

    return Pattern(
        name=patterns.SMOKE,
        summary="one message each way between every two ranks",
        busbw_factor=lambda world: 1.0,
        time_divisor=1,
        refuse=lambda world: fewer_than_two(patterns.SMOKE, world),
        schedule=schedule,
        layout=layout,
        expected=expected,
    )


SMOKE = _pattern(lambda world: range(1, world))
