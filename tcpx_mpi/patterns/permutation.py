"""Every rank sends to one other and receives from one other, drawn by a seed.

Each permutation without fixed points is as likely as any other. It is the same on all machines and
with all versions of Python, whose `Random.random` is promised to stay as it is; `shuffle` is not.
"""

from __future__ import annotations

import functools
import random

from tcpx_mpi.patterns import NAMES, Choice, fewer_than_two
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.table import (
    BlockTable,
    Expected,
    Layout,
    Schedule,
    ScheduleBuilder,
    make_layout,
)


@functools.lru_cache(maxsize=64)
def targets(seed: int, world: int) -> tuple[int, ...]:
    """Whom each rank sends to; never itself."""
    draw = random.Random(seed)
    # About 1 in e permutations has no fixed point, so that a few draws are enough.
    while True:
        found = list(range(world))
        for last in range(world - 1, 0, -1):
            other = int(draw.random() * (last + 1))
            found[last], found[other] = found[other], found[last]
        if all(target != rank for rank, target in enumerate(found)):
            return tuple(found)


@functools.lru_cache(maxsize=64)
def sources(seed: int, world: int) -> tuple[int, ...]:
    """Whom each rank receives from."""
    found = targets(seed, world)
    return tuple(sorted(range(world), key=found.__getitem__))


def permutation(choice: Choice) -> Pattern:
    seed = choice.seed

    def schedule(rank: int, world: int) -> Schedule:
        steps = ScheduleBuilder()
        steps.receive(sources(seed, world)[rank], 0)
        steps.send(targets(seed, world)[rank], 0)
        return steps.build()

    def layout(rank: int, world: int, size_bytes: int) -> Layout:
        whole = BlockTable.of_lengths([size_bytes])
        return make_layout(send=whole, recv=whole)

    return Pattern(
        name="permutation",
        summary=NAMES["permutation"],
        busbw_factor=lambda world: 1.0,
        time_divisor=1,
        refuse=lambda world: fewer_than_two("permutation", world),
        schedule=schedule,
        layout=layout,
        expected=lambda rank, world: Expected.of_rows([(0, sources(seed, world)[rank], 0)]),
        notes=(f"who sends to whom is drawn by --seed {seed}",),
    )


CHOSEN = {"permutation": permutation}
