"""Everybody to the next rank, at the same time (nccl-tests' sendrecv)."""

from __future__ import annotations

from tcpx_mpi.patterns import NAMES, fewer_than_two
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.symmetry import Symmetry
from tcpx_mpi.schedule.table import (
    BlockTable,
    Expected,
    Layout,
    Schedule,
    ScheduleBuilder,
    make_layout,
)


def _schedule(rank: int, world: int) -> Schedule:
    steps = ScheduleBuilder()
    steps.receive((rank - 1) % world, 0)
    steps.send((rank + 1) % world, 0)
    return steps.build()


def _layout(rank: int, world: int, size_bytes: int) -> Layout:
    whole = BlockTable.of_lengths([size_bytes])
    return make_layout(send=whole, recv=whole)


def _expected(rank: int, world: int) -> Expected:
    return Expected.of_rows([(0, (rank - 1) % world, 0)])


RING = Pattern(
    name="ring",
    summary=NAMES["ring"],
    busbw_factor=lambda world: 1.0,
    time_divisor=1,
    refuse=lambda world: fewer_than_two("ring", world),
    schedule=_schedule,
    layout=_layout,
    expected=_expected,
    symmetry=lambda world: Symmetry.SHIFT,
)
