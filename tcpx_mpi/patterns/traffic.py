"""Everybody to everybody in the proportions of a matrix, at every size (the pattern `matrix`).

The rank that the matrix gives most, to send or to receive, sends or receives the size; the others
have less, in proportion. What the matrix gives a rank of its own does not travel and does not
count. Without a matrix: by distance, as alltoallv has it.

A sequence has several matrices, and the size is what the busiest rank of them all has: an iteration
each, in turn, or a row each.
"""

from __future__ import annotations

import dataclasses
import functools

from tcpx_mpi.patterns.matrix import Matrix, too_few_rows
from tcpx_mpi.patterns.program import Form, of_bytes
from tcpx_mpi.schedule.builder import ScheduleBuilder
from tcpx_mpi.schedule.pattern import Pattern, Rounds, fewer_than_two
from tcpx_mpi.schedule.promise import Expected
from tcpx_mpi.schedule.symmetry import Symmetry
from tcpx_mpi.schedule.table import BlockTable, Layout, Schedule, make_layout

_NOTE = "the size is what the busiest rank sends or receives"


@functools.lru_cache(maxsize=1024)
def busiest(weights: Matrix, world: int) -> int:
    """The most that a rank sends to others, or receives from them."""
    rows = [row[:world] for row in weights[:world]]
    sent = [sum(row) - row[rank] for rank, row in enumerate(rows)]
    received = [sum(column) - column[rank] for rank, column in enumerate(zip(*rows, strict=True))]
    most: int = max(sent + received)
    return most


def traffic(form: Form) -> Pattern:
    if form.sequence:
        return _in_turn(form)
    weights = form.matrix
    return dataclasses.replace(
        _of(weights, () if weights is None else (weights,)),
        symmetry=lambda world: Symmetry.SHIFT if weights is None else None,
        notes=(f"{_NOTE}; what a rank has for itself does not travel",),
    )


def _in_turn(form: Form) -> Pattern:
    """A matrix of the sequence in each iteration, or in each row."""
    sequence = form.sequence
    least = min(map(len, sequence))
    largest = tuple(
        tuple(max(each[i][j] for each in sequence) for j in range(least)) for i in range(least)
    )
    one_by_one = [_of(each, sequence) for each in sequence]
    by = form.sequence_by
    count = f"all {len(sequence)} matrices of --sequence"
    return dataclasses.replace(
        _of(largest, sequence),
        turn=(lambda number: one_by_one[number % len(sequence)]) if by == "iteration" else None,
        rounds=Rounds(lambda world: one_by_one) if by == "row" else None,
        notes=(f"{_NOTE} of {count}; one in each {by}, in turn",),
    )


def _of(weights: Matrix | None, beside: tuple[Matrix, ...]) -> Pattern:
    """`beside`: the matrices of whose busiest rank the size is."""

    def weight(source: int, target: int, world: int) -> int:
        if source == target:
            return 0
        return (target - source) % world if weights is None else weights[source][target]

    def most(world: int) -> int:
        if weights is None:
            return world * (world - 1) // 2
        return max(busiest(each, world) for each in beside)

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
        option = "--sequence" if len(beside) > 1 else "--matrix"
        for each in beside:
            if len(each) < world:
                return too_few_rows(each, world, option)
        if most(world) == 0:
            return (
                f"{option} has nothing from one of {world} ranks to another; write a number above "
                "0 off its diagonal"
            )
        return None

    return Pattern(
        name="matrix", refuse=refuse, schedule=schedule, layout=layout, expected=expected
    )


PROGRAMS = (of_bytes("matrix", traffic, "matrix_path", "sequence_paths", "sequence_by"),)
