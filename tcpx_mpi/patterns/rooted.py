"""The root's payload to everybody, and everybody's reduced to the root (broadcast and reduce).

ring: a chain. broadcast goes from the root on, reduce from behind the root round to it; a chunk is
forwarded as soon as it is there, or reduced.

tree: binomial. Counted from the root, rank v hangs below v without its lowest bit. A broadcast goes
down, to the largest subtree first; a reduction comes up, from the smallest.
"""

from __future__ import annotations

from collections.abc import Callable

from tcpx_mpi.patterns.program import (
    After,
    Form,
    Own,
    Program,
    finished,
    one_block,
    scaled_copy,
    undivided,
)
from tcpx_mpi.schedule.builder import ScheduleBuilder
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.promise import Expected
from tcpx_mpi.schedule.table import BlockTable, BufferId, Layout, Schedule, Wait, make_layout

RECV, SCRATCH = BufferId.RECV, BufferId.SCRATCH


def chain(rank: int, root: int, world: int) -> tuple[int | None, list[int]]:
    """(parent, children) in the chain that begins at the root."""
    place = (rank - root) % world
    parent = (rank - 1) % world if place else None
    return parent, [(rank + 1) % world] if place < world - 1 else []


def tree(rank: int, root: int, world: int) -> tuple[int | None, list[int]]:
    """(parent, children) in the binomial tree below the root, the smallest subtree first."""
    place = (rank - root) % world
    lowest = place & -place if place else 1 << (world - 1).bit_length()
    parent = (place - lowest + root) % world if place else None
    below = (place + (1 << k) for k in range(lowest.bit_length() - 1))
    return parent, [(child + root) % world for child in below if child < world]


_SHAPES: dict[str, Callable[[int, int, int], tuple[int | None, list[int]]]] = {
    "ring": chain,
    "tree": tree,
}


def broadcast_schedule(rank: int, world: int, form: Form) -> Schedule:
    parent, children = _SHAPES[form.algo](rank, form.root, world)
    steps = ScheduleBuilder()
    after: After = []
    buffer = RECV
    if parent is not None:
        after = [(steps.receive(parent, 0), Wait.CHUNK)]
    elif not form.in_place:
        buffer = BufferId.SEND
    for child in reversed(children):
        steps.send(child, 0, buffer=buffer, after=after)
    if buffer == BufferId.SEND:  # last, so that the network has work while the processor copies
        steps.copy(0, 0)
    return steps.build()


def reduce_schedule(rank: int, world: int, form: Form) -> Schedule:
    # A chain that ends at the root is one that begins there, read backwards.
    parent, children = _SHAPES[form.algo](rank, form.root, world)
    steps = ScheduleBuilder()
    own = Own(steps, form, 1)
    if not children and parent is None:
        own.deliver(steps, form, 0, 0)
        return steps.build()
    buffer, block, ready = own.buffer, own.block(0), own.after(0)
    # The payload of a rank that is not the root is to stay as it is.
    into = RECV if parent is None else SCRATCH
    scratch = 1 if own.buffer == SCRATCH and into == SCRATCH else 0
    reduced = -1
    for child in children:
        reduced = steps.receive_reduce(
            child, block, scratch, source=buffer, buffer=into, after=ready
        )
        buffer, block, ready = into, scratch, [(reduced, Wait.CHUNK)]
    if parent is None:
        finished(steps, form, 0, reduced)
    else:
        steps.send(parent, block, buffer=buffer, after=ready)
    return steps.build()


def _broadcast(form: Form) -> Pattern:
    def payload(rank: int, world: int, size_bytes: int) -> BlockTable:
        return one_block(size_bytes) if rank == form.root else BlockTable.of_lengths([])

    def layout(rank: int, world: int, size_bytes: int) -> Layout:
        send = None if form.in_place else payload(rank, world, size_bytes)
        return make_layout(send=send, recv=one_block(size_bytes))

    return Pattern(
        name="broadcast",
        schedule=lambda rank, world: broadcast_schedule(rank, world, form),
        layout=layout,
        expected=lambda rank, world: Expected.of_rows([(0, form.root, 0)]),
        held=(lambda rank, world: [(0, 0)] if rank == form.root else []) if form.in_place else None,
        payload=payload,
        element_bytes=form.element_bytes,
    )


def _reduce(form: Form) -> Pattern:
    def layout(rank: int, world: int, size_bytes: int) -> Layout:
        block = one_block(size_bytes)
        inner = rank != form.root and bool(_SHAPES[form.algo](rank, form.root, world)[1])
        scratch = scaled_copy(form, block) + [size_bytes] * inner
        return make_layout(
            send=None if form.in_place else block,
            recv=block if form.in_place or rank == form.root else None,
            scratch=BlockTable.of_lengths(scratch),
        )

    def expected(rank: int, world: int) -> Expected:
        origins = range(world) if rank == form.root else range(0)
        rows = [(0, origin, 0) for origin in origins]
        return Expected.of_rows(rows, reduced=True, scaled=form.scaled)

    return Pattern(
        name="reduce",
        schedule=lambda rank, world: reduce_schedule(rank, world, form),
        layout=layout,
        expected=expected,
        held=(lambda rank, world: [(0, 0)]) if form.in_place else None,
        payload=lambda rank, world, size_bytes: one_block(size_bytes),
        element_bytes=form.element_bytes,
    )


def _cost(algo: str, world: int, size_bytes: int) -> tuple[float, float]:
    if algo == "ring":
        # The chunks follow each other down the chain.
        return world - 1, size_bytes
    levels = (world - 1).bit_length()
    return levels, levels * size_bytes


BROADCAST = Program(
    name="broadcast",
    pattern=_broadcast,
    division=undivided,
    algos=("ring", "tree"),
    rooted=True,
    cost=_cost,
    mpi="Bcast",
    nccl="ncclBroadcast",
)
REDUCE = Program(
    name="reduce",
    pattern=_reduce,
    division=undivided,
    algos=("ring", "tree"),
    reduces=True,
    rooted=True,
    cost=_cost,
    mpi="Reduce",
    nccl="ncclReduce",
)
PROGRAMS = (BROADCAST, REDUCE)
