"""A roll call counts the time in which its rank could run, not that of a busy machine."""

from __future__ import annotations

from typing import Any

import pytest

from tcpx_mpi.world import liveness
from tcpx_mpi.world.liveness import PRESENCE_S, ROLL_CALL_S, Answer, RollCall


class Silence:
    """A communicator of two ranks, the other of which says nothing."""

    def Get_rank(self) -> int:
        return 0

    def Get_size(self) -> int:
        return 2

    def Isend(self, *_: object, **__: object) -> None:
        return None

    def Iprobe(self, **_: object) -> bool:
        return False


class Clock:
    """Each sleep takes so long."""

    def __init__(self, sleep_s: float) -> None:
        self.now, self.sleep_s = 100.0, sleep_s

    def monotonic(self) -> float:
        return self.now

    def sleep(self, _: float) -> None:
        self.now += self.sleep_s


@pytest.mark.parametrize(
    ("sleep_s", "signal", "took_s"),
    [(0.001, 0, ROLL_CALL_S), (0.1, 0, 10 * ROLL_CALL_S), (0.001, 15, PRESENCE_S)],
    ids=["idle", "busy", "told to end"],
)
def test_how_long_a_rank_that_says_nothing_is_waited_for(
    sleep_s: float, signal: int, took_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, comm = Clock(sleep_s), Silence()
    monkeypatch.setattr(liveness, "time", clock)
    told: Any = comm
    answers = RollCall(told, lambda: signal).call(Answer(0, 6, "nothing moves"))
    assert answers.keys() == {0}
    assert clock.now - 100 == pytest.approx(took_s, rel=0.05)
