"""The reduction of everybody's payload, everywhere (nccl-tests' all_reduce).

ring: one block a rank. In n - 1 steps each block goes round and gains an operand at each rank, and
in n - 1 more the results go round. A chunk is forwarded as soon as it is reduced.

doubling: in step k a rank exchanges all it has with the one at distance 2^k, so that log2(n) steps
of the whole size do. Of n that is no power of two the first 2 (n - 2^k) ranks are pairs: one
of each joins in and gives the other the result.
"""

from __future__ import annotations

from tcpx_mpi.patterns.program import (
    After,
    Form,
    Own,
    Program,
    element_blocks,
    finished,
    scaled_copy,
    undivided,
)
from tcpx_mpi.schedule.builder import ScheduleBuilder
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.promise import Expected
from tcpx_mpi.schedule.symmetry import Symmetry
from tcpx_mpi.schedule.table import BlockTable, BufferId, Layout, Schedule, Wait, make_layout

RECV, SCRATCH = BufferId.RECV, BufferId.SCRATCH


def ring_schedule(rank: int, world: int, form: Form) -> Schedule:
    steps = ScheduleBuilder()
    own = Own(steps, form, world)
    if world == 1:
        own.deliver(steps, form, 0, 0)
        return steps.build()
    target, source = (rank + 1) % world, (rank - 1) % world
    # The blocks of RECV that are being sent, which a result may overwrite only then.
    sent: dict[int, int] = {}
    reduced = -1
    for step in range(world - 1):
        block = (rank - step) % world
        if step == 0:
            send = steps.send(target, own.block(block), buffer=own.buffer, after=own.after(block))
            if own.buffer == RECV:
                sent[block] = send
        else:
            sent[block] = steps.send(target, block, buffer=RECV, after=[(reduced, Wait.CHUNK)])
        block = (rank - step - 1) % world
        reduced = steps.receive_reduce(
            source, own.block(block), block, source=own.buffer, after=own.after(block)
        )
    ready = finished(steps, form, (rank + 1) % world, reduced)
    for step in range(world - 1):
        assert ready is not None
        block = (rank + 1 - step) % world
        steps.send(target, block, buffer=RECV, after=[(ready, Wait.CHUNK)])
        block = (rank - step) % world
        after: After = [(sent[block], Wait.CHUNK)] if block in sent else []
        ready = steps.receive(source, block, after=after)
    return steps.build()


def doubling_schedule(rank: int, world: int, form: Form) -> Schedule:
    steps = ScheduleBuilder()
    own = Own(steps, form, 1)
    extra = world - (1 << (world.bit_length() - 1))
    if rank < 2 * extra and rank % 2 == 0:
        send = steps.send(rank + 1, own.block(0), buffer=own.buffer, after=own.after(0))
        after: After = [(send, Wait.CHUNK)] if own.buffer == RECV else []
        steps.receive(rank + 1, 0, after=after)
        return steps.build()
    ready = _exchange(steps, own, form, rank, world, extra)
    if rank < 2 * extra:
        after = [] if ready is None else [(ready, Wait.CHUNK)]
        steps.send(rank - 1, 0, buffer=RECV, after=after)
    return steps.build()


def _exchange(
    steps: ScheduleBuilder, own: Own, form: Form, rank: int, world: int, extra: int
) -> int | None:
    """The steps of a rank that joins in; the one that completes its result in RECV.

    A partial result is sent while the next one is made of it, so that those stand in two blocks of
    SCRATCH in turn, and the last in RECV.
    """
    spare = 1 if own.buffer == SCRATCH else 0
    # (who sends to us, whether we send to it, too)
    rounds = [(rank - 1, False)] if rank < 2 * extra else []
    number = rank // 2 if rank < 2 * extra else rank - extra
    mask = 1
    while mask < world - extra:
        other = number ^ mask
        rounds.append((2 * other + 1 if other < extra else other + extra, True))
        mask *= 2
    if not rounds:
        return own.deliver(steps, form, 0, 0)
    buffer, block, ready = own.buffer, own.block(0), own.after(0)
    sends: list[int | None] = []
    reduced = -1
    for turn, (peer, both) in enumerate(rounds):
        send = steps.send(peer, block, buffer=buffer, after=ready) if both else None
        sends.append(send)
        last = turn == len(rounds) - 1
        # What the only exchange sends out of RECV must not be overwritten meanwhile.
        into_recv = last and not (len(rounds) == 1 and own.buffer == RECV)
        overwritten: int | None = None
        if into_recv and own.buffer == RECV:
            overwritten = sends[0]
        elif not into_recv and turn >= 2:
            overwritten = sends[turn - 1]
        wait = [] if overwritten is None else [(overwritten, Wait.CHUNK)]
        target = (RECV, 0) if into_recv else (SCRATCH, spare + turn % 2)
        reduced = steps.receive_reduce(
            peer, block, target[1], source=buffer, buffer=target[0], after=[*ready, *wait]
        )
        buffer, block = target
        ready = [(reduced, Wait.CHUNK)]
    if buffer == SCRATCH:
        done = sends[0]
        assert done is not None
        reduced = steps.copy(block, 0, source=SCRATCH, after=[*ready, (done, Wait.CHUNK)])
    return finished(steps, form, 0, reduced)


_SCHEDULES = {"ring": ring_schedule, "doubling": doubling_schedule}


def pattern(form: Form) -> Pattern:
    """The pattern of a form."""

    def payload(rank: int, world: int, size_bytes: int) -> BlockTable:
        blocks = world if form.algo == "ring" else 1
        return element_blocks(size_bytes, blocks, form.element_bytes)

    def layout(rank: int, world: int, size_bytes: int) -> Layout:
        table = payload(rank, world, size_bytes)
        scratch = scaled_copy(form, table)
        if form.algo == "doubling" and world > 1:
            scratch = [*scratch, size_bytes, size_bytes]
        return make_layout(
            send=None if form.in_place else table,
            recv=table,
            scratch=BlockTable.of_lengths(scratch),
        )

    def expected(rank: int, world: int) -> Expected:
        blocks = world if form.algo == "ring" else 1
        rows = [(block, origin, block) for block in range(blocks) for origin in range(world)]
        return Expected.of_rows(rows, reduced=True, scaled=form.scaled)

    def held(rank: int, world: int) -> list[tuple[int, int]]:
        return [(block, block) for block in range(world if form.algo == "ring" else 1)]

    def symmetry(world: int) -> Symmetry | None:
        if form.algo == "ring":
            return Symmetry.SHIFT
        return None if world & (world - 1) else Symmetry.XOR

    return Pattern(
        name="all_reduce",
        busbw_factor=lambda world: 2 * (world - 1) / world,
        schedule=lambda rank, world: _SCHEDULES[form.algo](rank, world, form),
        layout=layout,
        expected=expected,
        held=held if form.in_place else None,
        payload=payload,
        element_bytes=form.element_bytes,
        symmetry=symmetry,
    )


def _cost(algo: str, world: int, size_bytes: int) -> tuple[float, float]:
    if algo == "ring":
        return 2 * (world - 1), 2 * (world - 1) / world * size_bytes
    # Those beyond a power of 2 give theirs to another before, and get the result after, at most.
    rounds = (world.bit_length() - 1) + (2 if world & (world - 1) else 0)
    return rounds, rounds * size_bytes


PROGRAMS = (
    Program(
        name="all_reduce",
        pattern=pattern,
        division=undivided,
        algos=("ring", "doubling"),
        reduces=True,
        cost=_cost,
        mpi="Allreduce",
        nccl="ncclAllReduce",
    ),
)
