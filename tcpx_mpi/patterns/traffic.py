"""Everybody to everybody in the proportions of a matrix, at every size (the pattern `matrix`).

The rank that the matrix gives most, to send or to receive, sends or receives the size; the others
have less, in proportion. What the matrix gives a rank of its own does not travel and does not
count. Without a matrix: by distance, as alltoallv has it.
"""

from __future__ import annotations

import functools

from tcpx_mpi.patterns.matrix import Matrix, too_few_rows
from tcpx_mpi.patterns.program import Form, of_bytes
from tcpx_mpi.schedule.builder import ScheduleBuilder
from tcpx_mpi.schedule.pattern import Pattern, fewer_than_two
from tcpx_mpi.schedule.promise import Expected
from tcpx_mpi.schedule.symmetry import Symmetry
from tcpx_mpi.schedule.table import BlockTable, Layout, Schedule, make_layout


@functools.lru_cache(maxsize=8)
def busiest(weights: Matrix, world: int) -> int:
    """The most that a rank sends to others, or receives from them."""
    rows = [row[:world] for row in weights[:world]]
    sent = [sum(row) - row[rank] for rank, row in enumerate(rows)]
    received = [sum(column) - column[rank] for rank, column in enumerate(zip(*rows, strict=True))]
    most: int = max(sent + received)
    return most


def traffic(form: Form) -> Pattern:
    weights = form.matrix

    def weight(source: int, target: int, world: int) -> int:
        if source == target:
            return 0
        return (target - source) % world if weights is None else weights[source][target]

    def most(world: int) -> int:
        return world * (world - 1) // 2 if weights is None else busiest(weights, world)

    def lengths(rank: int, world: int, size_bytes: int, sends: bool) -> BlockTable:
        whole = most(world)
        ends = ((rank, other) if sends else (other, rank) for other in range(world))
        return BlockTable.of_lengths(
            [size_bytes * weight(source, target, world) // whole for source, target in ends]
        )

    def schedule(rank: int, world: int) -> Schedule:
        steps = ScheduleBuilder()
        # As in a mesh: no rank is everybody's first target.
        for distance in range(1, world):
            source, target = (rank - distance) % world, (rank + distance) % world
            if weight(source, rank, world):
                steps.receive(source, source)
            if weight(rank, target, world):
                steps.send(target, target)
        return steps.build()

    def layout(rank: int, world: int, size_bytes: int) -> Layout:
        return make_layout(
            send=lengths(rank, world, size_bytes, sends=True),
            recv=lengths(rank, world, size_bytes, sends=False),
        )

    def expected(rank: int, world: int) -> Expected:
        origins = (origin for origin in range(world) if weight(origin, rank, world))
        return Expected.of_rows([(origin, origin, rank) for origin in origins])

    def refuse(world: int) -> str | None:
        if world < 2 or weights is None:
            return fewer_than_two("matrix", world)
        if len(weights) < world:
            return too_few_rows(weights, world, "--matrix")
        if busiest(weights, world) == 0:
            return (
                f"--matrix has nothing from one of {world} ranks to another; write a number above "
                "0 off its diagonal"
            )
        return None

    return Pattern(
        name="matrix",
        refuse=refuse,
        schedule=schedule,
        layout=layout,
        expected=expected,
        symmetry=lambda world: Symmetry.SHIFT if weights is None else None,
        notes=(
            "the size is what the busiest rank sends or receives; what a rank has for itself does "
            "not travel",
        ),
    )


PROGRAMS = (of_bytes("matrix", traffic, "matrix_path"),)
