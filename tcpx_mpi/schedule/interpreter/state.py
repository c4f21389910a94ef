"""One rank of the model: its queues, its memory, and what is complete; no event happens here."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.schedule.engine_model import EngineModel, queue_kind
from tcpx_mpi.schedule.interpreter.values import OriginCodes, reduced, scaled
from tcpx_mpi.schedule.table import (
    NONE,
    BlockTable,
    BufferId,
    Column,
    Layout,
    Op,
    Schedule,
    ScheduleError,
    StepBytes,
    Wait,
    chunks_of,
    step_bytes,
)


@dataclass(frozen=True, eq=False)
class Start:
    """A rank's memory at the start of an iteration: its payload in SEND, or in RECV if `held` has
    rows of (RECV block, block of the payload)."""

    payload: BlockTable
    held: Sequence[tuple[int, int]] | None = None


@dataclass(eq=False)
class Message:
    """A posted chunk: of a send on its way, or of a receive that waits for one."""

    iteration: int
    step: int
    chunk: int
    length: int
    origins: NDArray[np.int64]  # of the sent, copied or scaled bytes; empty for a receive


@dataclass(eq=False)
class Queue:
    """The steps of one rank on one channel in one direction, in order; again in each iteration."""

    rank: int
    op: Op  # SEND, RECV (of all that receives) or COPY (of all local steps)
    peer: int
    lane: int
    channel: int
    window: int
    items: list[tuple[int, int]] = field(default_factory=list)  # (step, chunk)
    head: int = 0  # counts over all iterations
    outstanding: deque[Message] = field(default_factory=deque)  # posted and not done
    flying: deque[Message] = field(default_factory=deque)  # of a send queue: not yet moved
    noted: set[str] = field(default_factory=set)  # events of this queue that are to be tried


@dataclass(eq=False)
class State:
    """One rank: its memory and what is complete, for each iteration."""

    rank: int
    chunk_bytes: int
    schedule: Schedule
    sizes: StepBytes
    memory: list[dict[BufferId, NDArray[np.int64]]]
    chunk_done: list[list[bytearray]]  # [iteration][step][chunk]
    chunks_left: list[list[int]]  # [iteration][step]
    steps_left: list[int]  # [iteration]
    finished: int = 0  # iterations, counted from the first without a gap
    queues: list[Queue] = field(default_factory=list)
    followers: list[list[Queue]] = field(default_factory=list)  # [step]: queues that may wait

    def exhausted(self, queue: Queue) -> bool:
        return queue.head == len(queue.items) * len(self.memory)

    def head(self, queue: Queue) -> tuple[int, int, int]:
        """Iteration, step and chunk that the queue posts next."""
        iteration, index = divmod(queue.head, len(queue.items))
        return iteration, *queue.items[index]

    def obstacle(self, queue: Queue) -> tuple[str, int] | None:
        """Why the head of a queue cannot be posted: a kind and a number that explains it."""
        iteration, step, chunk = self.head(queue)
        if queue.op != Op.RECV and iteration > self.finished:
            return "iteration", self.finished
        if len(queue.outstanding) >= queue.window:
            return "window", queue.window
        row = self.schedule.table[step]
        for pred_column, wait_column in (
            (Column.PRED0, Column.WAIT0),
            (Column.PRED1, Column.WAIT1),
        ):
            pred = int(row[pred_column])
            if pred == NONE:
                continue
            if row[wait_column] == Wait.WHOLE:
                satisfied = self.chunks_left[iteration][pred] == 0
            else:
                satisfied = bool(self.chunk_done[iteration][pred][chunk])
            if not satisfied:
                return "predecessor", pred
        return None

    def message(self, queue: Queue) -> Message:
        """The message that the head of a queue posts. Raises ScheduleError if it reads unwritten
        bytes."""
        iteration, step, chunk = self.head(queue)
        start = chunk * self.chunk_bytes
        length = min(self.chunk_bytes, int(self.sizes.length[step]) - start)
        origins = np.empty(0, dtype=np.int64)
        if queue.op != Op.RECV and self.schedule.table[step, Column.OP] != Op.PAUSE:
            origins = self._read(iteration, step, chunk, length)
            if self.schedule.table[step, Column.OP] == Op.SCALE:
                origins = scaled(origins)
        return Message(iteration, step, chunk, length, origins)

    def _read(self, iteration: int, step: int, chunk: int, length: int) -> NDArray[np.int64]:
        """A chunk of the source of a step; raises ScheduleError if nobody has written it."""
        buffer_id = BufferId(self.schedule.table[step, Column.SRC_BUFFER])
        offset = int(self.sizes.src_offset[step]) + chunk * self.chunk_bytes
        memory = self.memory[iteration][buffer_id]
        origins: NDArray[np.int64] = memory[offset : offset + length].copy()
        if (origins == NONE).any():
            raise ScheduleError(
                f"rank {self.rank}: {self.schedule.describe(step)}, chunk {chunk} reads "
                f"bytes that nobody has written"
            )
        return origins

    def write(self, message: Message, origins: NDArray[np.int64]) -> None:
        """The bytes of a receive or local step, where they belong."""
        if self.schedule.table[message.step, Column.OP] == Op.PAUSE:
            return
        if self.schedule.table[message.step, Column.OP] == Op.RECV_REDUCE:
            own = self._read(message.iteration, message.step, message.chunk, message.length)
            origins = reduced(own, origins)
        buffer_id = BufferId(self.schedule.table[message.step, Column.DST_BUFFER])
        start = message.chunk * self.chunk_bytes
        offset = int(self.sizes.dst_offset[message.step]) + start
        self.memory[message.iteration][buffer_id][offset : offset + message.length] = origins

    def text(self, message: Message) -> str:
        step = self.schedule.describe(message.step)
        return f"{step}, chunk {message.chunk} of iteration {message.iteration}"

    def waits(self, queue: Queue) -> list[str]:
        """The wait of a queue, in words: its oldest outstanding request and its head."""
        found = []
        if queue.outstanding:
            oldest = self.text(queue.outstanding[0])
            found.append(f"rank {self.rank} {oldest} is posted and waits for rank {queue.peer}")
        obstacle = None if self.exhausted(queue) else self.obstacle(queue)
        if obstacle is not None:
            kind, number = obstacle
            reason = {
                "iteration": f"the end of iteration {number}",
                "window": f"room in a window of {number}",
                "predecessor": f"step {number}",
            }[kind]
            iteration, step, chunk = self.head(queue)
            found.append(
                f"rank {self.rank} {self.schedule.describe(step)}, chunk {chunk} of iteration "
                f"{iteration} waits for {reason}"
            )
        return found


def state_of(
    rank: int,
    schedule: Schedule,
    layout: Layout,
    engine: EngineModel,
    iterations: int,
    codes: OriginCodes,
    start: Start,
) -> State:
    """A rank before its first event. Raises ScheduleError for a peer that does not exist."""
    sizes = step_bytes(schedule, layout)
    chunks = [chunks_of(length, engine.chunk_bytes) for length in sizes.length.tolist()]

    def slot(iteration: int) -> dict[BufferId, NDArray[np.int64]]:
        memory = {key: np.full(layout[key].total_bytes, NONE, dtype=np.int64) for key in BufferId}
        origins = codes.of_slot(rank, iteration, start.payload.total_bytes)
        if start.held is None:
            memory[BufferId.SEND] = origins
            return memory
        recv, payload = layout[BufferId.RECV], start.payload
        for block, of_payload in start.held:
            at, length = int(recv.offsets[block]), int(recv.lengths[block])
            taken = int(payload.offsets[of_payload])
            memory[BufferId.RECV][at : at + length] = origins[taken : taken + length]
        return memory

    every = range(iterations)
    state = State(
        rank=rank,
        chunk_bytes=engine.chunk_bytes,
        schedule=schedule,
        sizes=sizes,
        memory=[slot(iteration) for iteration in every],
        chunk_done=[[bytearray(count) for count in chunks] for _ in every],
        chunks_left=[list(chunks) for _ in every],
        steps_left=[schedule.steps for _ in every],
        followers=[[] for _ in chunks],
    )
    queues: dict[tuple[int, ...], Queue] = {}
    windows = {Op.SEND: engine.window_send, Op.RECV: engine.window_recv, Op.COPY: 1}
    for step, row in enumerate(schedule.table.tolist()):
        op, peer, lane = Op(row[Column.OP]), row[Column.PEER], row[Column.LANE]
        if peer >= codes.world:
            raise ScheduleError(
                f"rank {rank}: {schedule.describe(step)}: there are {codes.world} ranks"
            )
        for chunk in range(chunks[step]):
            channel = chunk % engine.channels
            kind = queue_kind(op)
            key = (kind, peer, lane, channel)
            if key not in queues:
                queues[key] = Queue(rank, kind, peer, lane, channel, windows[kind])
            queues[key].items.append((step, chunk))
            for pred in (row[Column.PRED0], row[Column.PRED1]):
                if pred != NONE and queues[key] not in state.followers[pred]:
                    state.followers[pred].append(queues[key])
    state.queues = list(queues.values())
    return state
