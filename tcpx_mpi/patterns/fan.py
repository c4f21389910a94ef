"""Everybody to one rank (fan_in), and one rank to everybody (fan_out), all messages at once.

The size is what the root receives or sends, divided among the others by the ragged rule: all of it
passes the root's own link. So buffers are no larger than the size, however many the ranks. The root
keeps nothing for itself: gather and scatter, which do, are nccl-tests' programs.
"""

from __future__ import annotations

import functools

from tcpx_mpi.patterns.program import Form, of_bytes, one_block
from tcpx_mpi.schedule.builder import ScheduleBuilder
from tcpx_mpi.schedule.pattern import Pattern, fewer_than_two
from tcpx_mpi.schedule.promise import Expected
from tcpx_mpi.schedule.table import Layout, Schedule, make_layout, ragged_division


def _block(rank: int, root: int, world: int) -> int:
    """The root's block for a rank: the others in order, the one behind the root first."""
    return (rank - root) % world - 1


def _fan(name: str, does: str, inwards: bool, form: Form) -> Pattern:
    root = form.root

    def receives(rank: int) -> bool:
        return (rank == root) == inwards

    def schedule(rank: int, world: int) -> Schedule:
        steps = ScheduleBuilder()
        others = [(root + 1 + block) % world for block in range(world - 1)]
        for block, peer in enumerate(others if rank == root else [root]):
            _ = steps.receive(peer, block) if receives(rank) else steps.send(peer, block)
        return steps.build()

    def layout(rank: int, world: int, size_bytes: int) -> Layout:
        table = ragged_division(size_bytes, world - 1)
        if rank != root:
            table = one_block(int(table.lengths[_block(rank, root, world)]))
        return make_layout(recv=table) if receives(rank) else make_layout(send=table)

    def expected(rank: int, world: int) -> Expected:
        if not receives(rank):
            return Expected.of_rows([])
        if rank != root:
            return Expected.of_rows([(0, root, _block(rank, root, world))])
        return Expected.of_rows([(b, (root + 1 + b) % world, 0) for b in range(world - 1)])

    return Pattern(
        name=name,
        refuse=lambda world: _refuse(name, root, world),
        schedule=schedule,
        layout=layout,
        expected=expected,
        open_loop=inwards,
        notes=(f"the size is what rank {root} {does} all others together",),
    )


def _refuse(name: str, root: int, world: int) -> str | None:
    if world >= 2 and root >= world:
        return f"-r/--root ({root}) is none of {world} ranks; use 0 to {world - 1}"
    return fewer_than_two(name, world)


PROGRAMS = (
    of_bytes("fan_in", functools.partial(_fan, "fan_in", "receives, from", True), "root"),
    of_bytes("fan_out", functools.partial(_fan, "fan_out", "sends, to", False), "root"),
)
