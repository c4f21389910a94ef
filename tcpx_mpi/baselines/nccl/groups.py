"""A schedule in NCCL's terms: groups of sends and receives, one after the other on a stream. Pure.

Steps that wait for no other are one group, those that wait for them the next. What a rank copies
to itself is a send and a receive of its own, which NCCL makes a copy on the device of, as in the
alltoall of nccl-tests. An empty message is none.
"""

from __future__ import annotations

from dataclasses import dataclass

from tcpx_mpi.schedule.table import BufferId, Column, Layout, Op, Schedule, step_bytes


@dataclass(frozen=True)
class Piece:
    """One ncclSend or ncclRecv: `length` bytes at `offset` of a slot."""

    sends: bool
    peer: int
    buffer: BufferId
    offset: int
    length: int


def groups_of(schedule: Schedule, layout: Layout, rank: int) -> list[list[Piece]]:
    """The groups of one iteration of this rank, each with at least one piece."""
    spans = step_bytes(schedule, layout)
    rounds: list[int] = []
    groups: dict[int, list[Piece]] = {}
    for step, row in enumerate(schedule.table.tolist()):
        before = [row[column] for column in (Column.PRED0, Column.PRED1) if row[column] >= 0]
        rounds.append(max((rounds[step] + 1 for step in before), default=0))
        length = int(spans.length[step])
        if not length:
            continue
        group = groups.setdefault(rounds[-1], [])
        peer = rank if row[Column.OP] == Op.COPY else row[Column.PEER]
        if row[Column.OP] != Op.RECV:
            source = BufferId(row[Column.SRC_BUFFER])
            group.append(Piece(True, peer, source, int(spans.src_offset[step]), length))
        if row[Column.OP] != Op.SEND:
            target = BufferId(row[Column.DST_BUFFER])
            group.append(Piece(False, peer, target, int(spans.dst_offset[step]), length))
    return [groups[number] for number in sorted(groups)]
