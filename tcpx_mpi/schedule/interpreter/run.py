"""The events between ranks, one by one, until nothing is possible any more."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tcpx_mpi.arrays import Int64s
from tcpx_mpi.schedule.engine_model import EngineModel
from tcpx_mpi.schedule.interpreter.state import Message, Queue, Start, State, state_of
from tcpx_mpi.schedule.interpreter.values import OriginCodes
from tcpx_mpi.schedule.table import BufferId, Layout, Op, Schedule, ScheduleError

#: A report of a deadlock names so many waiting queues.
_REPORTED_WAITS = 12


@dataclass(frozen=True, eq=False)
class Outcome:
    """The outcome: the ranks' bytes at the end, and how much was outstanding at most on any one
    queue."""

    values: list[list[Int64s]]  # [rank][iteration]: the RECV buffer, as values of the model
    codes: OriginCodes
    link_bytes: dict[tuple[int, int], int]  # (source, destination) -> bytes of all iterations
    most_sends: int
    most_receives: int
    messages: int


#: Something that may be possible: ("post", any queue), ("carry" or "finish", a send queue).
Event = tuple[str, Queue]


class Run:
    """All ranks together; `run` once."""

    def __init__(
        self,
        schedules: Sequence[Schedule],
        layouts: Sequence[Layout],
        engine: EngineModel,
        iterations: int,
        starts: Sequence[Start] | None = None,
    ) -> None:
        if starts is None:
            starts = [Start(layout[BufferId.SEND]) for layout in layouts]
        self._engine = engine
        self._iterations = iterations
        longest = max(start.payload.total_bytes for start in starts)
        self._codes = OriginCodes(world=len(schedules), stride=max(1, longest))
        self._states = [
            state_of(rank, schedule, layout, engine, iterations, self._codes, start)
            for rank, (schedule, layout, start) in enumerate(
                zip(schedules, layouts, starts, strict=True)
            )
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
        self._possible: list[Event] = []
        self._random = random.Random(engine.order)
        self._most = {Op.SEND: 0, Op.RECV: 0, Op.COPY: 0}
        self._messages = 0
        self._link_bytes: Counter[tuple[int, int]] = Counter()

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
            values=[[memory[BufferId.RECV] for memory in state.memory] for state in self._states],
            codes=self._codes,
            link_bytes=dict(self._link_bytes),
            most_sends=self._most[Op.SEND],
            most_receives=self._most[Op.RECV],
            messages=self._messages,
        )

    # Which event is next.

    def _wake(self, what: str, queue: Queue) -> None:
        if what not in queue.noted:
            queue.noted.add(what)
            self._possible.append((what, queue))

    def _next(self) -> Event:
        if self._engine.order is not None:
            pick = self._random.randrange(len(self._possible))
            self._possible[pick], self._possible[-1] = self._possible[-1], self._possible[pick]
        what, queue = self._possible.pop()
        queue.noted.discard(what)
        return what, queue

    # The three events. Each says whether it happened.

    def _post(self, queue: Queue) -> bool:
        """Post the head of a queue; a local step is done at once."""
        state = self._states[queue.rank]
        if state.exhausted(queue) or state.obstacle(queue) is not None:
            return False
        message = state.message(queue)
        queue.head += 1
        if queue.op == Op.COPY:
            state.write(message, message.origins)
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

    def _carry(self, queue: Queue) -> bool:
        """Move the oldest message that has not moved into the oldest posted receive."""
        receiver = self._receivers.get((queue.rank, queue.peer, queue.lane, queue.channel))
        if receiver is None or not receiver.outstanding or not queue.flying:
            return False
        sent, posted = queue.flying.popleft(), receiver.outstanding.popleft()
        self._check_match(queue, sent, receiver, posted)
        self._link_bytes[queue.rank, receiver.rank] += sent.length
        state = self._states[receiver.rank]
        state.write(posted, sent.origins)
        self._complete(state, posted)
        self._wake("post", receiver)
        self._wake("finish", queue)
        return True

    def _finish(self, queue: Queue) -> bool:
        """The oldest outstanding send is done: its bytes may be overwritten."""
        moved = len(queue.outstanding) - len(queue.flying)
        if not queue.outstanding or (self._engine.rendezvous and moved <= 0):
            return False
        self._complete(self._states[queue.rank], queue.outstanding.popleft())
        self._wake("post", queue)
        return True

    def _complete(self, state: State, message: Message) -> None:
        iteration, step = message.iteration, message.step
        state.chunk_done[iteration][step][message.chunk] = 1
        state.chunks_left[iteration][step] -= 1
        for queue in state.followers[step]:
            self._wake("post", queue)
        if state.chunks_left[iteration][step] == 0:
            state.steps_left[iteration] -= 1
            self._close_iterations(state)

    def _close_iterations(self, state: State) -> None:
        """Count the iterations that are complete, and let the next one's sends and copies start."""
        before = state.finished
        while state.finished < self._iterations and state.steps_left[state.finished] == 0:
            state.finished += 1
        if state.finished != before:
            for queue in state.queues:
                self._wake("post", queue)

    # What may be wrong.

    def _check_match(self, sender: Queue, sent: Message, receiver: Queue, posted: Message) -> None:
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
            f"rank {sender.rank} {self._states[sender.rank].text(sent)} meets rank {receiver.rank} "
            f"{self._states[receiver.rank].text(posted)}: {problem}"
        )

    def _check_end(self) -> None:
        """Nothing is possible any more: everything must be done."""
        lost = [
            f"rank {queue.rank} {self._states[queue.rank].text(queue.flying[0])} "
            f"is received by nobody"
            for queue in self._senders.values()
            if queue.flying and queue.flying[0] not in queue.outstanding
        ]
        stuck = [
            text
            for state in self._states
            if state.finished < self._iterations
            for queue in state.queues
            for text in state.waits(queue)
        ]
        texts = stuck + lost
        if texts:
            more = len(texts) - _REPORTED_WAITS
            rest = [f"and {more} more"] if more > 0 else []
            raise ScheduleError(
                ("deadlock: " if stuck else "") + "; ".join(texts[:_REPORTED_WAITS] + rest)
            )
