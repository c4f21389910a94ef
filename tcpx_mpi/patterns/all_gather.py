"""Everybody's block, everywhere (nccl-tests' all_gather and hypercube).

ring: each block goes round in n - 1 steps, forwarded chunk by chunk.

doubling (Bruck): in step k a rank has 2^k blocks, its own first, and sends them to the one 2^k
before it, so that ceil(log2(n)) steps do for any n. Blocks stand where they belong from the start:
a range that passes the last block is sent in two parts.

hypercube: as nccl-tests has it, in step k with the rank whose number differs in bit k.
"""

from __future__ import annotations

from tcpx_mpi.patterns.program import (
    After,
    Form,
    Own,
    Program,
    block_bytes,
    by_ranks,
    equal_blocks,
    one_block,
)
from tcpx_mpi.schedule.builder import ScheduleBuilder
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.promise import Expected
from tcpx_mpi.schedule.symmetry import Symmetry
from tcpx_mpi.schedule.table import BufferId, Layout, Schedule, Wait, make_layout

RECV = BufferId.RECV


def _begin(rank: int, form: Form) -> tuple[ScheduleBuilder, Own, int | None]:
    """The own block where it belongs: the step that copies it there, None in place."""
    steps = ScheduleBuilder()
    own = Own(steps, form, 1, held=lambda block: rank)
    return steps, own, own.deliver(steps, form, 0, rank)


def ring_schedule(rank: int, world: int, form: Form) -> Schedule:
    steps, own, _ = _begin(rank, form)
    target, source = (rank + 1) % world, (rank - 1) % world
    got = -1
    for step in range(world - 1):
        if step == 0:
            steps.send(target, own.block(0), buffer=own.buffer)
        else:
            block = (rank - step) % world
            steps.send(target, block, buffer=RECV, after=[(got, Wait.CHUNK)])
        got = steps.receive(source, (rank - step - 1) % world)
    return steps.build()


def ranges(first: int, blocks: int, world: int) -> list[tuple[int, int]]:
    """(first block, blocks) of the parts of a range that may pass the last block."""
    first %= world
    before = min(blocks, world - first)
    parts = [(first, before), (0, blocks - before)]
    return [part for part in parts if part[1]]


def doubling_schedule(rank: int, world: int, form: Form) -> Schedule:
    steps, own, copied = _begin(rank, form)
    got, sent = -1, -1
    have = 1
    while have < world:
        blocks = min(have, world - have)
        target, source = (rank - have) % world, (rank + have) % world
        if have == 1:
            sent = steps.send(target, own.block(0), buffer=own.buffer)
        else:
            # What was received before the last step, the last send has waited for. The first of
            # them was of the own block alone, whose copy stands in for it.
            earlier = copied if have == 2 else sent
            after: After = [(got, Wait.WHOLE)]
            if earlier is not None:
                after.append((earlier, Wait.WHOLE))
            for first, count in ranges(rank, blocks, world):
                sent = steps.send(target, first, buffer=RECV, blocks=count, after=after)
        parts = ranges(rank + have, blocks, world)
        got = steps.receive(source, parts[0][0], blocks=parts[0][1])
        have += blocks
        for first, count in parts[1:]:
            # So that who waits for this part waits for both.
            both: After = [(got, Wait.WHOLE)] if have < world else []
            got = steps.receive(source, first, blocks=count, after=both)
    return steps.build()


def hypercube_schedule(rank: int, world: int, form: Form) -> Schedule:
    steps, own, copied = _begin(rank, form)
    got, sent = -1, -1
    have = 1
    while have < world:
        peer = rank ^ have
        mine = rank & ~(have - 1)
        if have == 1:
            sent = steps.send(peer, own.block(0), buffer=own.buffer)
        else:
            earlier = copied if have == 2 else sent
            after: After = [(got, Wait.WHOLE)]
            if earlier is not None:
                after.append((earlier, Wait.WHOLE))
            sent = steps.send(peer, mine, buffer=RECV, blocks=have, after=after)
        got = steps.receive(peer, mine ^ have, blocks=have)
        have *= 2
    return steps.build()


_SCHEDULES = {
    "ring": ring_schedule,
    "doubling": doubling_schedule,
    "hypercube": hypercube_schedule,
}
_SYMMETRIES = {
    "ring": Symmetry.SHIFT,
    "doubling": Symmetry.PARTED_SHIFT,
    "hypercube": Symmetry.XOR,
}


def _pattern(name: str, form: Form) -> Pattern:
    def layout(rank: int, world: int, size_bytes: int) -> Layout:
        blocks = equal_blocks(size_bytes, world)
        send = None if form.in_place else one_block(size_bytes // world)
        return make_layout(send=send, recv=blocks)

    def expected(rank: int, world: int) -> Expected:
        return Expected.of_rows([(origin, origin, 0) for origin in range(world)])

    return Pattern(
        name=name,
        # nccl-tests counts no own block in a hypercube's algorithm bandwidth.
        algbw_factor=lambda world: (world - 1) / world if name == "hypercube" else 1.0,
        busbw_factor=lambda world: 1.0 if name == "hypercube" else (world - 1) / world,
        schedule=lambda rank, world: _SCHEDULES[form.algo](rank, world, form),
        layout=layout,
        expected=expected,
        held=(lambda rank, world: [(rank, 0)]) if form.in_place else None,
        payload=lambda rank, world, size_bytes: one_block(size_bytes // world),
        element_bytes=form.element_bytes,
        symmetry=lambda world: _SYMMETRIES[form.algo],
    )


def _cost(algo: str, world: int, size_bytes: int) -> tuple[float, float]:
    steps = world - 1 if algo == "ring" else (world - 1).bit_length()
    return steps, (world - 1) * block_bytes(size_bytes, world)


def no_cube(world: int) -> str | None:
    """nccl-tests' words where there is no cube."""
    if world & (world - 1):
        return f"nRanks {world} is not a power of 2, skipping"
    return None


ALL_GATHER = Program(
    name="all_gather",
    pattern=lambda form: _pattern("all_gather", form),
    division=by_ranks,
    algos=("ring", "doubling"),
    cost=_cost,
    mpi="Allgather",
    nccl="ncclAllGather",
)
HYPERCUBE = Program(
    name="hypercube",
    pattern=lambda form: _pattern("hypercube", form),
    division=by_ranks,
    algos=("hypercube",),
    skips=no_cube,
)
PROGRAMS = (ALL_GATHER, HYPERCUBE)
