"""Tokens to their experts and back, with another matrix in each iteration (`moe`).

Each rank has experts / n of the experts and a batch of tokens. Dispatch: each token goes to each
rank that has one of its experts. Combine: when a rank has all tokens that come to it, it sends as
many answers back, and posts the receives of those that it gets: a call of its own, as in MPI and
NCCL. Nothing is computed: an answer is bytes of the rank that sends it. What a rank has for itself
is copied.

The size is what the tokens of a rank are on their way out, so that a scan is one of token numbers.
Who gets how many is drawn anew in each iteration (`routing`). A rank of whose experts none may be
chosen in an iteration gets no message; where tokens might come and by chance none do, an empty one.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tcpx_mpi.arrays import Int64s
from tcpx_mpi.patterns.moe_shape import refuse_ranks, shape_of
from tcpx_mpi.patterns.program import After, Division, Form, of_bytes
from tcpx_mpi.patterns.routing import Routing, counts_of, travels
from tcpx_mpi.schedule.builder import ScheduleBuilder
from tcpx_mpi.schedule.pattern import Pattern, fewer_than_two
from tcpx_mpi.schedule.promise import Expected
from tcpx_mpi.schedule.table import BlockTable, Layout, Schedule, Wait, make_layout
from tcpx_mpi.units import GIB, format_size

#: Of the matrices of a row, made ahead.
_MOST_BYTES = GIB
_NUMBER_BYTES = 8


def _schedule(rank: int, world: int, goes: tuple[bool, ...]) -> Schedule:
    """`goes`: by rank, whether tokens go there. SEND and RECV have a block a rank of tokens, one a
    rank of answers, and an empty one."""
    steps = ScheduleBuilder()
    others = [((rank - d) % world, (rank + d) % world) for d in range(1, world)]
    arrived: After = []
    for source, target in others:  # at distance d, so that no rank is everybody's first target
        if goes[rank]:
            arrived.append((steps.receive(source, source), Wait.WHOLE))
        if goes[target]:
            steps.send(target, target)
    if goes[rank]:
        arrived.append((steps.copy(rank, rank), Wait.WHOLE))
    # A step waits for two others at most: an empty copy is there when its two are.
    while len(arrived) > 2:
        both = steps.copy(2 * world, 2 * world, after=arrived[:2])
        arrived = [*arrived[2:], (both, Wait.WHOLE)]
    for source, target in others:
        if goes[target]:
            steps.receive(target, world + target, after=arrived)
        if goes[rank]:
            steps.send(source, world + source, after=arrived)
    if goes[rank]:
        steps.copy(world + rank, world + rank, after=arrived)
    return steps.build()


def moe(form: Form) -> Pattern:
    shape = shape_of(form.moe)

    def routing(world: int, tokens: int = 0) -> Routing:
        return Routing(tokens, shape.experts, shape.topk, form.skew, form.seed, world)

    def counts(world: int, size_bytes: int) -> Int64s:
        return counts_of(routing(world, size_bytes // shape.token_bytes), form.turns)

    def made_of(matrix: Int64s, rank: int) -> Layout:
        out, back = shape.token_bytes, shape.answer_bytes
        to, of = matrix[rank], matrix[:, rank]
        return make_layout(
            send=BlockTable.of_lengths(np.concatenate([to * out, of * back, [0]])),
            recv=BlockTable.of_lengths(np.concatenate([of * out, to * back, [0]])),
        )

    def expected(rank: int, goes: tuple[bool, ...]) -> Expected:
        world = len(goes)
        tokens = [(origin, origin, rank) for origin in range(world) if goes[rank]]
        answers = [(world + at, at, world + rank) for at in range(world) if goes[at]]
        return Expected.of_rows([*tokens, *answers])

    def of_turn(number: int) -> Pattern:
        turn = number % form.turns
        return dataclasses.replace(
            whole,
            schedule=lambda rank, world: _schedule(rank, world, travels(routing(world), turn)),
            layout=lambda rank, world, size: made_of(counts(world, size)[turn], rank),
            expected=lambda rank, world: expected(rank, travels(routing(world), turn)),
            turn=None,
        )

    def anywhere(world: int) -> tuple[bool, ...]:
        of_turns = (travels(routing(world), turn) for turn in range(form.turns))
        return tuple(map(any, zip(*of_turns, strict=True)))

    def refuse(world: int) -> str | None:
        needed = form.turns * world * world * _NUMBER_BYTES
        if needed <= _MOST_BYTES or world < 2:
            return fewer_than_two("moe", world) or refuse_ranks(shape, world)
        return (
            f"-n/--iters makes {form.turns} matrices of {world} ranks, {format_size(needed)} ahead "
            f"of a row, more than {format_size(_MOST_BYTES)}: use a smaller -n"
        )

    whole = Pattern(
        name="moe",
        refuse=refuse,
        schedule=lambda rank, world: _schedule(rank, world, anywhere(world)),
        layout=lambda rank, world, size: made_of(counts(world, size).max(axis=0), rank),
        expected=lambda rank, world: expected(rank, anywhere(world)),
        busbw_factor=lambda world: math.nan,
        turn=of_turn,
        tails="several",
        notes=(
            f"--moe: {shape.text()}",
            f"--skew {form.skew}, drawn by --seed {form.seed}; another matrix in each of "
            f"{form.turns} iterations",
            "the size is what a rank's tokens are; busbw: what left a rank, on average",
        ),
    )
    return whole


def _division(size_bytes: int, element_bytes: int, world: int, form: Form) -> Division:
    """Whole tokens; the count column has their number."""
    token_bytes = shape_of(form.moe).token_bytes
    tokens = size_bytes // token_bytes
    return Division(tokens * token_bytes, tokens)


PROGRAMS = (
    dataclasses.replace(
        of_bytes("moe", moe, "moe", "skew", "seed"), division=_division, mpi="Alltoallv"
    ),
)
