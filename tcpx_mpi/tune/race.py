"""Which of many settings is the best, by launches in turns: heats that drop losers, then a final.

Every round launches each setting that is still in, today's among them, there and back. A heat only
chooses who comes into the final; what is recommended is judged by launches of the final alone
(`answer`), so that whoever was lucky in a heat has nothing of it. Pure: launches and clock are
arguments.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tcpx_mpi.arrays import Float64s
from tcpx_mpi.errors import UsageError
from tcpx_mpi.stats import CONFIDENCE, launches_needed
from tcpx_mpi.stats.student import student_quantile
from tcpx_mpi.tune.point import TODAY, Change, Point, Turn

#: The best setting of a band is dropped from a heat in this share of tunes at most, if the times
#: of launches are log-normal.
LOSS = 0.05
_HEATS = 2
#: The number of the final, as if it were the third.
FINAL = _HEATS + 1
#: More rounds of a heat, or of the final, say little more than these.
_MOST_ROUNDS, _MOST_OF_FINAL = 8, 24
#: Settings of a final, beside today's.
_MOST_FINALISTS = 4
#: Of the launches that there is time for, the final has at least this share, and the first heat
#: this one of the others.
_OF_FINAL, _OF_FIRST = 0.5, 0.7
#: What noise may make of a gain where one round has not shown it.
_GUESS = 0.02


@dataclass(frozen=True)
class Sample:
    """A launch's figures by band: the time of a copy of the pattern, ns, and CPU seconds a GB,
    float64[band]; NaN if it is not known."""

    time_ns: Float64s
    cpu_s_per_gb: Float64s


#: Makes a launch; None if it failed, which today's settings may not.
Launch = Callable[[Turn], Sample | None]


@dataclass
class Budget:
    """Time, in seconds of `clock`, and what launches take of it."""

    within_s: float
    clock: Callable[[], float]
    began: float = field(init=False)
    #: What launches took.
    took: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.began = self.clock()

    def launches(self) -> int:
        """The number of launches that there is time for, once one was made."""
        left = self.within_s - (self.clock() - self.began)
        return max(0, int(left / (sum(self.took) / len(self.took))))

    def timed(self, launch: Launch) -> Launch:
        """The launch, its time noted."""

        def make(turn: Turn) -> Sample | None:
            before = self.clock()
            sample = launch(turn)
            self.took.append(self.clock() - before)
            return sample

        return make


@dataclass
class Heat:
    """Rounds of the same settings. Every setting that is still in has been in every round."""

    number: int
    samples: dict[Point, list[Sample]]
    rounds: int = 0
    #: Who is out: "slower", or "failed".
    out: dict[Point, str] = field(default_factory=dict)

    @property
    def alive(self) -> list[Point]:
        """Those that are still in, today's settings first."""
        return [point for point in self.samples if point not in self.out]

    @property
    def dropped(self) -> list[Point]:
        """Those that were beaten."""
        return [point for point, why in self.out.items() if why == "slower"]

    @property
    def failed(self) -> list[Point]:
        """Those whose launch failed."""
        return [point for point, why in self.out.items() if why == "failed"]

    def run_round(self, launch: Launch) -> None:
        """One launch of each, there and back in turns."""
        self.rounds += 1
        for point in self.alive[:: 1 if self.rounds % 2 else -1]:
            sample = launch(Turn(self.number, self.rounds, point))
            if sample is None or not bool(np.all(sample.time_ns > 0)):
                self.out[point] = "failed"
            else:
                self.samples[point].append(sample)

    def gains(self) -> dict[Point, Float64s]:
        """The gain of each setting over today's: the median logarithm of the ratio in its own
        rounds, float64[band]; without those that failed."""
        return {p: self._middle(p, "time_ns") for p in self.samples if p not in self.failed}

    def savings(self) -> dict[Point, Float64s]:
        """The same of CPU seconds a GB; NaN where they are not known."""
        return {point: self._middle(point, "cpu_s_per_gb") for point in self.gains()}

    def _middle(self, point: Point, what: str) -> Float64s:
        pairs = zip(self.samples[TODAY], self.samples[point], strict=False)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = [np.log(getattr(a, what)) - np.log(getattr(b, what)) for a, b in pairs]
        middle: Float64s = np.median(ratios, axis=0)
        return np.where(np.isfinite(middle), middle, np.nan)

    def deviation(self) -> tuple[Float64s, int]:
        """The standard deviation of the logarithm of a launch's time, float64[band], by what
        settings and rounds do not explain, and its degrees of freedom."""
        logs = self._logs()
        left = logs - logs.mean(axis=0) - logs.mean(axis=1, keepdims=True) + logs.mean(axis=(0, 1))
        freedom = (logs.shape[0] - 1) * (logs.shape[1] - 1)
        if freedom < 1:
            return np.full(logs.shape[2], math.nan), 0
        found: Float64s = np.sqrt((left**2).sum(axis=(0, 1)) / freedom)
        return found, freedom

    def margin(self) -> Float64s:
        """Twice the standard error of a gain, float64[band]; a guess after a single round."""
        deviation, freedom = self.deviation()
        if not freedom:
            return np.full(deviation.size, _GUESS)
        return 2 * deviation * math.sqrt(2 / self.rounds)

    def _logs(self) -> Float64s:
        """The logarithms of the times of all that are in: float64[setting, round, band]."""
        return np.log([[each.time_ns for each in self.samples[p]] for p in self.alive])

    def drop_losers(self) -> None:
        """Those leave that in each band another one beats for sure and at no higher CPU cost.

        Sure by Student's test of the two means; the chance of an error is `LOSS` over all bands,
        settings and looks of both heats: look r of one has 1 / (r (r - 1)), which sums up to 1.
        """
        deviation, freedom = self.deviation()
        points = self.alive
        if freedom < 1 or len(points) < 3:
            return
        share = LOSS / _HEATS / (self.rounds * (self.rounds - 1))
        share /= deviation.size * (len(points) - 1)
        far = student_quantile(freedom, 1 - share) * deviation * math.sqrt(2 / self.rounds)
        means, savings = dict(zip(points, self._logs().mean(axis=1), strict=True)), self.savings()
        for point in points:
            beaten = np.zeros(deviation.size, dtype=np.bool_)
            for other in points:
                dearer = savings[other] < savings[point]  # False where one is not known
                beaten |= (means[point] - means[other] > far) & ~dearer
            if point != TODAY and beaten.all():
                self.out[point] = "slower"


@dataclass(frozen=True)
class Race:
    """Everything that was launched, in the order of time, and the heats; the last is the final."""

    heats: list[Heat]
    history: list[tuple[Turn, Sample]]
    #: Points of the first heat that there was no time for.
    left_out: int

    @property
    def final(self) -> Heat:
        return self.heats[-1]


def run_race(
    singles: Callable[[], Sequence[Point]],
    bands: int,
    launch: Launch,
    budget: Budget,
    past: Sequence[tuple[Turn, Sample]] = (),
) -> Race:
    """Heats and a final within the budget. `singles` says, after the first launch, which points
    there are, the most telling first; `past` has the launches of an earlier race.

    What of that was a final counts no more: whoever looks twice finds by chance. Raises UsageError
    where there is no time for two launches.
    """
    history = list(past)

    def noted(turn: Turn) -> Sample | None:
        sample = launch(turn)
        if sample is not None:
            history.append((turn, sample))
        return sample

    timed = budget.timed(noted)
    timed(Turn(0, 1, TODAY))
    if budget.launches() < 1:
        raise UsageError(
            f"--within ({budget.within_s:g} s) is less than two launches, and one took "
            f"{budget.took[0]:.1f} s: give it time for 30, like "
            f"{math.ceil(budget.took[0] * 30 / 60)}m"
        )
    begun = list(dict.fromkeys(turn.point for turn, _ in past if turn.heat == 1))
    after_first = any(turn.heat > 1 for turn, _ in past)
    known = after_first or any(turn.round > 1 for turn, _ in past if turn.heat == 1)
    points = begun if known else list(dict.fromkeys([*begun, *singles()]))
    points = [point for point in points if point != TODAY]
    reserve = _reserve(budget.launches(), len(points), bands)
    spare = max(2, budget.launches() - reserve)
    room = len(points) if known else max(spare - 1, len(begun) - 1)
    heat = _heat(1, points[:room], past)
    heats = [heat]
    several = len({change.name for point in points for change in point}) > 1
    if not after_first:
        kept = round((1 - _OF_FIRST) * spare) if several else 0
        _run_rounds(heat, timed, budget, reserve + kept)
    second = list(dict.fromkeys(turn.point for turn, _ in past if turn.heat == 2))
    combined = [point for point in second or _combined(heat) if point != TODAY]
    if combined and (second or budget.launches() - reserve > len(combined)):
        heat = _heat(2, combined, past)
        _run_rounds(heat, timed, budget, reserve)
        heats.append(heat)
    finalists = _finalists(heat, budget.launches(), bands)
    final = _heat(FINAL, finalists, ())
    rounds = min(_MOST_OF_FINAL, max(1, budget.launches() // (len(finalists) + 1)))
    while len(final.alive) > 1 and final.rounds < rounds:
        if final.rounds and budget.launches() < len(final.alive):
            break
        final.run_round(timed)
    return Race([*heats, final], history, max(0, len(points) - room))


def claims(finalists: int, bands: int) -> int:
    """The number of intervals that are to hold together: each finalist's in each band, and over
    all."""
    return finalists * (bands + (bands > 1))


def _reserve(launches: int, points: int, bands: int) -> int:
    """Launches to leave for the final: its share, with a round to spare, unless there would be no
    round of all points without the spare ones."""
    least = _needed(1, bands)
    wanted = max(math.ceil(_OF_FINAL * launches), least + 2)
    return max(least, min(wanted, launches - (points + 1)))


def _needed(finalists: int, bands: int) -> int:
    """Launches of a final that can decide something."""
    rounds = launches_needed(1 - (1 - CONFIDENCE) / claims(finalists, bands))
    # One round more, where there is a choice, for the one that somebody else's work spoils.
    return (rounds + (finalists > 1)) * (finalists + 1)


def _heat(number: int, points: Iterable[Point], past: Sequence[tuple[Turn, Sample]]) -> Heat:
    """A heat of these and of today's settings, with the rounds that it had."""
    heat = Heat(number, {point: [] for point in (TODAY, *points)})
    known = {turn: sample for turn, sample in past if turn.heat == number}
    rounds = max((turn.round for turn in known), default=0)
    ended = any(turn.heat > number for turn, _ in past)
    while heat.rounds < rounds:
        # The last one may have been interrupted: then it is made anew.
        whole = all(Turn(number, rounds, point) in known for point in heat.alive)
        if heat.rounds == rounds - 1 and not whole and not ended:
            break
        heat.run_round(known.get)
        heat.drop_losers()
    return heat


def _run_rounds(heat: Heat, launch: Launch, budget: Budget, reserve: int) -> None:
    """Rounds while there is more time than for a reserve of launches; one in any case."""
    while heat.rounds == 0 or (
        heat.rounds < _MOST_ROUNDS
        and len(heat.alive) > 2
        and budget.launches() - reserve >= len(heat.alive)
    ):
        heat.run_round(launch)
        heat.drop_losers()


def _combined(heat: Heat) -> list[Point]:
    """The best of each band and over all, and what is made of all that was better than today's
    settings there: of the two best settings, and of all; [] where there is nothing to combine."""
    gains = {point: gain for point, gain in heat.gains().items() if point != TODAY}
    if not gains:
        return []
    found: list[Point] = []
    for of_band, beyond in _by_band(gains, heat.margin()):
        better = sorted((p for p in gains if of_band[p] > beyond), key=lambda p: -of_band[p])
        best: dict[str, Change] = {}
        for point in better:
            for change in point:
                best.setdefault(change.name, change)
        ordered = list(best.values())
        found += [tuple(sorted(ordered[:count])) for count in {2, len(ordered)} if count >= 2]
        found += better[:1]
    new = list(dict.fromkeys(found))
    return new if any(point not in heat.samples for point in new) else []


def _by_band(
    gains: Mapping[Point, Float64s], least: Float64s
) -> list[tuple[dict[Point, float], float]]:
    """The gains in each band, and their means over all bands, with how much is something."""
    columns = [({p: float(g[band]) for p, g in gains.items()}, float(least[band]))
               for band in range(least.size)]  # fmt: skip
    means = {point: float(gain.mean()) for point, gain in gains.items()}
    return [*columns, (means, float(np.max(least)))]


def _finalists(heat: Heat, launches: int, bands: int) -> list[Point]:
    """The best of each band and over all, the surest first, then those of the front that cost least
    CPU; as many as so many launches can decide."""
    gains = {point: gain for point, gain in heat.gains().items() if point != TODAY}
    if not gains:
        return []
    best: list[tuple[float, Point]] = []
    for column, margin in _by_band(gains, heat.margin()):
        enough = max(column.values()) - margin
        # Of those that may be the best the one that changes least.
        fit = min((p for p in column if column[p] >= enough), key=lambda p: (len(p), -column[p]))
        best.append((column[fit] / max(margin, 1e-9), fit))
    wanted = [point for _, point in sorted(best, key=lambda each: -each[0])]
    savings = heat.savings()
    front = [point for point in heat.alive if point in gains and on_front(point, gains, savings)]
    wanted += sorted(front, key=lambda point: -float(np.nan_to_num(savings[point]).mean()))
    ordered = list(dict.fromkeys(wanted))[:_MOST_FINALISTS]
    while len(ordered) > 1 and _needed(len(ordered), bands) > launches:
        ordered.pop()
    return ordered


def on_front(
    point: Point, gains: Mapping[Point, Float64s], savings: Mapping[Point, Float64s]
) -> bool:
    """Whether in some band nobody is both faster and no dearer, or as fast and cheaper."""
    dominated = np.zeros(gains[point].size, dtype=np.bool_)
    for other in gains:
        if other != point:
            faster, cheaper = gains[other] - gains[point], savings[other] - savings[point]
            dominated |= (faster >= 0) & (cheaper >= 0) & ((faster > 0) | (cheaper > 0))
    return not bool(dominated.all())
