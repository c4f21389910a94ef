"""The end of a run: no rank closes a connection before every rank has nothing left to do on it."""

from __future__ import annotations

import contextlib
import threading
from contextlib import AbstractContextManager
from types import SimpleNamespace
from typing import Any

from tcpx_mpi.run.benchmark import Benchmark
from tcpx_mpi.run.story import RunState

LIMIT_S = 30.0


class ThreadWorld:
    """Ranks that are threads of this process: the part of World that the end of a run uses."""

    def __init__(self, rank: int, meeting: threading.Barrier, arrived: list[int]) -> None:
        self.rank, self.size = rank, meeting.parties
        self.roll_call = None  # nobody is lost here
        self._meeting, self._arrived = meeting, arrived

    def barrier(self, _what: str) -> None:
        self._arrived.append(self.rank)
        self._meeting.wait(LIMIT_S)

    def agree(self, _what: str, while_alive: bool = False) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def at_work(self) -> AbstractContextManager[None]:
        return contextlib.nullcontext()

    def allgather(self, value: Any, _what: str) -> list[Any]:
        return [value] * self.size


def test_a_rank_that_is_done_closes_only_when_the_slowest_is_done_too() -> None:
    ranks = 3
    meeting = threading.Barrier(ranks)
    arrived: list[int] = []
    had_arrived: dict[int, int] = {}  # by the time that a rank closed
    codes: list[int] = []

    def end(rank: int) -> None:
        def close() -> None:
            had_arrived[rank] = len(arrived)
            noticed.set()

        state = RunState(ThreadWorld(rank, meeting, arrived), [])  # type: ignore[arg-type]  # threads for ranks
        state.output = SimpleNamespace(end=lambda memory: 0, path="")  # type: ignore[assignment]  # a stand-in
        story = Benchmark(state)
        codes.append(story.end([SimpleNamespace(close=close)]))

    noticed = threading.Event()
    threads = [threading.Thread(target=end, args=(rank,), daemon=True) for rank in range(ranks)]
    for thread in threads[1:]:
        thread.start()
    while meeting.n_waiting < ranks - 1 and not noticed.wait(0.001):
        pass  # until all but rank 0 wait, or one has closed already
    threads[0].start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert codes == [0] * ranks
    assert had_arrived == dict.fromkeys(range(ranks), ranks)
