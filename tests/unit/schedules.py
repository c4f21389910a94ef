"""Schedules for tests: collectives, two ranks written by hand, and tables broken on purpose.

The collectives here are no product: they show that the form carries them, forwarding included.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi import patterns
from tcpx_mpi.schedule.builder import ScheduleBuilder
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.promise import Expected
from tcpx_mpi.schedule.table import (
    BlockTable,
    BufferId,
    Column,
    Layout,
    Op,
    Schedule,
    Wait,
    make_layout,
    ragged_division,
)

Table = NDArray[np.int32]


def all_gather(lanes: int = 1, wait: Wait = Wait.CHUNK) -> Pattern:
    """A ring all-gather, each block cut into `lanes` parts that travel on lanes of their own.

    A rank forwards what it received out of its RECV buffer, chunk by chunk. Odd lanes run
    backwards, and each rank writes the lanes down in another order, which must not matter.
    """

    def schedule(rank: int, world: int) -> Schedule:
        steps = ScheduleBuilder()
        steps.copy(0, rank * lanes, blocks=lanes)
        for turn in range(lanes):
            lane = (rank + turn) % lanes
            way = -1 if lane % 2 else 1
            target, source = (rank + way) % world, (rank - way) % world
            steps.send(target, lane, lane=lane)
            for distance in range(1, world):
                block = (rank - way * distance) % world * lanes + lane
                got = steps.receive(source, block, lane=lane)
                if distance < world - 1:
                    steps.send(target, block, buffer=BufferId.RECV, lane=lane, after=[(got, wait)])
        return steps.build()

    def parts(rank: int, world: int, size: int) -> list[int]:
        own = int(ragged_division(size, world).lengths[rank])
        lengths: list[int] = ragged_division(own, lanes).lengths.tolist()
        return lengths

    def layout(rank: int, world: int, size: int) -> Layout:
        recv = [length for origin in range(world) for length in parts(origin, world, size)]
        return make_layout(
            send=BlockTable.of_lengths(parts(rank, world, size)), recv=BlockTable.of_lengths(recv)
        )

    def expected(rank: int, world: int) -> Expected:
        return Expected.of_rows(
            [
                (origin * lanes + lane, origin, lane)
                for origin in range(world)
                for lane in range(lanes)
            ]
        )

    return dataclasses.replace(
        patterns.load("ring"),
        name=f"all_gather on {lanes} lanes",
        schedule=schedule,
        layout=layout,
        expected=expected,
    )


def relay() -> Pattern:
    """Rank 0's bytes to everybody, down a line, through SCRATCH: a broadcast with a detour."""

    def schedule(rank: int, world: int) -> Schedule:
        steps = ScheduleBuilder()
        if rank == 0:
            steps.send(1, 0)
        else:
            got = steps.receive(rank - 1, 0, buffer=BufferId.SCRATCH)
            after = [(got, Wait.CHUNK)]
            steps.copy(0, 0, source=BufferId.SCRATCH, after=after)
            if rank < world - 1:
                steps.send(rank + 1, 0, buffer=BufferId.SCRATCH, after=after)
        return steps.build()

    def layout(rank: int, world: int, size: int) -> Layout:
        whole = BlockTable.of_lengths([size])
        return make_layout(send=whole) if rank == 0 else make_layout(recv=whole, scratch=whole)

    return dataclasses.replace(
        patterns.load("ring"),
        name="relay",
        schedule=schedule,
        layout=layout,
        expected=lambda rank, world: Expected.of_rows([(0, 0, 0)] if rank else []),
    )


def bytes_of(*lengths: int) -> BlockTable:
    return BlockTable.of_lengths(lengths)


def two_ranks(
    write: Callable[[int, ScheduleBuilder], None],
    layouts: tuple[Layout, Layout] | None = None,
) -> tuple[list[Schedule], list[Layout]]:
    """Schedules of two ranks; `write` adds the steps of one."""
    schedules = []
    for rank in range(2):
        steps = ScheduleBuilder()
        write(rank, steps)
        schedules.append(steps.build())
    same = make_layout(send=bytes_of(8, 8), recv=bytes_of(8, 8))
    return schedules, list(layouts or (same, same))


def changed(pattern: Pattern, rank: int, change: Callable[[Table], Table]) -> Pattern:
    """The pattern with one rank's table changed."""

    def schedule(of: int, world: int) -> Schedule:
        good = pattern.schedule(of, world)
        return Schedule(np.ascontiguousarray(change(good.table.copy()))) if of == rank else good

    return dataclasses.replace(pattern, schedule=schedule)


def without_step(pattern: Pattern, rank: int, op: Op) -> Pattern:
    """The pattern without the last step of this kind of one rank."""

    def drop(table: Table) -> Table:
        last = int(np.flatnonzero(table[:, Column.OP] == op)[-1])
        return np.delete(table, last, axis=0)

    return changed(pattern, rank, drop)


def set_cell(op: Op, nth: int, column: Column, value: int) -> Callable[[Table], Table]:
    def change(table: Table) -> Table:
        table[int(np.flatnonzero(table[:, Column.OP] == op)[nth]), column] = value
        return table

    return change


def swap(op: Op, columns: Sequence[Column], first: int = 0) -> Callable[[Table], Table]:
    """Exchange these columns of two neighbouring steps of a kind."""

    def change(table: Table) -> Table:
        one, two = np.flatnonzero(table[:, Column.OP] == op)[first : first + 2]
        table[np.ix_([one, two], columns)] = table[np.ix_([two, one], columns)]
        return table

    return change
