"""The reduction of everybody's payload, a block of it to each rank (nccl-tests' reduce_scatter).

ring: in n - 1 steps each block goes round, gains an operand at each rank and ends where it belongs;
a chunk is forwarded as soon as it is reduced.

halving: the all_gather of Bruck backwards, for any n. In step k, from the largest down, a rank
sends what it has of 2^k blocks, those from 2^k behind its own on, to the rank 2^k behind it, and
takes in what comes for its own block and those behind it. ceil(log2(n)) steps do.
"""

from __future__ import annotations

from itertools import pairwise

from tcpx_mpi.patterns.program import (
    After,
    Form,
    Own,
    Program,
    block_bytes,
    by_ranks,
    equal_blocks,
    finished,
    scaled_copy,
)
from tcpx_mpi.schedule.builder import ScheduleBuilder
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.promise import Expected
from tcpx_mpi.schedule.symmetry import Symmetry
from tcpx_mpi.schedule.table import BlockTable, BufferId, Layout, Schedule, Wait, make_layout

RECV, SCRATCH = BufferId.RECV, BufferId.SCRATCH


def _result(rank: int, form: Form) -> int:
    """The block of RECV in which the result of a rank ends."""
    return rank if form.in_place else 0


def ring_schedule(rank: int, world: int, form: Form) -> Schedule:
    steps = ScheduleBuilder()
    own = Own(steps, form, world)
    if world == 1:
        own.deliver(steps, form, 0, 0)
        return steps.build()
    target, source = (rank + 1) % world, (rank - 1) % world
    reduced = -1
    partial = (own.buffer, 0)
    for step in range(world - 1):
        block = (rank - 1 - step) % world
        if step == 0:
            steps.send(target, own.block(block), buffer=own.buffer, after=own.after(block))
        else:
            steps.send(target, partial[1], buffer=partial[0], after=[(reduced, Wait.CHUNK)])
        block = (rank - 2 - step) % world
        # In the place of the operand, unless that is the payload, which is to stay.
        partial = (SCRATCH, step) if own.buffer == BufferId.SEND else (own.buffer, block)
        if step == world - 2:
            partial = (RECV, _result(rank, form))
        reduced = steps.receive_reduce(
            source,
            own.block(block),
            partial[1],
            source=own.buffer,
            buffer=partial[0],
            after=own.after(block),
        )
    finished(steps, form, _result(rank, form), reduced)
    return steps.build()


def rounds(world: int) -> list[int]:
    """The distances of the steps of halving, the largest first."""
    return [1 << k for k in reversed(range((world - 1).bit_length()))]


def parts(receiver: int, distance: int, world: int) -> list[tuple[int, int]]:
    """(first block, blocks) of the messages of a step to a rank: its own block and those behind.

    They are cut at 2 places: the numbers of blocks start again, or either end has reduced into the
    blocks before but not into those behind, which then stand in another buffer.
    """
    blocks = min(distance, world - distance)
    done = reduced_before(distance, world)
    wrap = world - receiver
    cuts = sorted({0, blocks} | {cut for cut in (done, done - distance, wrap) if 0 < cut < blocks})
    return [((receiver + first) % world, end - first) for first, end in pairwise(cuts)]


def reduced_before(distance: int, world: int) -> int:
    """The number of blocks that a rank has reduced into before a step, its own too."""
    return max((min(d, world - d) for d in rounds(world) if d > distance), default=0)


def halving_schedule(rank: int, world: int, form: Form) -> Schedule:
    steps = ScheduleBuilder()
    own = Own(steps, form, world, each=False)
    if world == 1:
        own.deliver(steps, form, 0, 0)
        return steps.build()
    # Each step of a rank waits for all that came in before: it is a chain.
    ready: After = own.after(0)
    reduced = -1
    # Where a payload must not be overwritten, what was reduced stands in SCRATCH.
    partial = SCRATCH if own.buffer == BufferId.SEND else own.buffer
    for distance in rounds(world):
        done = reduced_before(distance, world)

        def source_of(block: int, done: int = done) -> tuple[BufferId, int]:
            has = (block - rank) % world < done
            return (partial, block) if has else (own.buffer, own.block(block))

        target = (rank + distance) % world
        for block, blocks in parts(target, distance, world):
            buffer, index = source_of(block)
            steps.send(target, index, buffer=buffer, blocks=blocks, after=ready)
        for block, blocks in parts(rank, distance, world):
            buffer, index = source_of(block)
            into = (RECV, _result(rank, form)) if distance == 1 else (partial, block)
            reduced = steps.receive_reduce(
                (rank - distance) % world,
                index,
                into[1],
                source=buffer,
                buffer=into[0],
                blocks=blocks,
                after=ready,
            )
            ready = [(reduced, Wait.WHOLE)]
    finished(steps, form, _result(rank, form), reduced)
    return steps.build()


_SCHEDULES = {"ring": ring_schedule, "halving": halving_schedule}
_SYMMETRIES = {"ring": Symmetry.SHIFT, "halving": Symmetry.PARTED_SHIFT}


def _scratch_blocks(form: Form, world: int) -> int:
    """Blocks of SCRATCH for what is not yet a result, where the payload is to stay."""
    if form.in_place or scaled_copy(form, BlockTable.of_lengths([0])):
        return 0
    return world if form.algo == "halving" and world > 1 else max(world - 2, 0)


def pattern(form: Form) -> Pattern:
    """The pattern of a form."""

    def layout(rank: int, world: int, size_bytes: int) -> Layout:
        table = equal_blocks(size_bytes, world)
        block = size_bytes // world
        scratch = scaled_copy(form, table) + [block] * _scratch_blocks(form, world)
        return make_layout(
            send=None if form.in_place else table,
            recv=table if form.in_place else BlockTable.of_lengths([block]),
            scratch=BlockTable.of_lengths(scratch),
        )

    def expected(rank: int, world: int) -> Expected:
        rows = [(_result(rank, form), origin, rank) for origin in range(world)]
        return Expected.of_rows(rows, reduced=True, scaled=form.scaled)

    def held(rank: int, world: int) -> list[tuple[int, int]]:
        return [(block, block) for block in range(world)]

    return Pattern(
        name="reduce_scatter",
        busbw_factor=lambda world: (world - 1) / world,
        schedule=lambda rank, world: _SCHEDULES[form.algo](rank, world, form),
        layout=layout,
        expected=expected,
        held=held if form.in_place else None,
        payload=lambda rank, world, size_bytes: equal_blocks(size_bytes, world),
        element_bytes=form.element_bytes,
        symmetry=lambda world: _SYMMETRIES[form.algo],
    )


def _cost(algo: str, world: int, size_bytes: int) -> tuple[float, float]:
    steps = world - 1 if algo == "ring" else (world - 1).bit_length()
    return steps, (world - 1) * block_bytes(size_bytes, world)


PROGRAMS = (
    Program(
        name="reduce_scatter",
        pattern=pattern,
        division=by_ranks,
        algos=("ring", "halving"),
        reduces=True,
        cost=_cost,
        mpi="Reduce_scatter",
        nccl="ncclReduceScatter",
    ),
)
