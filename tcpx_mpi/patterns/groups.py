"""Groups of ranks that run one pattern at once, each by itself (nccl-tests' NCCL_TESTS_SPLIT).

A rank's group has a number made of the rank by one operation: ranks with the same number are a
group, in their order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.promise import Expected
from tcpx_mpi.schedule.table import NONE, BlockTable, Column, Layout, Schedule

_NUMBERS: dict[str, Callable[[int, int], int]] = {
    "AND": lambda rank, value: rank & value,
    "OR": lambda rank, value: rank | value,
    "MOD": lambda rank, value: rank % value,
    "DIV": lambda rank, value: rank // value,
}


def group_numbers(split: str, world: int) -> list[int]:
    """The number of each rank's group; `split` is "AND 7" and the like, "" one group of all."""
    if not split:
        return [0] * world
    operation, value = split.split()
    return [_NUMBERS[operation](rank, int(value)) for rank in range(world)]


def members(numbers: Sequence[int], rank: int) -> list[int]:
    """The ranks of a rank's group."""
    return [other for other, number in enumerate(numbers) if number == numbers[rank]]


def sizes(numbers: Sequence[int]) -> set[int]:
    """The numbers of ranks of the groups."""
    return {numbers.count(number) for number in set(numbers)}


def in_groups(pattern: Pattern, numbers: Sequence[int]) -> Pattern:
    """The pattern within each group, for a world of so many ranks as there are numbers.

    All groups must have as many ranks.
    """
    if len(set(numbers)) == 1:
        return pattern
    (size,) = sizes(numbers)

    def inside(rank: int) -> tuple[int, list[int]]:
        ranks = members(numbers, rank)
        return ranks.index(rank), ranks

    def schedule(rank: int, world: int) -> Schedule:
        index, ranks = inside(rank)
        table = pattern.schedule(index, size).table.copy()
        for row in table:
            if row[Column.PEER] != NONE:
                row[Column.PEER] = ranks[row[Column.PEER]]
        return Schedule(table)

    def layout(rank: int, world: int, size_bytes: int) -> Layout:
        return pattern.layout(inside(rank)[0], size, size_bytes)

    def payload(rank: int, world: int, size_bytes: int) -> BlockTable:
        return pattern.payload_of(inside(rank)[0], size, size_bytes)

    def expected(rank: int, world: int) -> Expected:
        index, ranks = inside(rank)
        found = pattern.expected(index, size)
        origins = [ranks[origin] for origin in found.origin_rank.tolist()]
        rows = zip(found.dst_block.tolist(), origins, found.origin_block.tolist(), strict=True)
        return Expected.of_rows(list(rows), found.reduced, found.scaled)

    def held(rank: int, world: int) -> Sequence[tuple[int, int]]:
        assert pattern.held is not None
        return pattern.held(inside(rank)[0], size)

    return dataclasses.replace(
        pattern,
        busbw_factor=lambda world: pattern.busbw_factor(size),
        algbw_factor=lambda world: pattern.algbw_factor(size),
        refuse=lambda world: pattern.refuse(size),
        schedule=schedule,
        layout=layout,
        payload=payload,
        expected=expected,
        held=None if pattern.held is None else held,
        symmetry=lambda world: None,
    )
