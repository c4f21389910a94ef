"""A block from each rank to each (nccl-tests' alltoall and alltoallv).

spread: all messages at once, in step d to the rank d behind, so that no rank is everybody's first
target. pairwise: step d begins when the messages of step d - 1 have gone and come.

alltoall: blocks of one length. alltoallv: lengths by a matrix of bytes from rank i to rank j, or by
distance: the further behind, the more; `spread` says how much more (0: nothing).
"""

from __future__ import annotations

from collections.abc import Callable

from tcpx_mpi.patterns.program import (
    ALIGNMENT,
    BY_SENDS,
    After,
    Division,
    Form,
    Program,
    block_bytes,
    by_ranks,
)
from tcpx_mpi.schedule.builder import ScheduleBuilder
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.promise import Expected
from tcpx_mpi.schedule.symmetry import Symmetry
from tcpx_mpi.schedule.table import BlockTable, Layout, Schedule, Wait, make_layout

#: (source, target, world, size) -> bytes.
Lengths = Callable[[int, int, int, int], int]


def schedule(rank: int, world: int, form: Form) -> Schedule:
    steps = ScheduleBuilder()
    after: After = []
    for distance in range(1, world):
        source, target = (rank - distance) % world, (rank + distance) % world
        passed: After = []
        if _travels(form, source, rank):
            passed.append((steps.receive(source, source), Wait.WHOLE))
        if _travels(form, rank, target):
            passed.append((steps.send(target, target, after=after), Wait.WHOLE))
        if form.algo == "pairwise" and passed:
            after = passed
    if _travels(form, rank, rank):
        # Last, so that the network has work while the processor copies.
        steps.copy(rank, rank)
    return steps.build()


def _travels(form: Form, source: int, target: int) -> bool:
    """Whether there is a message at all: a matrix may have none between two ranks."""
    return form.matrix is None or form.matrix[source][target] > 0


def equal(source: int, target: int, world: int, size_bytes: int) -> int:
    return size_bytes // world


def by_distance(source: int, target: int, world: int, total: int, spread: float) -> int:
    """nccl-tests' lengths of a rank's `total` bytes, rounded down to 16 bytes."""
    if world == 1:
        return total // ALIGNMENT * ALIGNMENT
    distance = (target - source) % world
    even = total / world
    weighted = distance * total / (world * (world - 1) // 2)
    return int((1 - spread) * even + spread * weighted) // ALIGNMENT * ALIGNMENT


def lengths_of(form: Form) -> Lengths:
    """The lengths from each rank to each other one in alltoallv; the size is that which was asked
    for."""
    matrix = form.matrix
    if matrix is not None:
        return lambda source, target, world, size: matrix[source][target]

    def by_form(source: int, target: int, world: int, size: int) -> int:
        asked = size if form.asked_bytes is None else form.asked_bytes
        total = block_bytes(asked, world) * world
        return by_distance(source, target, world, total, form.spread)

    return by_form


def largest(form: Form, world: int, size_bytes: int) -> int:
    """The most bytes that a rank sends, or receives: the size column."""
    lengths = lengths_of(form)
    if form.matrix is None:  # all ranks are alike
        return sum(lengths(0, target, world, size_bytes) for target in range(world))
    sent = [sum(row[:world]) for row in form.matrix[:world]]
    received = [sum(row[rank] for row in form.matrix[:world]) for rank in range(world)]
    return max(*sent, *received)


def _division(size_bytes: int, element_bytes: int, world: int, form: Form) -> Division:
    count = 0 if form.matrix is not None else block_bytes(size_bytes, world) // element_bytes
    return Division(largest(form, world, size_bytes), count)


def _pattern(name: str, form: Form, lengths: Lengths) -> Pattern:
    def payload(rank: int, world: int, size_bytes: int) -> BlockTable:
        return BlockTable.of_lengths(
            [lengths(rank, target, world, size_bytes) for target in range(world)]
        )

    def layout(rank: int, world: int, size_bytes: int) -> Layout:
        recv = [lengths(source, rank, world, size_bytes) for source in range(world)]
        return make_layout(send=payload(rank, world, size_bytes), recv=BlockTable.of_lengths(recv))

    def expected(rank: int, world: int) -> Expected:
        return Expected.of_rows([(origin, origin, rank) for origin in range(world)])

    return Pattern(
        name=name,
        busbw_factor=lambda world: (world - 1) / world,
        schedule=lambda rank, world: schedule(rank, world, form),
        layout=layout,
        expected=expected,
        payload=payload,
        element_bytes=form.element_bytes,
        symmetry=lambda world: Symmetry.SHIFT if form.matrix is None else None,
        notes=("each rank's own block is copied locally, inside the timed region",),
    )


def _cost(algo: str, world: int, size_bytes: int) -> tuple[float, float]:
    return (1 if algo == "spread" else world - 1), (world - 1) * block_bytes(size_bytes, world)


PROGRAMS = (
    Program(
        "alltoall",
        lambda form: _pattern("alltoall", form, equal),
        by_ranks,
        ("spread", "pairwise"),
        in_place=False,
        cost=_cost,
        mpi="Alltoall",
        nccl=BY_SENDS,
    ),
    Program(
        "alltoallv",
        lambda form: _pattern("alltoallv", form, lengths_of(form)),
        _division,
        ("spread", "pairwise"),
        in_place=False,
        cost=_cost,
        options=frozenset({"matrix_path", "spread"}),
        matrix_in_bytes=True,
        mpi="Alltoallv",
        nccl=BY_SENDS,
    ),
)
