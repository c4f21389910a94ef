"""The programs that NCCL has no call for: what a rank sends and receives, round by round. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from nccl_cases import GROUPED, Case, length_of


@dataclass(frozen=True)
class Part:
    """Elements of a buffer, from `at` on, for a rank or of it."""

    peer: int
    at: int
    count: int


@dataclass(frozen=True)
class Round:
    """One group of NCCL's: all of it is under way at the same time."""

    sends: tuple[Part, ...] = ()
    receives: tuple[Part, ...] = ()
    #: What is sent came with the rounds before it, into the target.
    passed_on: bool = False


def rounds_of(case: Case, rank: int, world: int) -> list[Round]:
    """What one rank does; its own part goes from it to itself."""
    whole = Part(rank, 0, case.count)
    if case.program not in GROUPED:
        raise ValueError(f"{case.program} is one call")
    if case.program == "hypercube":
        own = Round((whole,), (Part(rank, rank * case.count, case.count),))
        return [own, *_along_edges(case.count, rank, world)]
    if case.program == "sendrecv":
        after, before = (rank + 1) % world, (rank - 1) % world
        return [Round((Part(after, 0, case.count),), (Part(before, 0, case.count),))]
    if case.program == "gather":
        gathers = rank == case.root
        return [Round((Part(case.root, 0, case.count),), _blocks(case, world) if gathers else ())]
    if case.program == "scatter":
        scatters = rank == case.root
        return [Round(_blocks(case, world) if scatters else (), (Part(case.root, 0, case.count),))]
    sends = _one_after_another(length_of(case, rank, to, world) for to in range(world))
    receives = _one_after_another(length_of(case, of, rank, world) for of in range(world))
    return [Round(sends, receives)]


def _blocks(case: Case, world: int) -> tuple[Part, ...]:
    return _one_after_another(itertools.repeat(case.count, world))


def _one_after_another(counts: Iterable[int]) -> tuple[Part, ...]:
    lengths = list(counts)
    starts = itertools.accumulate(lengths, initial=0)
    return tuple(Part(peer, *each) for peer, each in enumerate(zip(starts, lengths, strict=False)))


def _along_edges(count: int, rank: int, world: int) -> Iterable[Round]:
    """In turn along each axis of the cube: all that either end has."""
    blocks = 1
    while blocks < world:
        mine = rank & ~(blocks - 1)
        peer, length = rank ^ blocks, blocks * count
        yield Round(
            (Part(peer, mine * count, length),),
            (Part(peer, (mine ^ blocks) * count, length),),
            passed_on=True,
        )
        blocks *= 2
