"""Invented machines: launches whose true times are known, and a clock that they move."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tcpx_mpi.compare import Limits
from tcpx_mpi.tune.answer import Answer, answer_of
from tcpx_mpi.tune.point import TODAY, Change, Point, Turn
from tcpx_mpi.tune.race import Budget, Race, Sample, run_race

#: Of 2 bands, ns.
TIMES = (50_000.0, 8_000_000.0)


def single(name: str, value: object) -> Point:
    return (Change(name, str(value)),)


#: Four values of each of three variables: 12 settings.
SPACE = [single(name, value) for value in range(4) for name in ("A", "B", "C")]


class Machine:
    """Launches take the true times of their setting, by `noise`, and now and then far longer."""

    def __init__(
        self,
        seed: int,
        speed: Mapping[Change, Sequence[float]] | None = None,
        cost: Mapping[Change, float] | None = None,
        noise: float = 0.02,
        drift: Callable[[float], float] = lambda _: 1.0,
        bands: int = 2,
        seconds: float = 2.0,
    ) -> None:
        self.random = np.random.default_rng(seed)
        self.speed, self.cost = speed or {}, cost or {}
        self.noise, self.drift, self.bands, self.seconds = noise, drift, bands, seconds
        self.now = 0.0
        self.turns: list[Turn] = []
        self.fails: set[Point] = set()

    def clock(self) -> float:
        return self.now

    def launch(self, turn: Turn) -> Sample | None:
        self.now += self.seconds
        self.turns.append(turn)
        if turn.point in self.fails:
            return None
        times = np.array(TIMES[: self.bands])
        cpu = np.full(self.bands, 0.4)
        for change in turn.point:
            times /= np.array(self.speed.get(change, (1.0, 1.0))[: self.bands])
            cpu *= self.cost.get(change, 1.0)
        times *= self.drift(self.now) * np.exp(self.random.normal(0, self.noise, self.bands))
        if self.random.random() < 0.05:  # somebody else's work
            times *= 1 + self.random.exponential(0.5)
        cpu *= np.exp(self.random.normal(0, self.noise, self.bands))
        return Sample(times, cpu)

    def race(self, within_s: float, space: Sequence[Point] = SPACE, past: object = ()) -> Race:
        budget = Budget(within_s, self.clock)
        return run_race(lambda: space, self.bands, self.launch, budget, past)  # type: ignore[arg-type]

    def answer(self, within_s: float, space: Sequence[Point] = SPACE) -> Answer:
        return answer_of(self.race(within_s, space), self.bands, Limits())


def recommends(answer: Answer) -> bool:
    return answer.compromise is not None or any(answer.by_band)


def changes(answer: Answer, band: int) -> Point:
    found = answer.by_band[band]
    return TODAY if found is None else found.point
