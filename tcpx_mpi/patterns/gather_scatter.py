"""Everybody's block to the root, and a block of the root's payload to each (gather and scatter).

direct: one message between the root and each other rank, all at once, as nccl-tests posts them.
"""

from __future__ import annotations

from tcpx_mpi.patterns.program import BY_SENDS, Form, Program, by_ranks, equal_blocks, one_block
from tcpx_mpi.schedule.builder import ScheduleBuilder
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.promise import Expected
from tcpx_mpi.schedule.table import BlockTable, BufferId, Layout, Schedule, make_layout

RECV, SEND = BufferId.RECV, BufferId.SEND


def gather_schedule(rank: int, world: int, form: Form) -> Schedule:
    steps = ScheduleBuilder()
    if rank != form.root:
        steps.send(form.root, 0, buffer=RECV if form.in_place else SEND)
        return steps.build()
    for distance in range(1, world):
        origin = (rank + distance) % world
        steps.receive(origin, origin)
    if not form.in_place:
        steps.copy(0, rank)
    return steps.build()


def scatter_schedule(rank: int, world: int, form: Form) -> Schedule:
    steps = ScheduleBuilder()
    if rank != form.root:
        steps.receive(form.root, 0)
        return steps.build()
    for distance in range(1, world):
        target = (rank + distance) % world
        steps.send(target, target, buffer=RECV if form.in_place else SEND)
    if not form.in_place:
        steps.copy(rank, 0)
    return steps.build()


def _gather(form: Form) -> Pattern:
    def layout(rank: int, world: int, size_bytes: int) -> Layout:
        own = one_block(size_bytes // world)
        if rank == form.root:
            recv = equal_blocks(size_bytes, world)
            return make_layout(send=None if form.in_place else own, recv=recv)
        return make_layout(recv=own) if form.in_place else make_layout(send=own)

    def expected(rank: int, world: int) -> Expected:
        origins = range(world) if rank == form.root else range(0)
        return Expected.of_rows([(origin, origin, 0) for origin in origins])

    def held(rank: int, world: int) -> list[tuple[int, int]]:
        return [(rank if rank == form.root else 0, 0)]

    return Pattern(
        name="gather",
        busbw_factor=lambda world: (world - 1) / world,
        schedule=lambda rank, world: gather_schedule(rank, world, form),
        layout=layout,
        expected=expected,
        held=held if form.in_place else None,
        payload=lambda rank, world, size_bytes: one_block(size_bytes // world),
        element_bytes=form.element_bytes,
    )


def _scatter(form: Form) -> Pattern:
    def payload(rank: int, world: int, size_bytes: int) -> BlockTable:
        if rank == form.root:
            return equal_blocks(size_bytes, world)
        return BlockTable.of_lengths([])

    def layout(rank: int, world: int, size_bytes: int) -> Layout:
        block = one_block(size_bytes // world)
        if rank != form.root:
            return make_layout(recv=block)
        table = payload(rank, world, size_bytes)
        return make_layout(recv=table) if form.in_place else make_layout(send=table, recv=block)

    def expected(rank: int, world: int) -> Expected:
        own = rank if form.in_place and rank == form.root else 0
        return Expected.of_rows([(own, form.root, rank)])

    def held(rank: int, world: int) -> list[tuple[int, int]]:
        return [(block, block) for block in range(world if rank == form.root else 0)]

    return Pattern(
        name="scatter",
        busbw_factor=lambda world: (world - 1) / world,
        schedule=lambda rank, world: scatter_schedule(rank, world, form),
        layout=layout,
        expected=expected,
        held=held if form.in_place else None,
        payload=payload,
        element_bytes=form.element_bytes,
    )


PROGRAMS = (
    Program("gather", _gather, by_ranks, ("direct",), rooted=True, mpi="Gather", nccl=BY_SENDS),
    Program("scatter", _scatter, by_ranks, ("direct",), rooted=True, mpi="Scatter", nccl=BY_SENDS),
)
