"""Every rank sends to rank + 1 and receives from rank - 1 (nccl-tests' sendrecv).

It is `ring`, with types.

In place the message comes into SCRATCH and is copied when its place has been sent: a receive that
waited for the send at once would wait for itself, round the ring.
"""

from __future__ import annotations

from tcpx_mpi.patterns.program import BY_SENDS, Form, Program, one_block, undivided
from tcpx_mpi.schedule.builder import ScheduleBuilder
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.promise import Expected
from tcpx_mpi.schedule.symmetry import Symmetry
from tcpx_mpi.schedule.table import BufferId, Layout, Schedule, Wait, make_layout


def sendrecv_schedule(rank: int, world: int, form: Form) -> Schedule:
    steps = ScheduleBuilder()
    if world == 1:
        if not form.in_place:
            steps.copy(0, 0)
        return steps.build()
    into = BufferId.SCRATCH if form.in_place else BufferId.RECV
    got = steps.receive((rank - 1) % world, 0, buffer=into)
    out = BufferId.RECV if form.in_place else BufferId.SEND
    sent = steps.send((rank + 1) % world, 0, buffer=out)
    if form.in_place:
        after = [(got, Wait.CHUNK), (sent, Wait.CHUNK)]
        steps.copy(0, 0, source=BufferId.SCRATCH, after=after)
    return steps.build()


def _pattern(form: Form) -> Pattern:
    def layout(rank: int, world: int, size_bytes: int) -> Layout:
        block = one_block(size_bytes)
        if form.in_place:
            return make_layout(recv=block, scratch=block)
        return make_layout(send=block, recv=block)

    return Pattern(
        name="sendrecv",
        schedule=lambda rank, world: sendrecv_schedule(rank, world, form),
        layout=layout,
        expected=lambda rank, world: Expected.of_rows([(0, (rank - 1) % world, 0)]),
        held=(lambda rank, world: [(0, 0)]) if form.in_place else None,
        payload=lambda rank, world, size_bytes: one_block(size_bytes),
        element_bytes=form.element_bytes,
        symmetry=lambda world: Symmetry.SHIFT,
    )


PROGRAMS = (
    Program(
        "sendrecv", _pattern, undivided, ("direct",), redop="", mpi="Sendrecv", nccl=BY_SENDS,
    ),
)  # fmt: skip
