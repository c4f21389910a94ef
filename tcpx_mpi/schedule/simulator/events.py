"""The events of a simulation, in the order of time."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence

from tcpx_mpi.schedule.simulator.costs import Costs
from tcpx_mpi.schedule.simulator.ranks import Queue, Rank
from tcpx_mpi.schedule.table import Op, ScheduleError

#: A chunk on its way: its queue, iteration, step, chunk, bytes.
_Chunk = tuple[Queue, int, int, int, int]

_LEFT, _CAME, _REACHED, _PAUSED = 0, 1, 2, 3


class Events:
    """All ranks together; `run` once."""

    def __init__(self, ranks: Sequence[Rank], nics: int, costs: Costs, iterations: int) -> None:
        self._ranks = ranks
        self._costs = costs
        self._iterations = iterations
        self._now = 0.0
        self._count = 0
        self._heap: list[tuple[float, int, int, _Chunk]] = []
        self._work: deque[Queue] = deque()
        #: By NIC: chunks that wait to leave it or, if it is half duplex, to come in; whether it is
        #: busy with one; until when it takes in those on their way.
        self._waiting: list[deque[tuple[_Chunk, bool]]] = [deque() for _ in range(nics)]
        self._busy = [False] * nics
        self._in_until = [0.0] * nics
        self.sent_bytes = [0] * nics

    def run(self) -> None:
        """Until all iterations are complete. Raises ScheduleError if they cannot be."""
        for rank in self._ranks:
            if not rank.steps:
                rank.finished = self._iterations
            for queue in rank.queues:
                self._note(queue)
        self._post_all()
        while self._heap:
            self._now, _, event, chunk = heapq.heappop(self._heap)
            if event == _LEFT:
                self._left(chunk)
            elif event == _CAME:
                self._came(chunk)
            elif event == _PAUSED:
                self._paused(chunk)
            else:
                self._queue(self._target(chunk), chunk, incoming=True)
            self._post_all()
        for number, rank in enumerate(self._ranks):
            if rank.finished < self._iterations:
                raise ScheduleError(
                    f"rank {number} waits for ever in iteration {rank.finished}: the windows are "
                    "too small for the schedule, or it is wrong"
                )

    def _note(self, queue: Queue) -> None:
        if not queue.noted and queue.head < queue.total:
            queue.noted = True
            self._work.append(queue)

    def _post_all(self) -> None:
        """One chunk of each queue in turn, until nothing more can be posted now."""
        while self._work:
            queue = self._work.popleft()
            queue.noted = False
            if self._post(queue) and queue.outstanding < queue.window:
                self._note(queue)

    def _post(self, queue: Queue) -> bool:
        """Posts the head of a queue if it may be; whether it was."""
        if queue.outstanding >= queue.window or queue.head == queue.total:
            return False
        items = queue.items
        iteration, index = divmod(queue.head, len(items))
        rank = queue.rank
        if queue.kind != Op.RECV and iteration > rank.finished:
            return False
        step, chunk, length = items[index]
        for pred, whole in rank.waits[step]:
            if whole:
                if rank.left[iteration][pred]:
                    return False
            elif not rank.done[iteration][rank.first[pred] + chunk]:
                return False
        queue.head += 1
        if rank.pauses_ns[step]:
            queue.outstanding += 1
            ends = self._now + rank.pauses_ns[step]
            self._at(ends, _PAUSED, (queue, iteration, step, chunk, length))
            return True
        if queue.kind == Op.COPY:
            self._complete(rank, iteration, step, chunk)
            return True
        if queue.kind == Op.RECV:
            if queue.early:
                queue.early -= 1
                self._complete(rank, iteration, step, chunk)
            else:
                queue.outstanding += 1
                queue.posted.append((iteration, step, chunk))
            return True
        queue.outstanding += 1
        self._queue(rank.nic, (queue, iteration, step, chunk, length), incoming=False)
        return True

    def _target(self, chunk: _Chunk) -> int:
        """The NIC that a chunk goes to."""
        partner = chunk[0].partner
        assert partner is not None
        return partner.rank.nic

    def _queue(self, nic: int, chunk: _Chunk, incoming: bool) -> None:
        self._waiting[nic].append((chunk, incoming))
        if not self._busy[nic]:
            self._begin(nic)

    def _begin(self, nic: int) -> None:
        """A NIC begins with the next chunk that waits for it.

        All are as long on their way, so that they reach the other NIC in the order of this.
        """
        chunk, incoming = self._waiting[nic].popleft()
        self._busy[nic] = True
        takes = self._costs.at_nic_ns(chunk[4])
        if incoming:
            self._at(self._now + takes + self._reducing_ns(chunk), _CAME, chunk)
            return
        self.sent_bytes[nic] += chunk[4]
        self._at(self._now + takes, _LEFT, chunk)
        there = self._now + self._costs.latency_ns
        if self._costs.half_duplex:
            self._at(there, _REACHED, chunk)
            return
        target = self._target(chunk)
        ends = max(there, self._in_until[target]) + takes + self._reducing_ns(chunk)
        self._in_until[target] = ends
        self._at(ends, _CAME, chunk)

    def _reducing_ns(self, chunk: _Chunk) -> float:
        """The time that the next chunk of a queue takes longer because it is reduced."""
        queue = chunk[0].partner
        assert queue is not None
        step = queue.items[queue.coming % len(queue.items)][0]
        queue.coming += 1
        return chunk[4] * self._costs.ns_a_reduced_byte if queue.rank.reduces[step] else 0.0

    def _at(self, time_ns: float, event: int, chunk: _Chunk) -> None:
        self._count += 1
        heapq.heappush(self._heap, (time_ns, self._count, event, chunk))

    def _free(self, nic: int) -> None:
        self._busy[nic] = False
        if self._waiting[nic]:
            self._begin(nic)

    def _left(self, chunk: _Chunk) -> None:
        queue, iteration, step, number, _ = chunk
        self._free(queue.rank.nic)
        queue.outstanding -= 1
        # Before the queue is noted itself: an iteration begins with the first of its steps.
        self._complete(queue.rank, iteration, step, number)
        self._note(queue)

    def _paused(self, chunk: _Chunk) -> None:
        queue, iteration, step, number, _ = chunk
        queue.outstanding -= 1
        self._complete(queue.rank, iteration, step, number)
        self._note(queue)

    def _came(self, chunk: _Chunk) -> None:
        queue = chunk[0].partner
        assert queue is not None
        if self._costs.half_duplex:
            self._free(queue.rank.nic)
        if not queue.posted:
            queue.early += 1
            return
        iteration, step, number = queue.posted.popleft()
        queue.outstanding -= 1
        self._note(queue)
        self._complete(queue.rank, iteration, step, number)

    def _complete(self, rank: Rank, iteration: int, step: int, chunk: int) -> None:
        rank.done[iteration][rank.first[step] + chunk] = 1
        rank.left[iteration][step] -= 1
        followers = rank.followers[step]
        for queue in followers[chunk % len(followers)]:
            self._note(queue)
        if rank.left[iteration][step]:
            return
        for queue in rank.waiting_for_all[step]:
            self._note(queue)
        rank.steps_left[iteration] -= 1
        if rank.steps_left[iteration]:
            return
        rank.ends_ns[iteration] = self._now
        while rank.finished < self._iterations and not rank.steps_left[rank.finished]:
            rank.finished += 1
        for queue in rank.queues:
            self._note(queue)
