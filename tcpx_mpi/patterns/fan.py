"""Everybody to one rank (fan_in), and one rank to everybody (fan_out), all messages at once.

The size is what the root receives or sends, divided among the others by the ragged rule: all of it
passes the root's own link. So buffers are no larger than the size, however many the ranks. The root
keeps nothing for itself: gather and scatter, which do, are nccl-tests' programs.
"""

from __future__ import annotations

from tcpx_mpi.patterns.program import Form, of_bytes
from tcpx_mpi.schedule.pattern import Pattern, fewer_than_two
from tcpx_mpi.schedule.table import (
    BlockTable,
    Expected,
    Layout,
    Schedule,
    ScheduleBuilder,
    make_layout,
    ragged_division,
)


def _block(rank: int, root: int, world: int) -> int:
    """The root's block for a rank: the others in order, the one behind the root first."""
    return (rank - root) % world - 1


def _blocks(size_bytes: int, world: int) -> BlockTable:
    return ragged_division(size_bytes, world - 1)


def _own(rank: int, root: int, world: int, size_bytes: int) -> BlockTable:
    lengths = _blocks(size_bytes, world).lengths
    return BlockTable.of_lengths([int(lengths[_block(rank, root, world)])])


def fan_in(form: Form) -> Pattern:
    root = form.root

    def schedule(rank: int, world: int) -> Schedule:
        steps = ScheduleBuilder()
        if rank != root:
            steps.send(root, 0)
            return steps.build()
        for block in range(world - 1):
            steps.receive((root + 1 + block) % world, block)
        return steps.build()

    def layout(rank: int, world: int, size_bytes: int) -> Layout:
        if rank == root:
            return make_layout(recv=_blocks(size_bytes, world))
        return make_layout(send=_own(rank, root, world, size_bytes))

    def expected(rank: int, world: int) -> Expected:
        blocks = range(world - 1 if rank == root else 0)
        return Expected.of_rows([(block, (root + 1 + block) % world, 0) for block in blocks])

    return Pattern(
        name="fan_in",
        refuse=lambda world: _refuse("fan_in", root, world),
        schedule=schedule,
        layout=layout,
        expected=expected,
        notes=(f"the size is what rank {root} receives, from all others together",),
    )


def fan_out(form: Form) -> Pattern:
    root = form.root

    def schedule(rank: int, world: int) -> Schedule:
        steps = ScheduleBuilder()
        if rank != root:
            steps.receive(root, 0)
            return steps.build()
        for block in range(world - 1):
            steps.send((root + 1 + block) % world, block)
        return steps.build()

    def layout(rank: int, world: int, size_bytes: int) -> Layout:
        if rank == root:
            return make_layout(send=_blocks(size_bytes, world))
        return make_layout(recv=_own(rank, root, world, size_bytes))

    def expected(rank: int, world: int) -> Expected:
        rows = [] if rank == root else [(0, root, _block(rank, root, world))]
        return Expected.of_rows(rows)

    return Pattern(
        name="fan_out",
        refuse=lambda world: _refuse("fan_out", root, world),
        schedule=schedule,
        layout=layout,
        expected=expected,
        notes=(f"the size is what rank {root} sends, to all others together",),
    )


def _refuse(name: str, root: int, world: int) -> str | None:
    if world >= 2 and root >= world:
        return f"-r/--root ({root}) is none of {world} ranks; use 0 to {world - 1}"
    return fewer_than_two(name, world)


PROGRAMS = (of_bytes("fan_in", fan_in, "root"), of_bytes("fan_out", fan_out, "root"))
