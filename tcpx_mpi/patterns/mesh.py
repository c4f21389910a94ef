"""Everybody to everybody (nccl-tests' alltoall).

The size is a rank's whole send buffer, divided by the ragged rule: block p goes to rank p. So rank
r receives one block of the same length from each rank, the length of block r.
"""

from __future__ import annotations

from tcpx_mpi.patterns.program import of_bytes
from tcpx_mpi.schedule.builder import ScheduleBuilder
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.promise import Expected
from tcpx_mpi.schedule.symmetry import Symmetry
from tcpx_mpi.schedule.table import BlockTable, Layout, Schedule, make_layout, ragged_division


def _schedule(rank: int, world: int) -> Schedule:
    steps = ScheduleBuilder()
    # At distance d everybody sends to another rank, so no rank is everybody's first target.
    for distance in range(1, world):
        source, target = (rank - distance) % world, (rank + distance) % world
        steps.receive(source, source)
        steps.send(target, target)
    # Last, so that the network has work while the processor copies.
    steps.copy(rank, rank)
    return steps.build()


def _layout(rank: int, world: int, size_bytes: int) -> Layout:
    send = ragged_division(size_bytes, world)
    recv = BlockTable.of_lengths([int(send.lengths[rank])] * world)
    return make_layout(send=send, recv=recv)


def _expected(rank: int, world: int) -> Expected:
    return Expected.of_rows([(origin, origin, rank) for origin in range(world)])


MESH = Pattern(
    name="mesh",
    busbw_factor=lambda world: (world - 1) / world,
    schedule=_schedule,
    layout=_layout,
    expected=_expected,
    symmetry=lambda world: Symmetry.SHIFT,
    notes=("each rank's own block is copied locally, inside the timed region",),
)
PROGRAMS = (of_bytes("mesh", lambda form: MESH),)
