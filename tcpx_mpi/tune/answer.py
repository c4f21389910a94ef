"""The answer of a race: the final's settings beside today's, the front, the recommendation. Pure.

A ratio is today's time over the setting's: above 1 the setting is faster. All intervals of times
hold together in 95 % of tunes, and are of launches that chose nobody.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tcpx_mpi.arrays import Float64s
from tcpx_mpi.compare import Limits, Verdict, verdict_of
from tcpx_mpi.stats import CONFIDENCE, Change, Interval, compare_launches, find_drift
from tcpx_mpi.tune.point import TODAY, Point
from tcpx_mpi.tune.race import Heat, Race, claims, on_front

#: What launches decide nothing without.
_REMEDY = "a longer --within"


@dataclass(frozen=True)
class Contest:
    """A setting beside today's in one band, or over all of them."""

    #: Of time, today's over the setting's.
    speed: Interval
    #: Of CPU seconds a GB, the setting's over today's; NaN where they are not known.
    cost: Interval
    launches: int
    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class Finalist:
    """A setting of the final; today's has no contests."""

    point: Point
    #: The typical launch, by band; `time_ns` of the mean of the logarithms over its sizes.
    time_ns: Float64s
    cpu_s_per_gb: Float64s
    #: Where nobody is both faster and cheaper, by band.
    on_front: tuple[bool, ...]
    contests: tuple[Contest, ...]
    #: Over all bands: the mean of the logarithms of theirs.
    overall: Contest | None

    @property
    def verdict(self) -> Verdict:
        """The verdict on one setting for all bands: worse if it is worse in one."""
        assert self.overall is not None
        worse = any(contest.verdict is Verdict.WORSE for contest in self.contests)
        return Verdict.WORSE if worse else self.overall.verdict


@dataclass(frozen=True)
class Answer:
    """The settings of the final, today's first, and what follows."""

    finalists: list[Finalist]
    #: Of a band the setting to recommend; None: none is better than today's.
    by_band: list[Finalist | None]
    #: One for all bands.
    compromise: Finalist | None
    #: The one that came nearest in each band, or over all (the last).
    nearest: list[Finalist | None]
    #: All intervals of times hold together with 95 %, each alone with this.
    confidence: float
    drift: Change | None
    #: Settings whose launch failed.
    failed: list[Point]
    race: Race

    @property
    def decided(self) -> bool:
        """Whether the final had enough launches to decide anything."""
        known = [math.isfinite(c.speed.low) for f in self.finalists for c in f.contests]
        return any(known)


def answer_of(race: Race, bands: int, limits: Limits) -> Answer:
    """The answer of a race."""
    final = race.final
    others = [point for point in final.alive if point != TODAY]
    confidence = 1 - (1 - CONFIDENCE) / max(claims(len(final.samples) - 1, bands), 1)
    known = [TODAY, *others] if final.rounds else []
    every = [[band] for band in range(bands)]
    contests = {
        point: [_contest(final, point, each, confidence, limits) for each in [*every, range(bands)]]
        for point in others
    }
    gains, savings = _ratios(contests, bands)
    finalists = [
        Finalist(
            point,
            np.median(_of(final, point, "time_ns"), axis=0),
            np.median(_of(final, point, "cpu_s_per_gb"), axis=0),
            tuple(on_front(point, _only(gains, band), _only(savings, band)) for band in every),
            tuple(contests[point][:-1]) if point in contests else (),
            contests[point][-1] if point in contests else None,
        )
        for point in known
    ]
    beside = finalists[1:]
    in_bands = [[(f, f.contests[band]) for f in beside] for band in range(bands)]
    over_all = [(f, dataclasses.replace(f.overall, verdict=f.verdict)) for f in beside if f.overall]
    return Answer(
        finalists=finalists,
        by_band=[_best(each) for each in in_bands],
        compromise=_best(over_all),
        nearest=[_nearest(each) for each in (*in_bands, over_all)],
        confidence=confidence,
        drift=drift_of(race),
        failed=list(dict.fromkeys(point for heat in race.heats for point in heat.failed)),
        race=race,
    )


def drift_of(race: Race) -> Change | None:
    """The drift of the machine during the launches; times are shares of a setting's own."""
    means: dict[Point, list[float]] = {}
    logs = [float(np.log(sample.time_ns).mean()) for _, sample in race.history]
    for (turn, _), log in zip(race.history, logs, strict=True):
        means.setdefault(turn.point, []).append(log)
    # One that was launched once says nothing of time.
    left = [
        log - float(np.mean(means[turn.point]))
        for (turn, _), log in zip(race.history, logs, strict=True)
        if len(means[turn.point]) > 1
    ]
    return find_drift(np.exp(left))


def _ratios(
    contests: Mapping[Point, Sequence[Contest]], bands: int
) -> tuple[dict[Point, Float64s], dict[Point, Float64s]]:
    """The speed and the thrift of each setting beside today's, as logarithms, by band."""
    gains, savings = ({TODAY: np.zeros(bands)} for _ in range(2))
    for point, of_point in contests.items():
        gains[point] = np.log([contest.speed.estimate for contest in of_point[:-1]])
        savings[point] = -np.log([contest.cost.estimate for contest in of_point[:-1]])
    return gains, savings


def _of(heat: Heat, point: Point, what: str) -> Float64s:
    """float64[launch, band]."""
    return np.array([getattr(sample, what) for sample in heat.samples[point]])


def _only(values: Mapping[Point, Float64s], band: list[int]) -> dict[Point, Float64s]:
    return {point: of_bands[band] for point, of_bands in values.items()}


def _contest(
    final: Heat, point: Point, bands: Sequence[int], confidence: float, limits: Limits
) -> Contest:
    def means(of: Point, what: str) -> Float64s:
        with np.errstate(divide="ignore"):
            found: Float64s = np.exp(np.log(_of(final, of, what)[:, bands]).mean(axis=1))
        return found

    ours, theirs = means(TODAY, "time_ns"), means(point, "time_ns")
    shift = compare_launches(ours, theirs, confidence, paired=True)
    verdict, reason = verdict_of(shift, (ours.size, theirs.size), limits, _REMEDY)
    cpu = "cpu_s_per_gb"
    cost = compare_launches(means(point, cpu), means(TODAY, cpu), confidence, paired=True)
    return Contest(shift.ratio, cost.ratio, theirs.size, verdict, reason)


def _best(contests: Sequence[tuple[Finalist, Contest]]) -> Finalist | None:
    """The best of those that are better: of the fastest, and whoever may be as fast, the one that
    changes least, then the fastest."""
    better = [each for each in contests if each[1].verdict is Verdict.BETTER]
    if not better:
        return None
    enough = max(better, key=lambda each: each[1].speed.estimate)[1].speed.low
    fit = [each for each in better if each[1].speed.estimate >= enough]
    return min(fit, key=lambda each: (len(each[0].point), -each[1].speed.estimate))[0]


def _nearest(contests: Sequence[tuple[Finalist, Contest]]) -> Finalist | None:
    """The fastest by its estimate."""
    return max(contests, key=lambda each: each[1].speed.estimate, default=(None,))[0]
