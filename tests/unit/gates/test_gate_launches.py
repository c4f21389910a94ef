"""One verdict over several launches: the median one is judged, and all must be there and sound."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from gates_by_hand import (
    BREAKS,
    end_with_a_fault,
    gate_for,
    leave_unchecked,
    run_of,
)

from tcpx_mpi.gates import Limit, judge
from tcpx_mpi.gates.calibrate import _worst_expected
from tcpx_mpi.gates.figures import figures_of
from tcpx_mpi.records import Run


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
    assert judgement.limits[0][1].beyond == beyond
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
    limits = np.array([_worst_expected(tuple(one[:6]), 0.05) for one in times])
    one, three, five = (
        float(np.mean(np.median(times[:, 6 : 6 + count], axis=1) > limits)) for count in (1, 3, 5)
    )
    assert one == pytest.approx(0.043, abs=0.01)
    assert five < three < one / 2
