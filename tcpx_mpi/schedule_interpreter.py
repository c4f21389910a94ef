"""Runs the schedules of all ranks in numpy, as the engine would, and proves what they promise.

The model is the engine's. A rank has one queue for each (peer, lane, channel, direction) and one
for each channel's copies, all in the order of its table; chunk c of a step is on channel
c % channels. Only the head of a queue may be posted: when its predecessors are satisfied, its
window has room, and, for sends and copies, the rank has finished all earlier iterations. Receives
are posted as early as that allows, also those of later iterations. Messages meet their receives in
order, for each (source, destination, lane, channel). Nothing else orders anything.

Instead of payload every byte carries its origin: iteration, rank and offset in the SEND buffer.

Whatever may happen stays possible until it happens, whatever else happens before. So the end does
not depend on the order of events, and one order without a deadlock proves all; `order` is there to
test that claim. Races within a rank are looked for in the table, not in one lucky order.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.patterns import Pattern, expected_bytes
from tcpx_mpi.schedule import (
    NONE,
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

#: A report of a deadlock names so many waiting queues.
_REPORTED_WAITS = 12


@dataclass(frozen=True)
class EngineModel:
    """What the engine is told, and how strict the world around it is.

    rendezvous: a send completes only when its receive was posted and the bytes have moved (what
    a plugin may do); otherwise as soon as it is posted. order: None, or a seed that
    decides which of the possible events happens next.
    """

    chunk_bytes: int = 524288
    channels: int = 2
    window_send: int = 12
    window_recv: int = 16
    rendezvous: bool = True
    order: int | None = None


@dataclass(frozen=True, eq=False)
class Origins:
    """Where the bytes of a buffer came from: int64[bytes] each, -1 where nobody wrote.

    offset is one in the SEND buffer of `rank`, as that stood in `iteration`.
    """

    iteration: NDArray[np.int64]
    rank: NDArray[np.int64]
    offset: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What the ranks hold at the end, and how much was outstanding at most on any one queue."""

    received: list[list[Origins]]  # [rank][iteration]: the RECV buffer
    most_sends: int
    most_receives: int
    messages: int


def interpret(
    schedules: Sequence[Schedule],
    layouts: Sequence[Layout],
    engine: EngineModel = EngineModel(),  # noqa: B008 - frozen
    iterations: int = 1,
) -> Outcome:
    """Run one schedule a rank, `iterations` times back to back.

    Raises ScheduleError for a race within a rank, a deadlock, sends and receives that disagree in
    order or length, a send of bytes that nobody wrote, or a message that nobody receives.
    """
    for rank, (schedule, layout) in enumerate(zip(schedules, layouts, strict=True)):
        try:
            check_races(schedule, layout, engine.chunk_bytes)
        except ScheduleError as error:
            raise ScheduleError(f"rank {rank}: {error}") from None
    return _Run(schedules, layouts, engine, iterations).run()


def prove(
    pattern: Pattern,
    world: int,
    size_bytes: int,
    engine: EngineModel = EngineModel(),  # noqa: B008 - frozen
    iterations: int = 1,
) -> Outcome:
    """Run a pattern and compare every byte of every RECV buffer with what it promises.

    Raises ScheduleError that names the first difference.
    """
    outcome = interpret(
        [pattern.schedule(rank, world) for rank in range(world)],
        [pattern.layout(rank, world, size_bytes) for rank in range(world)],
        engine,
        iterations,
    )
    for rank in range(world):
        want_rank, want_offset = _promise(pattern, rank, world, size_bytes)
        for iteration, found in enumerate(outcome.received[rank]):
            # Messages are matched within an iteration; this looks after the model's own slots.
            want_iteration = np.where(want_rank == NONE, NONE, iteration)
            wrong = (
                (found.rank != want_rank)
                | (found.offset != want_offset)
                | (found.iteration != want_iteration)
            )
            if wrong.any():
                byte = int(np.argmax(wrong))
                raise ScheduleError(
                    f"{pattern.name}: rank {rank}, iteration {iteration}: RECV byte {byte} must "
                    f"be {_origin_text(want_iteration[byte], want_rank[byte], want_offset[byte])}, "
                    f"found "
                    f"{_origin_text(found.iteration[byte], found.rank[byte], found.offset[byte])}"
                )
    return outcome


def _promise(
    pattern: Pattern, rank: int, world: int, size_bytes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The promised origin of each RECV byte: rank and offset, -1 where nothing may be written."""
    total = pattern.layout(rank, world, size_bytes)[BufferId.RECV].total_bytes
    origin_rank = np.full(total, NONE, dtype=np.int64)
    origin_offset = np.full(total, NONE, dtype=np.int64)
    for dst, length, origin, offset in expected_bytes(pattern, rank, world, size_bytes).tolist():
        if (origin_rank[dst : dst + length] != NONE).any():
            raise ScheduleError(f"{pattern.name}: rank {rank} promises bytes at {dst} twice")
        origin_rank[dst : dst + length] = origin
        origin_offset[dst : dst + length] = np.arange(offset, offset + length)
    return origin_rank, origin_offset


def _origin_text(iteration: int, rank: int, offset: int) -> str:
    if rank == NONE:
        return "untouched"
    return f"byte {offset} of rank {rank} in iteration {iteration}"


# --- Races within a rank -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Access:
    """A step touches bytes [start, end) of a buffer."""

    start: int
    end: int
    step: int
    writes: bool


def check_races(schedule: Schedule, layout: Layout, chunk_bytes: int) -> None:
    """Any two steps that touch the same bytes, one of them writing, must be ordered.

    Only predecessors order: even two receives on one connection are in flight together.
    Raises ScheduleError.
    """
    sizes = step_bytes(schedule, layout)
    ordered = _orders(schedule)
    for buffer_id in (BufferId.RECV, BufferId.SCRATCH):
        accesses = sorted(
            _accesses(schedule, sizes, buffer_id), key=lambda access: (access.start, access.step)
        )
        running: list[_Access] = []
        for access in accesses:
            running = [other for other in running if other.end > access.start]
            for other in running:
                if access.writes or other.writes:
                    _check_ordered(schedule, ordered, other, access, chunk_bytes)
            running.append(access)


def _accesses(schedule: Schedule, sizes: StepBytes, buffer_id: BufferId) -> list[_Access]:
    found = []
    for column, offsets, writes in (
        (Column.SRC_BUFFER, sizes.src_offset, False),
        (Column.DST_BUFFER, sizes.dst_offset, True),
    ):
        for step in np.flatnonzero(schedule.column(column) == buffer_id).tolist():
            start, length = int(offsets[step]), int(sizes.length[step])
            if length:
                found.append(_Access(start, start + length, step, writes))
    return found


def _orders(schedule: Schedule) -> list[dict[int, Wait]]:
    """For each step all steps that come before it, directly or not, and how it waits for them."""
    before: list[dict[int, Wait]] = []
    for row in schedule.table.tolist():
        mine: dict[int, Wait] = {}
        for pred_column, wait_column in (
            (Column.PRED0, Column.WAIT0),
            (Column.PRED1, Column.WAIT1),
        ):
            pred, wait = row[pred_column], row[wait_column]
            if pred == NONE:
                continue
            # One WHOLE on the way is enough: whoever waits for all chunks of a step waits for
            # all that those waited for.
            for step, how in [(pred, Wait.CHUNK), *before[pred].items()]:
                mine[step] = max(mine.get(step, Wait.CHUNK), Wait(wait), how)
        before.append(mine)
    return before


def _check_ordered(
    schedule: Schedule,
    ordered: list[dict[int, Wait]],
    one: _Access,
    other: _Access,
    chunk_bytes: int,
) -> None:
    first, second = sorted((one, other), key=lambda access: access.step)
    how = ordered[second.step].get(first.step)
    if first.step != second.step and how == Wait.WHOLE:
        return
    # Chunk by chunk is enough only if no chunk touches another chunk's bytes of the other step.
    aligned = first.start == second.start or first.end - first.start <= chunk_bytes
    if first.step != second.step and how == Wait.CHUNK and aligned:
        return
    raise ScheduleError(
        f"{schedule.describe(first.step)} and {schedule.describe(second.step)} touch the same "
        f"bytes and the second does not wait for the first"
    )


# --- The run -----------------------------------------------------------------------------------


@dataclass(eq=False)
class _Message:
    """A posted chunk: of a send on its way, or of a receive that waits for one."""

    iteration: int
    step: int
    chunk: int
    length: int
    origins: NDArray[np.int64]  # of the sent or copied bytes; empty for a receive


@dataclass(eq=False)
class _Queue:
    """What one rank does on one channel in one direction, in order; again in each iteration."""

    rank: int
    op: Op
    peer: int
    lane: int
    channel: int
    window: int
    items: list[tuple[int, int]] = field(default_factory=list)  # (step, chunk)
    head: int = 0  # counts over all iterations
    outstanding: deque[_Message] = field(default_factory=deque)  # posted and not done
    flying: deque[_Message] = field(default_factory=deque)  # of a send queue: not yet moved
    noted: set[str] = field(default_factory=set)  # events of this queue that are to be tried


@dataclass(eq=False)
class _State:
    """One rank: its memory and what is complete, for each iteration."""

    schedule: Schedule
    sizes: StepBytes
    memory: list[dict[BufferId, NDArray[np.int64]]]
    chunk_done: list[list[bytearray]]  # [iteration][step][chunk]
    chunks_left: list[list[int]]  # [iteration][step]
    steps_left: list[int]  # [iteration]
    finished: int = 0  # iterations, counted from the first without a gap
    queues: list[_Queue] = field(default_factory=list)
    followers: list[list[_Queue]] = field(default_factory=list)  # [step]: queues that may wait


#: Something that may be possible: ("post", any queue), ("carry" or "finish", a send queue).
_Event = tuple[str, _Queue]


class _Run:
    def __init__(
        self,
        schedules: Sequence[Schedule],
        layouts: Sequence[Layout],
        engine: EngineModel,
        iterations: int,
    ) -> None:
        self._engine = engine
        self._iterations = iterations
        self._world = len(schedules)
        longest = max(layout[BufferId.SEND].total_bytes for layout in layouts)
        self._stride = max(1, longest)
        self._states = [
            self._state(rank, schedule, layout)
            for rank, (schedule, layout) in enumerate(zip(schedules, layouts, strict=True))
        ]
        self._receivers = {
            (queue.peer, queue.rank, queue.lane, queue.channel): queue
            for state in self._states
            for queue in state.queues
            if queue.op == Op.RECV
        }
        self._senders = {
            (queue.rank, queue.peer, queue.lane, queue.channel): queue
            for state in self._states
            for queue in state.queues
            if queue.op == Op.SEND
        }
        self._possible: list[_Event] = []
        self._random = random.Random(engine.order)
        self._most = {Op.SEND: 0, Op.RECV: 0, Op.COPY: 0}
        self._messages = 0

    def run(self) -> Outcome:
        for state in self._states:
            for queue in state.queues:
                self._wake("post", queue)
            self._close_iterations(state)
        while self._possible:
            what, queue = self._next()
            if what == "post":
                happened = self._post(queue)
            elif what == "carry":
                happened = self._carry(queue)
            else:
                happened = self._finish(queue)
            if happened:
                self._wake(what, queue)
        self._check_end()
        return Outcome(
            received=[
                [self._decode(memory[BufferId.RECV]) for memory in state.memory]
                for state in self._states
            ],
            most_sends=self._most[Op.SEND],
            most_receives=self._most[Op.RECV],
            messages=self._messages,
        )

    # Set-up.

    def _state(self, rank: int, schedule: Schedule, layout: Layout) -> _State:
        sizes = step_bytes(schedule, layout)
        chunks = [chunks_of(length, self._engine.chunk_bytes) for length in sizes.length.tolist()]
        every = range(self._iterations)
        state = _State(
            schedule=schedule,
            sizes=sizes,
            memory=[self._memory(rank, iteration, layout) for iteration in every],
            chunk_done=[[bytearray(count) for count in chunks] for _ in every],
            chunks_left=[list(chunks) for _ in every],
            steps_left=[schedule.steps for _ in every],
            followers=[[] for _ in chunks],
        )
        queues: dict[tuple[int, ...], _Queue] = {}
        windows = {
            Op.SEND: self._engine.window_send,
            Op.RECV: self._engine.window_recv,
            Op.COPY: 1,
        }
        for step, row in enumerate(schedule.table.tolist()):
            op, peer, lane = Op(row[Column.OP]), row[Column.PEER], row[Column.LANE]
            if peer >= self._world:
                raise ScheduleError(
                    f"rank {rank}: {schedule.describe(step)}: there are {self._world} ranks"
                )
            for chunk in range(chunks[step]):
                channel = chunk % self._engine.channels
                key = (op, peer, lane, channel)
                if key not in queues:
                    queues[key] = _Queue(rank, op, peer, lane, channel, windows[op])
                queues[key].items.append((step, chunk))
                for pred in (row[Column.PRED0], row[Column.PRED1]):
                    if pred != NONE and queues[key] not in state.followers[pred]:
                        state.followers[pred].append(queues[key])
        state.queues = list(queues.values())
        return state

    def _memory(
        self, rank: int, iteration: int, layout: Layout
    ) -> dict[BufferId, NDArray[np.int64]]:
        """The slot of an iteration: each iteration has its own buffers."""
        memory = {key: np.full(layout[key].total_bytes, NONE, dtype=np.int64) for key in BufferId}
        first = (iteration * self._world + rank) * self._stride
        memory[BufferId.SEND] = first + np.arange(layout[BufferId.SEND].total_bytes)
        return memory

    def _decode(self, codes: NDArray[np.int64]) -> Origins:
        untouched = codes == NONE
        iteration, rest = np.divmod(codes, self._world * self._stride)
        rank, offset = np.divmod(rest, self._stride)
        for values in (iteration, rank, offset):
            values[untouched] = NONE
        return Origins(iteration, rank, offset)

    # Which event is next.

    def _wake(self, what: str, queue: _Queue) -> None:
        if what not in queue.noted:
            queue.noted.add(what)
            self._possible.append((what, queue))

    def _next(self) -> _Event:
        if self._engine.order is not None:
            pick = self._random.randrange(len(self._possible))
            self._possible[pick], self._possible[-1] = self._possible[-1], self._possible[pick]
        what, queue = self._possible.pop()
        queue.noted.discard(what)
        return what, queue

    # The three events. Each says whether it happened.

    def _post(self, queue: _Queue) -> bool:
        """Post the head of a queue; a copy is done at once."""
        if self._exhausted(queue) or self._obstacle(queue) is not None:
            return False
        state = self._states[queue.rank]
        message = self._message(queue, state)
        queue.head += 1
        if queue.op == Op.COPY:
            self._write(state, message, message.origins)
            self._complete(state, message)
            return True
        queue.outstanding.append(message)
        self._most[queue.op] = max(self._most[queue.op], len(queue.outstanding))
        if queue.op == Op.SEND:
            self._messages += 1
            queue.flying.append(message)
            self._wake("carry", queue)
            self._wake("finish", queue)
        else:
            sender = self._senders.get((queue.peer, queue.rank, queue.lane, queue.channel))
            if sender is not None:
                self._wake("carry", sender)
        return True

    def _carry(self, queue: _Queue) -> bool:
        """Move the oldest message that has not moved into the oldest posted receive."""
        receiver = self._receivers.get((queue.rank, queue.peer, queue.lane, queue.channel))
        if receiver is None or not receiver.outstanding or not queue.flying:
            return False
        sent, posted = queue.flying.popleft(), receiver.outstanding.popleft()
        self._check_match(queue, sent, receiver, posted)
        state = self._states[receiver.rank]
        self._write(state, posted, sent.origins)
        self._complete(state, posted)
        self._wake("post", receiver)
        self._wake("finish", queue)
        return True

    def _finish(self, queue: _Queue) -> bool:
        """The oldest outstanding send is done: its bytes may be overwritten."""
        moved = len(queue.outstanding) - len(queue.flying)
        if not queue.outstanding or (self._engine.rendezvous and moved <= 0):
            return False
        self._complete(self._states[queue.rank], queue.outstanding.popleft())
        self._wake("post", queue)
        return True

    # What the events are made of.

    def _exhausted(self, queue: _Queue) -> bool:
        return queue.head == len(queue.items) * self._iterations

    def _head(self, queue: _Queue) -> tuple[int, int, int]:
        """Iteration, step and chunk that the queue posts next."""
        iteration, index = divmod(queue.head, len(queue.items))
        return iteration, *queue.items[index]

    def _obstacle(self, queue: _Queue) -> tuple[str, int] | None:
        """Why the head of a queue cannot be posted: a kind and a number that explains it."""
        state = self._states[queue.rank]
        iteration, step, chunk = self._head(queue)
        if queue.op != Op.RECV and iteration > state.finished:
            return "iteration", state.finished
        if len(queue.outstanding) >= queue.window:
            return "window", queue.window
        row = state.schedule.table[step]
        for pred_column, wait_column in (
            (Column.PRED0, Column.WAIT0),
            (Column.PRED1, Column.WAIT1),
        ):
            pred = int(row[pred_column])
            if pred == NONE:
                continue
            if row[wait_column] == Wait.WHOLE:
                satisfied = state.chunks_left[iteration][pred] == 0
            else:
                satisfied = bool(state.chunk_done[iteration][pred][chunk])
            if not satisfied:
                return "predecessor", pred
        return None

    def _message(self, queue: _Queue, state: _State) -> _Message:
        iteration, step, chunk = self._head(queue)
        start = chunk * self._engine.chunk_bytes
        length = min(self._engine.chunk_bytes, int(state.sizes.length[step]) - start)
        origins = np.empty(0, dtype=np.int64)
        if queue.op != Op.RECV:
            buffer_id = BufferId(state.schedule.table[step, Column.SRC_BUFFER])
            offset = int(state.sizes.src_offset[step]) + start
            origins = state.memory[iteration][buffer_id][offset : offset + length].copy()
            if (origins == NONE).any():
                raise ScheduleError(
                    f"rank {queue.rank}: {state.schedule.describe(step)}, chunk {chunk} reads "
                    f"bytes that nobody has written"
                )
        return _Message(iteration, step, chunk, length, origins)

    def _write(self, state: _State, message: _Message, origins: NDArray[np.int64]) -> None:
        buffer_id = BufferId(state.schedule.table[message.step, Column.DST_BUFFER])
        start = message.chunk * self._engine.chunk_bytes
        offset = int(state.sizes.dst_offset[message.step]) + start
        state.memory[message.iteration][buffer_id][offset : offset + message.length] = origins

    def _complete(self, state: _State, message: _Message) -> None:
        iteration, step = message.iteration, message.step
        state.chunk_done[iteration][step][message.chunk] = 1
        state.chunks_left[iteration][step] -= 1
        for queue in state.followers[step]:
            self._wake("post", queue)
        if state.chunks_left[iteration][step] == 0:
            state.steps_left[iteration] -= 1
            self._close_iterations(state)

    def _close_iterations(self, state: _State) -> None:
        """Count the iterations that are complete, and let the next one's sends and copies start."""
        before = state.finished
        while state.finished < self._iterations and state.steps_left[state.finished] == 0:
            state.finished += 1
        if state.finished != before:
            for queue in state.queues:
                self._wake("post", queue)

    # What may be wrong.

    def _check_match(
        self, sender: _Queue, sent: _Message, receiver: _Queue, posted: _Message
    ) -> None:
        if (sent.iteration, sent.chunk, sent.length) == (
            posted.iteration,
            posted.chunk,
            posted.length,
        ):
            return
        problem = "disagree in order"
        if sent.length != posted.length:
            verb = "overflows" if sent.length > posted.length else "falls short of"
            problem = f"{sent.length} bytes: it {verb} the posted {posted.length}"
        raise ScheduleError(
            f"rank {sender.rank} {self._text(sender.rank, sent)} meets rank {receiver.rank} "
            f"{self._text(receiver.rank, posted)}: {problem}"
        )

    def _text(self, rank: int, message: _Message) -> str:
        step = self._states[rank].schedule.describe(message.step)
        return f"{step}, chunk {message.chunk} of iteration {message.iteration}"

    def _check_end(self) -> None:
        """Nothing is possible any more: everything must be done."""
        lost = [
            f"rank {queue.rank} {self._text(queue.rank, queue.flying[0])} is received by nobody"
            for queue in self._senders.values()
            if queue.flying and queue.flying[0] not in queue.outstanding
        ]
        stuck = [
            text
            for state in self._states
            if state.finished < self._iterations
            for queue in state.queues
            for text in self._waits(queue)
        ]
        texts = stuck + lost
        if texts:
            more = len(texts) - _REPORTED_WAITS
            rest = [f"and {more} more"] if more > 0 else []
            raise ScheduleError(
                ("deadlock: " if stuck else "") + "; ".join(texts[:_REPORTED_WAITS] + rest)
            )

    def _waits(self, queue: _Queue) -> list[str]:
        """What a queue waits for, in words: its oldest outstanding request and its head."""
        found = []
        if queue.outstanding:
            oldest = self._text(queue.rank, queue.outstanding[0])
            found.append(f"rank {queue.rank} {oldest} is posted and waits for rank {queue.peer}")
        obstacle = None if self._exhausted(queue) else self._obstacle(queue)
        if obstacle is not None:
            kind, number = obstacle
            reason = {
                "iteration": f"the end of iteration {number}",
                "window": f"room in a window of {number}",
                "predecessor": f"step {number}",
            }[kind]
            iteration, step, chunk = self._head(queue)
            described = self._states[queue.rank].schedule.describe(step)
            found.append(
                f"rank {queue.rank} {described}, chunk {chunk} of iteration {iteration} waits "
                f"for {reason}"
            )
        return found
