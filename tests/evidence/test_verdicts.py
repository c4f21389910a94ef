"""The kept comparisons: as many as promised, right as often, and what their launches' times say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import verdicts

from tcpx_mpi.stats import CONFIDENCE, compare_launches

SAME: dict[str, Any] = {"kind": "same", "verdict": "same"}
FALSE: dict[str, Any] = {"kind": "same", "verdict": "better"}
FOUND: dict[str, Any] = {"kind": "slower", "verdict": "worse"}
MISSED: dict[str, Any] = {"kind": "slower", "verdict": "inconclusive"}
WRONG: dict[str, Any] = {"kind": "slower", "verdict": "better"}


@pytest.fixture
def kept() -> list[dict[str, Any]]:
    found = verdicts.read(verdicts.FILE)
    if not found:
        pytest.skip("needs evidence: `make evidence`, on an idle machine")
    return found


def test_the_verdicts_of_this_tool_are_right_as_often_as_promised(
    kept: list[dict[str, Any]],
) -> None:
    assert sum(each["kind"] == "same" for each in kept) >= 40
    assert sum(each["kind"] == "slower" for each in kept) >= 10
    assert verdicts.passes(kept)


def test_every_kept_interval_follows_from_the_kept_times(kept: list[dict[str, Any]]) -> None:
    for each in kept:
        first, second = np.array(each["first_us"]), np.array(each["second_us"])
        assert first.size == second.size == 10
        shift = compare_launches(first, second, CONFIDENCE, paired=True)
        expected = (each["ratio"], each["ci_low"], each["ci_high"])
        found = (shift.ratio.estimate, shift.ratio.low, shift.ratio.high)
        assert found == pytest.approx(expected, abs=1e-3)  # times are kept to a nanosecond


@pytest.mark.parametrize(
    ("kept", "passes"),
    [
        ([SAME] * 36 + [FALSE] * 4 + [FOUND] * 8 + [MISSED] * 2, True),
        ([SAME] * 35 + [FALSE] * 5 + [FOUND] * 10, False),
        ([SAME] * 40 + [FOUND] * 7 + [MISSED] * 3, False),
        ([SAME] * 40 + [FOUND] * 7 + [WRONG] * 3, False),
    ],
)
def test_the_limits_are_four_of_forty_and_eight_of_ten(
    kept: list[dict[str, Any]], passes: bool
) -> None:
    assert verdicts.passes(kept) is passes
