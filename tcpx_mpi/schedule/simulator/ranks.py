"""A rank of the simulation: its queues of chunks and what of its steps is complete."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.schedule.engine_model import EngineModel, queue_kind
from tcpx_mpi.schedule.table import (
    NONE,
    Column,
    Op,
    Schedule,
    Wait,
    chunks_of,
)


@dataclass(eq=False, slots=True)
class Queue:
    """Chunks of one rank on one channel in one direction, in order; again in each iteration."""

    rank: Rank
    kind: Op  # SEND, RECV or COPY, as in the interpreter
    window: int
    items: list[tuple[int, int, int]]  # (step, chunk, bytes)
    head: int = 0  # counts over all iterations
    total: int = 0  # of all iterations
    outstanding: int = 0
    #: Of a receive queue: (iteration, step, chunk) of what is posted, and how many chunks came
    #: before they were.
    posted: deque[tuple[int, int, int]] = field(default_factory=deque)
    early: int = 0
    #: Of a receive queue: chunks that have begun to come in, over all iterations.
    coming: int = 0
    #: Of a send queue: the queue that receives its chunks.
    partner: Queue | None = None
    #: It is among those to be looked at.
    noted: bool = False


@dataclass(eq=False, slots=True)
class Rank:
    """A rank; lists with an entry an iteration have the chunks or steps that are not complete."""

    nic: int
    receives: bool
    steps: int
    #: Of each step: what comes in is reduced.
    reduces: list[bool]
    #: Of each step: how long it takes, where it is a pause; else 0.
    pauses_ns: list[float]
    queues: list[Queue]
    #: Of each step: up to two (predecessor, whether all its chunks are waited for).
    waits: list[tuple[tuple[int, bool], ...]]
    #: Of each step: the queues that wait for a chunk of it, by channel, or for all of them.
    followers: list[list[list[Queue]]]
    waiting_for_all: list[list[Queue]]
    #: Where the chunks of a step begin in `done`.
    first: list[int]
    done: list[bytearray]
    left: list[list[int]]
    steps_left: list[int]
    finished: int
    #: When each iteration was complete.
    ends_ns: list[float]
    connections: int


#: (peer, lane, channel) of what a rank sends, and of what it receives, to its queue.
Ends = dict[tuple[int, int, int], Queue]


def _pauses_ns(schedule: Schedule) -> list[float]:
    pauses = schedule.column(Column.OP) == Op.PAUSE
    found: list[float] = np.where(pauses, schedule.column(Column.BLOCKS) * 1e3, 0.0).tolist()
    return found


def rank_of(
    schedule: Schedule,
    step_lengths: NDArray[np.int64],
    engine: EngineModel,
    iterations: int,
    nic: int,
) -> tuple[Rank, Ends, Ends]:
    """A rank before its first event, and its queues by what they are connected to."""
    lengths = step_lengths.tolist()
    chunks = [chunks_of(length, engine.chunk_bytes) for length in lengths]
    first, total = [], 0
    for count in chunks:
        first.append(total)
        total += count
    rank = Rank(
        nic=nic,
        receives=False,
        steps=schedule.steps,
        pauses_ns=_pauses_ns(schedule),
        reduces=(schedule.column(Column.OP) == Op.RECV_REDUCE).tolist(),
        queues=[],
        waits=[],
        followers=[[[] for _ in range(engine.channels)] for _ in chunks],
        waiting_for_all=[[] for _ in chunks],
        first=first,
        done=[bytearray(total) for _ in range(iterations)],
        left=[list(chunks) for _ in range(iterations)],
        steps_left=[schedule.steps] * iterations,
        finished=0,
        ends_ns=[0.0] * iterations,
        connections=0,
    )
    windows = {Op.SEND: engine.window_send, Op.RECV: engine.window_recv, Op.COPY: 1}
    queues: dict[tuple[int, ...], Queue] = {}
    ends: dict[Op, Ends] = {Op.SEND: {}, Op.RECV: {}}
    for step, row in enumerate(schedule.table.tolist()):
        kind = queue_kind(Op(row[Column.OP]))
        peer, lane, length = row[Column.PEER], row[Column.LANE], lengths[step]
        waits = tuple(
            (row[pred], row[wait] == Wait.WHOLE)
            for pred, wait in ((Column.PRED0, Column.WAIT0), (Column.PRED1, Column.WAIT1))
            if row[pred] != NONE
        )
        rank.waits.append(waits)
        for chunk in range(chunks[step]):
            channel = chunk % engine.channels
            queue = queues.get((kind, peer, lane, channel))
            if queue is None:
                queue = queues[kind, peer, lane, channel] = Queue(rank, kind, windows[kind], [])
                if kind in ends:
                    ends[kind][peer, lane, channel] = queue
            start = chunk * engine.chunk_bytes
            queue.items.append((step, chunk, min(engine.chunk_bytes, length - start)))
            for pred, whole in waits:
                told = rank.waiting_for_all[pred] if whole else rank.followers[pred][channel]
                if queue not in told:
                    told.append(queue)
    rank.queues = list(queues.values())
    for queue in rank.queues:
        queue.total = len(queue.items) * iterations
    remote = {(kind, peer, lane) for kind, peer, lane, _ in queues if kind in ends}
    rank.connections = len(remote) * engine.channels
    rank.receives = bool(ends[Op.RECV])
    return rank, ends[Op.SEND], ends[Op.RECV]
