"""The race on invented machines: what it finds, what it must not find, and what it costs."""

from __future__ import annotations

import numpy as np
import pytest
from races import SPACE, Machine, changes, recommends, single

from tcpx_mpi.errors import UsageError
from tcpx_mpi.stats import CONFIDENCE, compare_launches, find_drift, launches_needed
from tcpx_mpi.tune.point import TODAY, Change, Turn, turn_of
from tcpx_mpi.tune.race import FINAL, LOSS, Heat, Sample, run_race

SEEDS = range(20)
BETTER = Change("B", "2")


@pytest.mark.parametrize("within_s", [30, 120, 300])
def test_equal_settings_recommend_nothing_in_19_of_20(within_s: int) -> None:
    assert sum(recommends(Machine(seed).answer(within_s)) for seed in SEEDS) <= 1


def test_a_drifting_machine_does_not_make_equal_settings_differ() -> None:
    found = [Machine(s, drift=lambda t: 1 + t / 200).answer(120) for s in SEEDS]
    assert sum(map(recommends, found)) <= 1


@pytest.mark.parametrize(("within_s", "gain"), [(120, 1.3), (300, 1.1)])
def test_a_planted_better_setting_is_found_in_19_of_20(within_s: int, gain: float) -> None:
    machines = (Machine(seed, {BETTER: (1.0, gain)}) for seed in SEEDS)
    found = [BETTER in changes(machine.answer(within_s), 1) for machine in machines]
    assert sum(found) >= 19


def test_of_three_values_a_large_gain_is_found_within_the_time_of_15_launches() -> None:
    space = [single("B", value) for value in (1, 2)]
    machines = (Machine(seed, {BETTER: (3.0,)}, bands=1) for seed in SEEDS)
    assert sum(bool(machine.answer(30, space).compromise) for machine in machines) >= 19


def test_small_and_large_messages_may_have_different_winners() -> None:
    speed = {Change("A", "1"): (1.3, 0.9), BETTER: (0.9, 1.3)}
    answer = Machine(1, speed).answer(300)
    assert changes(answer, 0) == single("A", 1)
    assert changes(answer, 1) == single("B", 2)


def test_what_is_better_in_one_band_and_worse_in_another_is_no_compromise() -> None:
    answer = Machine(1, {BETTER: (0.8, 1.5)}).answer(300, [single("B", 2)])
    assert changes(answer, 1) == single("B", 2)
    assert answer.compromise is None
    assert recommends(answer)


def test_settings_that_are_better_are_combined() -> None:
    speed = {Change("A", "1"): (1.2, 1.2), BETTER: (1.2, 1.2)}
    found = [changes(Machine(seed, speed).answer(300), 1) for seed in range(5)]
    assert found == [(Change("A", "1"), BETTER)] * 5


def test_the_cheaper_of_slower_settings_is_on_the_front() -> None:
    cheap = Change("A", "3")
    machine = Machine(1, {cheap: (0.8, 0.8), BETTER: (1.3, 1.3)}, {cheap: 0.5})
    answer = machine.answer(300)
    front = {each.point for each in answer.finalists if any(each.on_front)}
    assert single("A", 3) in front
    assert TODAY not in front


def test_losers_leave_and_the_rest_gets_their_launches() -> None:
    slow = {change: (0.7, 0.7) for (change,) in SPACE if change.name != "B"}
    machine = Machine(1, slow)
    race = machine.race(300)
    assert set(race.heats[0].dropped) == {(change,) for change in slow}
    rounds = {turn.point: turn.round for turn in machine.turns if turn.heat == 1}
    assert rounds[single("B", 2)] > rounds[single("A", 1)]


def test_the_best_of_a_band_is_dropped_as_seldom_as_is_said() -> None:
    lost = 0
    for seed in range(200):
        random = np.random.default_rng(seed)
        points = [TODAY, *SPACE]
        heat = Heat(1, {point: [] for point in points})

        def launch(turn: Turn, random: np.random.Generator = random) -> Sample:
            gain = 1.002 if turn.point == SPACE[0] else 1.0
            return Sample(np.exp(random.normal(0, 0.05, 1)) / gain, np.array([np.nan]))

        for _ in range(6):
            heat.run_round(launch)
            heat.drop_losers()
        lost += SPACE[0] in heat.dropped
    assert lost <= 200 * LOSS


def test_a_drifting_machine_is_noticed_and_a_steady_one_is_not() -> None:
    drifting = [Machine(s, drift=lambda t: 1 + 0.4 * t / 120).answer(120).drift for s in SEEDS]
    assert sum(found is not None and found.relative > 0.1 for found in drifting) >= 19
    assert sum(Machine(seed).answer(120).drift is not None for seed in SEEDS) <= 1


def test_few_launches_drift_only_where_chance_would_not_do_it() -> None:
    assert find_drift(np.linspace(1.0, 1.3, 12)) is not None
    assert find_drift(np.linspace(1.0, 1.03, 12)) is None, "too small to tell"
    assert find_drift(np.linspace(1.0, 2.0, 8)) is None, "too few"
    random = np.random.default_rng(1)
    assert sum(find_drift(random.normal(1, 0.2, 30)) is not None for _ in range(300)) <= 3


def test_launches_needed_are_those_that_an_interval_needs() -> None:
    for share in (0.05, 0.01, 0.001):
        n = launches_needed(1 - share)
        ours, theirs = np.arange(1, n + 1.0), np.arange(1, n + 1.0) + n
        assert compare_launches(ours, theirs, 1 - share).test
        assert not compare_launches(ours[1:], theirs[1:], 1 - share).test


# --- Time -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("within_s", [8, 30, 120, 600])
def test_the_time_is_kept_by_one_launch_of_each_finalist_at_most(within_s: int) -> None:
    machine = Machine(1)
    machine.race(within_s)
    assert machine.now <= within_s + 4 * machine.seconds


def test_less_than_two_launches_are_refused_with_what_one_took() -> None:
    with pytest.raises(UsageError, match=r"--within \(3 s\) is less than two .* took 2\.0 s"):
        Machine(1).race(3)


def test_what_there_is_no_time_for_is_counted() -> None:
    assert Machine(1).race(40).left_out > 0
    assert Machine(1).race(300).left_out == 0


def test_the_final_has_launches_of_its_own() -> None:
    machine = Machine(1, {BETTER: (1.3, 1.3)})
    answer = machine.answer(120)
    finals = [turn for turn in machine.turns if turn.heat == FINAL]
    assert {turn.point for turn in finals} == {each.point for each in answer.finalists}
    for finalist in answer.finalists[1:]:
        assert finalist.contests[0].launches == sum(t.point == finalist.point for t in finals)
    assert answer.confidence >= CONFIDENCE


# --- Failures, and going on -----------------------------------------------------------------------


def test_a_setting_that_fails_is_out_and_named() -> None:
    machine = Machine(1, {BETTER: (1.3, 1.3)})
    machine.fails = {single("A", 0), single("C", 3)}
    answer = machine.answer(120)
    assert set(answer.failed) == machine.fails
    assert BETTER in changes(answer, 1)


def test_where_all_fail_today_s_settings_stay() -> None:
    machine = Machine(1)
    machine.fails = set(SPACE)
    answer = machine.answer(120)
    assert answer.nearest == [None, None, None]
    assert not recommends(answer)


@pytest.mark.parametrize("stop_after", [2, 9, 20, 45, 55])
def test_an_interrupted_race_goes_on_with_its_launches_and_makes_the_final_anew(
    stop_after: int,
) -> None:
    whole = Machine(1, {BETTER: (1.3, 1.3)})
    past = [each for each in whole.race(120).history if each[0].heat > 0][:stop_after]
    again = Machine(2, {BETTER: (1.3, 1.3)})
    race = again.race(120, past=past)
    made = {turn for turn in again.turns if turn.heat in (1, 2)}
    rounds = {turn.round for turn, _ in past if turn.heat == 1}
    whole_rounds = rounds - {max(rounds)}
    assert not {turn for turn, _ in past if turn.heat == 1 and turn.round in whole_rounds} & made
    assert {turn.heat for turn in again.turns} >= {0, FINAL}
    assert race.final.rounds == sum(t == Turn(FINAL, t.round, TODAY) for t in again.turns)


def test_a_turn_comes_back_from_its_mark() -> None:
    turn = Turn(2, 3, (Change("channels", "4", True), Change("A", 'a "b"; $(c)\n')))
    assert turn_of(turn.mark(), "x.h5") == turn
    for bad in ("", "{}", "[1]", "[1, 2, 3]", "[" * 10_000):
        with pytest.raises(UsageError, match=r"x\.h5 is no file of `tcpx-mpi tune`"):
            turn_of(bad, "x.h5")


def test_nothing_of_the_space_is_asked_before_the_first_launch() -> None:
    machine = Machine(1)
    order: list[str] = []

    def singles() -> list[tuple[Change, ...]]:
        order.append(f"after {len(machine.turns)}")
        return SPACE

    from tcpx_mpi.tune.race import Budget

    run_race(singles, 2, machine.launch, Budget(40, machine.clock))
    assert order == ["after 1"]
