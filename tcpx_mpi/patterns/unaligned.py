"""A pattern whose buffers begin so many bytes behind where they would (nccl-tests' `-u`).

What was block b is block b + 1 then: each buffer that has any has one more in front, which nobody
reads or writes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tcpx_mpi.arrays import np
from tcpx_mpi.schedule.pattern import Pattern, Rounds
from tcpx_mpi.schedule.promise import Expected
from tcpx_mpi.schedule.table import NONE, BlockTable, Column, Layout, Schedule


def unaligned(pattern: Pattern, shift_bytes: int) -> Pattern:
    """The pattern with all its buffers moved on."""
    if shift_bytes == 0:
        return pattern

    def moved(table: BlockTable) -> BlockTable:
        if not table.blocks:
            return table
        return BlockTable.of_lengths(np.concatenate([[shift_bytes], table.lengths]))

    def schedule(rank: int, world: int) -> Schedule:
        table = pattern.schedule(rank, world).table.copy()
        for column in (Column.SRC_BLOCK, Column.DST_BLOCK):
            table[table[:, column] != NONE, column] += 1
        return Schedule(table)

    def layout(rank: int, world: int, size_bytes: int) -> Layout:
        of = pattern.layout(rank, world, size_bytes)
        return {buffer: moved(table) for buffer, table in of.items()}

    def payload(rank: int, world: int, size_bytes: int) -> BlockTable:
        return moved(pattern.payload_of(rank, world, size_bytes))

    def expected(rank: int, world: int) -> Expected:
        one = pattern.expected(rank, world)
        return dataclasses.replace(
            one, dst_block=one.dst_block + 1, origin_block=one.origin_block + 1
        )

    def held(rank: int, world: int) -> Sequence[tuple[int, int]]:
        assert pattern.held is not None
        return [(block + 1, part + 1) for block, part in pattern.held(rank, world)]

    def each(rounds: Rounds) -> Rounds:
        of_pairs = rounds.of_pairs
        return Rounds(
            lambda world: [unaligned(one, shift_bytes) for one in rounds.of(world)],
            rounds.chosen,
            None if of_pairs is None else lambda text: unaligned(of_pairs(text), shift_bytes),
        )

    turn, loaded = pattern.turn, pattern.loaded
    if loaded is not None and loaded.alone is not None:
        loaded = dataclasses.replace(loaded, alone=unaligned(loaded.alone, shift_bytes))
    return dataclasses.replace(
        pattern,
        schedule=schedule,
        layout=layout,
        payload=payload,
        expected=expected,
        held=None if pattern.held is None else held,
        rounds=None if pattern.rounds is None else each(pattern.rounds),
        turn=None if turn is None else lambda number: unaligned(turn(number), shift_bytes),
        loaded=loaded,
    )
