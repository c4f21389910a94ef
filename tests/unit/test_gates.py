"""Gates: what is not known to be good fails; limits out of launches raise few false alarms."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import invented_runs
import numpy as np
import pytest

from tcpx_mpi.config import load_settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.gates import Gate, Limit, calibrate, gate_text, judge, read_gate, require_judgeable
from tcpx_mpi.gates.calibrate import _slowest_expected_ns
from tcpx_mpi.gates.figures import figures_of
from tcpx_mpi.records import Fault, Run

HEAD = '[gate]\nplugin = "p"\nranks = 4\nprovenance = "by hand"\n'
LIMIT = '[[limit]]\npattern = "ring"\nmemory = "host"\nsize = "1K"\nbusbw_min = 1.0\n'


def run_of(rows: int = 3) -> Run:
    return invented_runs.sound(rows=rows)


def gate_for(run: Run, share: float = 0.9, **changes: Any) -> Gate:
    """Limits a little below what the run has."""
    limits = tuple(
        Limit(run.header.pattern, run.header.memory, row.size_bytes, "busbw_min",
              share * figures_of(run, row).busbw)
        for row in run.rows
    )  # fmt: skip
    gate = Gate(limits, run.header.plugin_name, run.header.world, "invented")
    return dataclasses.replace(gate, **changes)


def test_a_run_above_all_limits_passes_and_one_below_one_of_them_does_not() -> None:
    run = run_of()
    assert judge(gate_for(run), run).passed
    gate = gate_for(run)
    tight = dataclasses.replace(gate.limits[1], value=2 * gate.limits[1].value)
    judgement = judge(dataclasses.replace(gate, limits=(gate.limits[0], tight)), run)
    assert [finding.passed for finding in judgement.findings] == [True, False]
    assert not judgement.passed
    assert "2 KiB" in judgement.in_short()
    assert judgement.lines()[-1].endswith("FAILED, 1 of 2 limits met")


def test_the_figure_of_a_limit_is_the_median_batch_of_the_slowest_rank() -> None:
    run = run_of(rows=1)
    row = run.rows[0]
    row.batches = np.array([100, 100, 100])
    row.samples["iteration"][:] = 1000
    row.samples["iteration"][2] = 2000  # the slowest rank
    row.samples["iteration"][:, 3] = 10**9  # one batch of three was disturbed
    row.samples["iteration"][2, 100:300:2] = 0  # bytes were there already, and so
    row.samples["iteration"][2, 101:300:2] = 4000  # the iteration before took twice as long
    figures = figures_of(run, row)
    assert figures.time_ns == 2000
    assert figures.p99_ns == 4000
    assert figures.busbw == row.size_bytes / 2000 * run.header.busbw_factor


# Each of these leaves every figure above its limit, and must fail all the same.
def lose_a_rank(run: Run) -> None:
    row = run.rows[1]
    row.samples = {phase: samples[:-1] for phase, samples in row.samples.items()}
    row.receives, row.checked = row.receives[:-1], row.checked[:-1]


def lose_a_row(run: Run) -> None:
    del run.rows[1]


def leave_unchecked(run: Run) -> None:
    run.rows[1].checked[2] = False


def deliver_wrong_bytes(run: Run) -> None:
    run.rows[1].wrong[0] = 1


def lose_a_time(run: Run) -> None:
    run.rows[1].samples["iteration"][0, 5] = -1


def have_no_iteration(run: Run) -> None:
    row = run.rows[1]
    row.iterations = 0
    row.samples = {phase: samples[:, :0] for phase, samples in row.samples.items()}


def receive_nowhere(run: Run) -> None:
    run.rows[1].receives[:] = False


def end_early(run: Run) -> None:
    run.complete = False


def end_with_a_fault(run: Run) -> None:
    run.fault = Fault("stall", 6, {0: "stalled"})


def change_header(**changes: Any) -> Callable[[Run], None]:
    def change(run: Run) -> None:
        run.header = dataclasses.replace(run.header, **changes)

    return change


#: What spoils a row -> why; then what spoils a run.
ROW_BREAKS: dict[Callable[[Run], None], str] = {
    leave_unchecked: "its bytes were not checked by every rank that receives",
    deliver_wrong_bytes: "1 wrong bytes",
    lose_a_time: "an iteration has no time",
    have_no_iteration: "no timed iteration",
    receive_nowhere: "no rank receives",
}
BREAKS = {
    **{spoil: f"ring, host, 2 KiB: {why}" for spoil, why in ROW_BREAKS.items()},
    lose_a_rank: "the file lacks samples of row 1 (2 KiB), phase iteration: 3 x 300 of 4 ranks",
    lose_a_row: "the file lacks 1 of 3 rows: 2 KiB",
    end_early: "the file lacks the end of the run",
    end_with_a_fault: "the file lacks the end of the run: stall (exit code 6)",
    change_header(plugin_name="another"): "plugin is another, the gate holds for softtcpx",
    change_header(world=5): "ranks is 5, the gate holds for 4",
    change_header(pattern="mesh"): "the gate has no limit for mesh in host memory",
    change_header(memory="cuda"): "the gate has no limit for ring in cuda memory",
    change_header(unpack="none"): "nothing was unpacked (--unpack none)",
    change_header(mode="averages"): "the run was imported",
}


@pytest.mark.parametrize("spoil", BREAKS)
def test_whatever_is_missing_or_unlike_fails(spoil: Callable[[Run], None]) -> None:
    run = run_of()
    gate = gate_for(run, share=1e-6)
    spoil(run)
    judgement = judge(gate, run)
    assert not judgement.passed
    assert judgement.in_short().startswith(BREAKS[spoil])


def test_a_size_that_was_not_run_fails() -> None:
    run = run_of()
    gate = gate_for(run)
    more = dataclasses.replace(gate.limits[0], size_bytes=1 << 20)
    judgement = judge(dataclasses.replace(gate, limits=(*gate.limits, more)), run)
    assert judgement.failures() == ["ring, host, 1 MiB: no row of this size"]
    assert [finding.passed for finding in judgement.findings] == [True, True, True, False]


def test_another_file_of_the_plugin_fails_where_the_gate_names_one() -> None:
    run = run_of()
    assert judge(gate_for(run, plugin_sha256=run.header.plugin_sha256), run).passed
    assert not judge(gate_for(run, plugin_sha256="0" * 64), run).passed


@pytest.mark.parametrize("key", ["nodes", "channels", "chunk_bytes", "mode"])
def test_other_circumstances_fail_where_the_gate_names_them(key: str) -> None:
    assert not judge(gate_for(run_of(), **{key: 77}), run_of()).passed


def test_an_unknown_figure_never_passes() -> None:
    """NaN compares false both ways; a gate must not read that as "not below"."""
    run = run_of(rows=1)
    row = run.rows[0]
    row.size_bytes = 0
    row.checked[:] = False  # there is nothing to check
    limits = (Limit("ring", "host", 0, "busbw_min", 1e-9),)
    run.header.plan = dataclasses.replace(run.header.plan, sizes=(0,))
    finding = judge(gate_for(run, limits=limits), run).findings[0]
    assert math.isnan(finding.found)
    assert not finding.passed


def test_a_tail_of_too_few_iterations_never_passes() -> None:
    run = run_of(rows=1)
    row = run.rows[0]
    row.iterations = 100
    row.samples = {phase: samples[:, :100] for phase, samples in row.samples.items()}
    limit = Limit("ring", "host", row.size_bytes, "p99_us_max", 1e9)
    judgement = judge(gate_for(run, limits=(limit,)), run)
    assert not judgement.findings[0].passed
    assert judgement.failures() == ["ring, host, 1 KiB: too few iterations for p99"]


def in_two_cycles(slower: int) -> Run:
    """The second row is so many times as slow."""
    run = run_of(rows=1)
    slow = invented_runs.sound(rows=1).rows[0]
    slow.samples["iteration"][:] *= slower
    slow.index = slow.cycle = 1
    run.rows.append(slow)
    run.header.plan = dataclasses.replace(run.header.plan, run_cycles=2)
    return run


def test_every_cycle_of_a_size_is_judged() -> None:
    assert judge(gate_for(run_of(rows=1)), in_two_cycles(1)).passed
    assert not judge(gate_for(run_of(rows=1)), in_two_cycles(3)).passed


@pytest.mark.parametrize("cycle", [0, 1])
def test_a_cycle_without_a_figure_is_not_made_up_for_by_another(cycle: int) -> None:
    run = in_two_cycles(1)
    row = run.rows[cycle]
    row.iterations = 100
    row.samples = {phase: samples[:, :100] for phase, samples in row.samples.items()}
    limit = Limit("ring", "host", row.size_bytes, "p99_us_max", 1e9)
    assert not judge(gate_for(run, limits=(limit,)), run).passed


def test_a_gate_without_limits_passes_nothing() -> None:
    run = run_of()
    assert not judge(gate_for(run, limits=()), run).passed


@pytest.mark.parametrize("spoil", [leave_unchecked, deliver_wrong_bytes])
def test_a_bad_row_without_a_limit_fails_the_gate(spoil: Callable[[Run], None]) -> None:
    run = run_of()
    gate = gate_for(run)
    gate = dataclasses.replace(gate, limits=(gate.limits[0], gate.limits[2]))
    assert judge(gate, run).passed
    spoil(run)
    assert not judge(gate, run).passed


def test_an_imported_run_is_refused_without_a_look_at_samples_it_never_had() -> None:
    run = run_of()
    change_header(mode="averages")(run)
    for row in run.rows:
        row.samples = {}
    assert "imported" in judge(gate_for(run_of()), run).in_short()


# --- The file -------------------------------------------------------------------------------------


def test_a_gate_comes_back_from_its_file(tmp_path: Path) -> None:
    gate = gate_for(run_of(), plugin_sha256="ab", nodes=1, mode="back-to-back", channels=2)
    path = tmp_path / "g.toml"
    path.write_text(gate_text(gate, ["a comment"]))
    assert read_gate(str(path)) == gate


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "no table [gate]"),
        (HEAD, "no [[limit]]"),
        (HEAD + LIMIT + LIMIT, "twice"),
        (HEAD + LIMIT.replace("1.0", "nan"), "finite"),
        (HEAD + LIMIT.replace("1.0", "inf"), "finite"),
        (HEAD + LIMIT.replace("1.0", "0"), "above 0"),
        (HEAD + LIMIT.replace("1.0", "true"), "above 0"),
        (HEAD + LIMIT.replace("busbw_min = 1.0", ""), "bounds nothing"),
        (HEAD + LIMIT.replace("busbw_min", "bandwidth"), "bandwidth is unknown"),
        (HEAD + LIMIT.replace('"1K"', '"1KB"'), "1KB is ambiguous"),
        (HEAD + LIMIT.replace('memory = "host"\n', ""), "no memory"),
        (HEAD.replace('plugin = "p"\n', "") + LIMIT, "no plugin"),
        (HEAD.replace("ranks = 4", "ranks = 0") + LIMIT, "ranks (0)"),
        (HEAD + "colour = 1\n" + LIMIT, "colour is unknown"),
        (HEAD + LIMIT + "[other]\n", "other is unknown"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path: Path, text: str, part: str) -> None:
    path = tmp_path / "g.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"g\.toml") as refused:
        read_gate(str(path))
    assert part in str(refused.value)
    assert "\n" not in str(refused.value)


# --- Before a run ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"pattern": "mesh"}, "no limit for mesh, only for ring"),
        ({"ranks": "2"}, "holds for 4 ranks, not for 2"),
        ({"blocking": "1"}, "holds for back-to-back iterations, not for synchronised ones"),
        ({"memory": "emulated"}, "no limit for ring in emulated memory, only in host"),
        ({"check": "0"}, "checked bytes only"),
        ({"sizes": "1K,2K"}, "add --sizes 4K"),
    ],
)
def test_a_run_that_would_fail_for_certain_is_refused(given: dict[str, str], part: str) -> None:
    whole = {"pattern": "ring", "sizes": "1K,2K,4K", "ranks": "4", "memory": "host"}
    gate = gate_for(run_of(), mode="back-to-back")

    def refuse(**changes: str) -> None:
        settings = load_settings({**whole, **changes}, {})
        require_judgeable(gate, settings, settings.ranks)

    refuse()
    refuse(memory="auto")
    with pytest.raises(UsageError, match=re.escape(part)):
        refuse(**given)


# --- Calibration ----------------------------------------------------------------------------------


def launches(count: int, seed: int = 1, spread: float = 0.03) -> list[Run]:
    """Launches whose times differ as a whole by a factor that is log-normal."""
    random = np.random.default_rng(seed)
    runs = []
    for number in range(count):
        run = run_of(rows=2)
        run.header.run_id = f"{seed}-{number}"
        for row in run.rows:
            factor = math.exp(spread * random.standard_normal())
            row.samples["iteration"][:] = (row.samples["iteration"] * factor).astype(np.int64)
        runs.append(run)
    return runs


def test_a_calibrated_gate_passes_its_launches_and_fails_a_slow_one() -> None:
    runs = launches(8)
    made = calibrate(runs, 0.01)
    assert len(made.gate.limits) == 2
    assert all(judge(made.gate, run).passed for run in runs)
    slow = launches(1, seed=2)[0]
    slow.rows[1].samples["iteration"][:] *= 2
    assert not judge(made.gate, slow).passed
    assert "8 or more launches" in made.gate.provenance
    assert "0.01 false alarms" in made.gate.provenance
    assert any("0 of 8 launches fail" in text for text in made.comments)


def test_false_alarms_are_as_rare_as_was_asked() -> None:
    """20,000 times: a limit of 6 log-normal launches for 5 % false alarms, and a seventh one."""
    random = np.random.default_rng(7)
    trials, alarms = 20_000, 0
    times = np.exp(0.05 * random.standard_normal((trials, 7)))
    for one in times:
        alarms += one[6] > _slowest_expected_ns(tuple(one[:6]), 0.05)
    # 0.05 but for the rule that no launch seen is beyond it; 4 standard errors are 0.006.
    assert 0.03 < alarms / trials < 0.056


def test_a_limit_that_allows_much_more_than_was_seen_is_called_loose() -> None:
    assert not any("Loose" in comment for comment in calibrate(launches(8), 0.01).comments)
    runs = launches(5)
    runs[2].rows[1].samples["iteration"] *= 3
    (loose,) = (text for text in calibrate(runs, 0.01).comments if "Loose" in text)
    assert re.match(r"Loose: ring, host, 2 KiB may take \d\d x the median launch's time:", loose)


def test_equal_launches_make_a_limit_where_they_are() -> None:
    runs = launches(5, spread=0.0)
    made = calibrate(runs, 0.01)
    busbw = figures_of(runs[0], runs[0].rows[0]).busbw
    assert made.gate.limits[0].value == pytest.approx(busbw, rel=1e-3)
    assert made.gate.limits[0].value <= busbw


def test_calibration_refuses_what_would_make_a_gate_of_nothing() -> None:
    with pytest.raises(UsageError, match="5 or more"):
        calibrate(launches(4), 0.01)
    same = launches(5)
    for run in same:
        run.header.run_id = "one"
    with pytest.raises(UsageError, match="has 1 launches"):
        calibrate(same, 0.01)
    runs = launches(6)
    change_header(plugin_sha256="another")(runs[5])
    with pytest.raises(UsageError, match="plugin_sha256"):
        calibrate(runs, 0.01)
    with pytest.raises(UsageError, match="below"):
        calibrate(launches(6), 0.7)


@pytest.mark.parametrize(
    ("spoil", "part"),
    [
        *((spoil, f"2 KiB: {why}; calibrate from") for spoil, why in ROW_BREAKS.items()),
        (end_early, "is partial: the end of the run"),
        (lose_a_rank, "is partial: samples of row 1"),
        (change_header(unpack="none"), "no bandwidth of its own samples"),
        (change_header(mode="averages"), "no bandwidth of its own samples"),
        (change_header(plugin_name="another"), "plugin is another"),
        (change_header(plugin_sha256="another"), "plugin_sha256 is another"),
        (change_header(mode="synchronised"), "mode is synchronised"),
    ],
)
def test_a_launch_that_would_not_pass_or_is_unlike_is_no_part_of_a_calibration(
    spoil: Callable[[Run], None], part: str
) -> None:
    runs = launches(6)
    spoil(runs[3])
    with pytest.raises(UsageError, match=re.escape(part)):
        calibrate(runs, 0.01)


def test_a_limit_shares_the_false_alarms_with_the_others_and_is_never_below_what_was_seen() -> None:
    runs = launches(8)
    times = tuple(figures_of(run, run.rows[0]).time_ns for run in runs)
    expected = runs[0].rows[0].size_bytes / _slowest_expected_ns(times, 0.01 / 2)
    assert calibrate(runs, 0.01).gate.limits[0].value == pytest.approx(expected, rel=1e-3)
    # Twenty say that one as slow as the slowest of them is seldom; it was seen all the same.
    assert _slowest_expected_ns((100.0,) * 19 + (200.0,), 0.05) == 200


def test_a_launch_counts_by_its_slowest_cycle() -> None:
    runs = [in_two_cycles(3) for _ in range(5)]
    for number, run in enumerate(runs):
        run.header.run_id = str(number)
        run.rows.reverse()
    limit = calibrate(runs, 0.01).gate.limits[0]
    assert limit.value == pytest.approx(figures_of(runs[0], runs[0].rows[0]).busbw, rel=1e-3)


def test_a_limit_of_a_time_is_rounded_up_so_that_its_launches_meet_it() -> None:
    runs = launches(5, spread=0.0)
    for run in runs:
        run.rows[0].size_bytes = 0
        run.header.plan = dataclasses.replace(run.header.plan, sizes=(0, 2048))
    made = calibrate(runs, 0.01)
    assert made.gate.limits[0].bound == "time_us_max"
    assert made.gate.limits[0].value > figures_of(runs[0], runs[0].rows[0]).time_ns / 1e3
    assert all(judge(made.gate, run).passed for run in runs)


def test_launches_that_fail_a_gate_of_the_others_are_counted() -> None:
    runs = launches(12, spread=0.001)
    runs[7].rows[1].samples["iteration"] *= 2
    assert any("1 of 12 launches fail a gate made" in x for x in calibrate(runs, 0.01).comments)


# --- Several launches -----------------------------------------------------------------------------


def several(*factors: float) -> Run:
    """Launches so many times as slow as the sound run."""
    runs = [run_of() for _ in factors]
    for run, factor in zip(runs, factors, strict=True):
        for row in run.rows:
            row.samples["iteration"] = (row.samples["iteration"] * factor).astype(np.int64)
    first, *others = runs
    first.launches, first.launches_planned = others, len(runs)
    return first


@pytest.mark.parametrize(
    ("factors", "passed", "beyond"),
    [
        ((1, 1, 1), True, ()),
        ((1, 2, 1), True, (2,)),
        ((2, 1, 1, 1, 2), True, (1, 5)),
        ((2, 1, 2), False, (1, 3)),
        ((2, 1), False, (1,)),  # of an even number the slower one in the middle
        ((1, 1, 2, 2), False, (3, 4)),
        ((2, 2), False, (1, 2)),
    ],
)
@pytest.mark.parametrize("bound", ["busbw_min", "time_us_max", "p99_us_max"])
def test_the_median_launch_meets_a_limit_or_does_not(
    factors: tuple[float, ...], passed: bool, beyond: tuple[int, ...], bound: str
) -> None:
    run, sound = several(*factors), run_of()
    figures = figures_of(sound, sound.rows[0])
    value = {
        "busbw_min": 0.9 * figures.busbw,
        "time_us_max": figures.time_ns / 900,
        "p99_us_max": figures.p99_ns / 900,
    }[bound]
    limit = Limit("ring", "host", sound.rows[0].size_bytes, bound, value)
    judgement = judge(gate_for(run, limits=(limit,)), run)
    assert judgement.passed is passed
    assert judgement.findings[0].beyond == beyond
    assert judgement.lines()[0].endswith(f"by the median of {len(factors)} launches")
    said = f"({len(beyond)} of {len(factors)} launches beyond: {', '.join(map(str, beyond))})"
    if len(beyond) == len(factors):
        said = "(all launches beyond)"
    assert judgement.lines()[1].endswith(said if beyond else " pass")


@pytest.mark.parametrize("spoil", BREAKS)
@pytest.mark.parametrize("number", [1, 3])
def test_one_launch_that_is_missing_something_or_unlike_fails_all(
    spoil: Callable[[Run], None], number: int
) -> None:
    run = several(1, 1, 1)
    spoil(run.all_launches[number - 1])
    judgement = judge(gate_for(run_of(), share=1e-6), run)
    assert not judgement.passed
    assert judgement.failures()


def test_a_launch_that_is_not_there_fails_and_reasons_are_told_from_the_earliest_on() -> None:
    run = several(1, 1, 1, 1)
    run.launches_planned = 6
    end_with_a_fault(run.launches[2])
    leave_unchecked(run.launches[0])
    leave_unchecked(run.launches[1])
    judgement = judge(gate_for(run_of(), share=1e-6), run)
    place = "ring, host, 2 KiB"
    assert judgement.failures() == [
        f"launches 2, 3: {place}: its bytes were not checked by every rank that receives",
        "launch 4: the file lacks the end of the run: stall (exit code 6)",
        "launch 4: the file lacks rank 0 said: stalled",
        "the file lacks 2 of 6 launches",
    ]
    assert judgement.in_short() == f"{judgement.failures()[0]} (and 3 more)"
    assert judgement.lines()[-1] == (
        "# Gate verdict         : FAILED, 0 of 3 limits met; 4 reasons to fail beside them"
    )


def test_what_all_launches_have_in_common_is_said_once() -> None:
    run = several(1, 1)
    judgement = judge(gate_for(run_of(), plugin="another"), run)
    assert judgement.failures() == ["plugin is softtcpx, the gate holds for another"]


def test_the_median_of_launches_raises_no_more_false_alarms_than_one() -> None:
    """5,000 times: a limit of 6 launches for 5 % false alarms, and the median of 3 or 5 more."""
    random = np.random.default_rng(8)
    trials = 5000
    times = np.exp(0.05 * random.standard_normal((trials, 11)))
    limits = np.array([_slowest_expected_ns(tuple(one[:6]), 0.05) for one in times])
    one, three, five = (
        float(np.mean(np.median(times[:, 6 : 6 + count], axis=1) > limits)) for count in (1, 3, 5)
    )
    assert one == pytest.approx(0.043, abs=0.01)
    assert five < three < one / 2


def test_one_file_of_several_launches_calibrates_as_their_files_do() -> None:
    apart = calibrate(launches(8), 0.01)
    first, *others = launches(8)
    first.launches, first.launches_planned = others, 8
    assert calibrate([first], 0.01) == apart
