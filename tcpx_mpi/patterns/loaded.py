"""A ping-pong while a mesh runs beside it: the latency of a loaded network, beside its own.

An iteration has two round trips between the ranks of a pair, one after the other, each on a lane of
its own. The first (READY) brings both ranks into the iteration. The second (PING) is what is timed,
from when the answer of the first was there: so no time has in it that the other rank was still busy
with the iteration before. On the rank that answers it is from one question to the next, which is a
round trip, too.

Loaded, a mesh of `load_bytes` (`--load`) a rank runs on the lane MESH from the start of the same
iteration. Alone, the two round trips are all.
"""

from __future__ import annotations

from tcpx_mpi.patterns.pair import begins, partner, refuse
from tcpx_mpi.patterns.program import Form, of_bytes
from tcpx_mpi.schedule.builder import ScheduleBuilder
from tcpx_mpi.schedule.pattern import Loaded, Pattern
from tcpx_mpi.schedule.promise import Expected
from tcpx_mpi.schedule.table import BlockTable, Layout, Schedule, Wait, make_layout, ragged_division

PING, READY, MESH = range(3)
#: Blocks of RECV before those of the mesh; SEND has one, which both round trips send.
_READY_BLOCK, _PING_BLOCK, _OURS = 0, 1, 2


def _round_trips(steps: ScheduleBuilder, rank: int, world: int) -> None:
    other = partner(rank, world)
    if begins(rank, world):
        steps.send(other, 0, lane=READY)
        ready = steps.receive(other, _READY_BLOCK, lane=READY)
        steps.send(other, 0, lane=PING, after=[(ready, Wait.WHOLE)])
        steps.receive(other, _PING_BLOCK, lane=PING)
        return
    for lane, block in ((READY, _READY_BLOCK), (PING, _PING_BLOCK)):
        question = steps.receive(other, block, lane=lane)
        steps.send(other, 0, lane=lane, after=[(question, Wait.WHOLE)])


def mesh_beside(
    steps: ScheduleBuilder, rank: int, world: int, lane: int, first_sent: int, first_received: int
) -> None:
    """A mesh on a lane of its own; its blocks in SEND and RECV begin with these."""
    for distance in range(1, world):
        source, target = (rank - distance) % world, (rank + distance) % world
        steps.receive(source, first_received + source, lane=lane)
        steps.send(target, first_sent + target, lane=lane)
    steps.copy(first_sent + rank, first_received + rank)


def _pattern(load_bytes: int, alone: Pattern | None) -> Pattern:
    """`alone` is None for the one without load."""
    loaded = alone is not None

    def schedule(rank: int, world: int) -> Schedule:
        steps = ScheduleBuilder()
        _round_trips(steps, rank, world)
        if loaded:
            mesh_beside(steps, rank, world, MESH, 1, _OURS)
        return steps.build()

    def layout(rank: int, world: int, size_bytes: int) -> Layout:
        send, recv = [size_bytes], [size_bytes] * _OURS
        if loaded:
            parts = ragged_division(load_bytes, world).lengths.tolist()
            send, recv = send + parts, recv + [parts[rank]] * world
        return make_layout(send=BlockTable.of_lengths(send), recv=BlockTable.of_lengths(recv))

    def expected(rank: int, world: int) -> Expected:
        other = partner(rank, world)
        rows = [(_READY_BLOCK, other, 0), (_PING_BLOCK, other, 0)]
        if loaded:
            rows += [(_OURS + origin, origin, 1 + rank) for origin in range(world)]
        return Expected.of_rows(rows)

    return Pattern(
        name="loaded_pingpong",
        time_divisor=2,
        refuse=lambda world: refuse("loaded_pingpong", world),
        schedule=schedule,
        layout=layout,
        expected=expected,
        loaded=Loaded((READY, PING), alone),
        notes=("the table has the latency alone; `while loaded` is that beside a mesh (--load)",),
    )


def loaded_pingpong(form: Form) -> Pattern:
    return _pattern(form.load_bytes, _pattern(0, None))


PROGRAMS = (of_bytes("loaded_pingpong", loaded_pingpong, "load_bytes"),)
