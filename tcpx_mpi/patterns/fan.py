"""Everybody to one rank (fan_in), and one rank to everybody (fan_out), all messages at once; some
to one rank, with the tail of each (incast).

The size is what the root receives or sends, divided among the others by the ragged rule: all of it
passes the root's own link. So buffers are no larger than the size, however many the ranks. The root
keeps nothing for itself: gather and scatter, which do, are nccl-tests' programs.
"""

from __future__ import annotations

import functools

from tcpx_mpi.patterns.loaded import mesh_beside
from tcpx_mpi.patterns.program import Form, of_bytes, one_block
from tcpx_mpi.schedule.builder import ScheduleBuilder
from tcpx_mpi.schedule.pattern import Pattern, fewer_than_two
from tcpx_mpi.schedule.promise import Expected
from tcpx_mpi.schedule.table import BlockTable, Layout, Schedule, make_layout, ragged_division


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


def incast(form: Form) -> Pattern:
    """`senders` of the others, those behind the root, each a block of the size to it; beside them,
    with a background, a mesh of all ranks on a lane of its own."""
    root, beside = form.root, form.background_bytes

    def count(world: int) -> int:
        return form.senders or world - 1

    def place(rank: int, world: int) -> int:
        """The place of a sender, from 0; -1: it is none."""
        behind = (rank - root) % world - 1
        return behind if 0 <= behind < count(world) else -1

    def own(rank: int, world: int, sends: bool) -> int:
        """Blocks of SEND or RECV before those of the mesh."""
        if sends:
            return int(place(rank, world) >= 0)
        return count(world) if rank == root else 0

    def schedule(rank: int, world: int) -> Schedule:
        steps = ScheduleBuilder()
        if rank == root:
            for block in range(count(world)):
                steps.receive((root + 1 + block) % world, block)
        elif place(rank, world) >= 0:
            steps.send(root, 0)
        if beside:
            mesh_beside(steps, rank, world, 1, own(rank, world, True), own(rank, world, False))
        return steps.build()

    def layout(rank: int, world: int, size_bytes: int) -> Layout:
        parts = ragged_division(size_bytes, count(world)).lengths.tolist()
        recv = parts if rank == root else []
        send = [parts[place(rank, world)]] if place(rank, world) >= 0 else []
        if beside:
            blocks = ragged_division(beside, world).lengths.tolist()
            send, recv = [*send, *blocks], [*recv, *[blocks[rank]] * world]
        return make_layout(
            send=BlockTable.of_lengths(send) if send else None,
            recv=BlockTable.of_lengths(recv) if recv else None,
        )

    def expected(rank: int, world: int) -> Expected:
        senders = [(root + 1 + block) % world for block in range(count(world))]
        rows = [(block, peer, 0) for block, peer in enumerate(senders)] if rank == root else []
        if beside:
            first = own(rank, world, False)
            rows += [(first + o, o, own(o, world, True) + rank) for o in range(world)]
        return Expected.of_rows(rows)

    def refuse(world: int) -> str | None:
        if world >= 2 and form.senders >= world:
            return f"--senders ({form.senders}) is more than the {world - 1} other ranks; use fewer"
        return _refuse("incast", root, world)

    beside_it = f", beside a mesh of {beside} bytes a rank (--background)" if beside else ""
    return Pattern(
        name="incast",
        refuse=refuse,
        schedule=schedule,
        layout=layout,
        expected=expected,
        tails="one link",
        place=lambda rank, world: max(place(rank, world), 0),
        notes=(f"the size is what rank {root} receives from its senders together{beside_it}",),
    )


def _refuse(name: str, root: int, world: int) -> str | None:
    if world >= 2 and root >= world:
        return f"-r/--root ({root}) is none of {world} ranks; use 0 to {world - 1}"
    return fewer_than_two(name, world)


PROGRAMS = (
    of_bytes("incast", incast, "root", "senders", "background_bytes", "stagger_s"),
    of_bytes("fan_in", functools.partial(_fan, "fan_in", "receives, from", True), "root"),
    of_bytes("fan_out", functools.partial(_fan, "fan_out", "sends, to", False), "root"),
)
