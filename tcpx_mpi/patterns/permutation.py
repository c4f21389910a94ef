"""Every rank sends to one other and receives from one other, drawn by a seed.

Each permutation without fixed points is as likely as any other. It is the same on all machines and
with all versions of Python, whose `Random.random` is promised to stay as it is; `shuffle` is not.
"""

from __future__ import annotations

import functools
import random

from tcpx_mpi.patterns.one_to_one import one_to_one
from tcpx_mpi.patterns.program import Form, of_bytes
from tcpx_mpi.schedule.pattern import Pattern


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


def _permutation(form: Form) -> Pattern:
    seed = form.seed

    def ends(rank: int, world: int) -> tuple[int, int]:
        return sources(seed, world)[rank], targets(seed, world)[rank]

    notes = (f"who sends to whom is drawn by --seed {seed}",)
    return one_to_one("permutation", ends, notes=notes)


PROGRAMS = (of_bytes("permutation", _permutation, "seed"),)
