"""A rank that its disk keeps waiting is not lost: the answer to a roll call is the disk."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tcpx_mpi.errors import ExitCode
from tcpx_mpi.world.disk_watch import ANSWERS_S, TELLS_S, DiskWatch
from tcpx_mpi.world.liveness import Answer


class Calls:
    """A roll call that another rank has called, or not."""

    rank = 3

    def __init__(self, called: bool = False, threads: bool = True) -> None:
        self.called, self.threads = called, threads
        self.said: list[Answer] = []

    def alarmed(self) -> bool:
        return self.called

    def may_be_called_by_threads(self) -> bool:
        return self.threads

    def say(self, answer: Answer) -> None:
        self.said.append(answer)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def watch_of(calls: Any, clock: Clock) -> DiskWatch:
    return DiskWatch(calls, lambda: "rank 3 on n1", clock)


def test_a_long_write_answers_once_with_the_path_and_the_time() -> None:
    calls, clock = Calls(called=True), Clock()
    watch = watch_of(calls, clock)
    with watch.writing("/spool/x.journal"):
        watch.look()
        assert calls.said == [], "every write takes a moment"
        clock.now += 75
        watch.look()
        watch.look()
    (answer,) = calls.said
    assert (answer.rank, answer.exit_code) == (3, ExitCode.OUTPUT_FAILED)
    assert not answer.present
    assert answer.text.startswith(
        "rank 3 on n1: disk: a write to /spool/x.journal has taken 75 s so far"
    )


def test_nobody_is_answered_who_has_not_called_or_when_nothing_is_written() -> None:
    quiet, clock = Calls(), Clock()
    watch = watch_of(quiet, clock)
    with watch.writing("/x"):
        clock.now += 75
        watch.look()
    assert quiet.said == []
    quiet.called = True
    watch.look()
    assert quiet.said == []
    alone = Calls(called=True, threads=False)
    watch = watch_of(alone, clock)
    with watch.writing("/x"):
        clock.now += 75
        watch.look()
    assert alone.said == [], "this MPI takes calls of the main thread alone"


def test_a_write_that_takes_long_is_told_of_once_whoever_waits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = Clock()
    watch = watch_of(Calls(), clock)
    with watch.writing("/spool/x.journal"):
        clock.now += (ANSWERS_S + TELLS_S) / 2
        watch.look()
        assert capsys.readouterr().err == ""
        clock.now = 100 + TELLS_S
        watch.look()
        watch.look()
    assert capsys.readouterr().err == (
        "# rank 3 on n1: disk: a write to /spool/x.journal has taken 10 s so far\n"
    )


def test_the_rank_goes_on_when_the_thread_has_spoken() -> None:
    clock, speaks, may_end = Clock(), threading.Event(), threading.Event()

    class Slow(Calls):
        def say(self, answer: Answer) -> None:
            speaks.set()
            assert may_end.wait(60)
            super().say(answer)

    calls = Slow(called=True)
    watch = watch_of(calls, clock)
    with watch.writing("/x"):
        clock.now += 75
        looking = threading.Thread(target=watch.look)
        looking.start()
        assert speaks.wait(60)
        threading.Timer(0.0, may_end.set).start()
    assert calls.said, "writing() returned while the thread called MPI"
    looking.join()


@pytest.mark.parametrize("limit_s", [30.0, 100.0])
def test_a_write_that_stands_still_for_longer_than_its_phase_allows_ends_the_run(
    limit_s: float,
) -> None:
    calls, clock, late = Calls(), Clock(), list[str]()
    watch = DiskWatch(
        calls,  # type: ignore[arg-type]  # as in `watch_of`
        lambda: "rank 3 on n1",
        clock,
        limit_s=lambda: limit_s,
        late=late.append,
    )
    with watch.writing("/spool/x.journal", may_take_s=10.0):
        clock.now += 50
        watch.look()
    assert bool(late) == (limit_s + 10 < 50)
    assert all("a write to /spool/x.journal has taken 50 s so far" in text for text in late)
