"""The kept runs: as many as promised, nobody named for nothing, and what their times say."""

from __future__ import annotations

from typing import Any

import pytest
import quiet_runs
from quiet_runs import KINDS


@pytest.fixture
def kept() -> list[dict[str, Any]]:
    found = quiet_runs.read(quiet_runs.FILE)
    if not found:
        pytest.skip("needs evidence: `make quiet-runs`, on an idle machine")
    return found


def test_nobody_is_named_for_nothing_and_whoever_is_slow_is(kept: list[dict[str, Any]]) -> None:
    for name, kind in KINDS.items():
        runs = [each for each in kept if each["kind"] == name]
        assert len(runs) >= (5 if kind.wanted else 20), name
        assert all(map(quiet_runs.right, runs)), name


def test_the_kept_names_follow_from_the_kept_times(kept: list[dict[str, Any]]) -> None:
    for each in kept:
        assert quiet_runs.named(KINDS[each["kind"]], each) == each["named"]
        ranks = len(each["nodes"])
        ways = ranks * (ranks - 1) // (1 if each["kind"].startswith("pairs") else 2)
        assert len(each["first"]) == ways


@pytest.mark.parametrize(
    ("kind", "named", "right"),
    [
        ("pairs", [], True),
        ("mesh", [["rank", [1], ["both ways"]]], False),
        ("pairs-slow-rank", [["rank", [2], ["sending"]]], True),
        ("pairs-slow-rank", [], False),
        ("pairs-slow-rank", [["rank", [1], ["sending"]]], False),
        ("pairs-slow-rank", [["link", [2, 1], []], ["rank", [2], ["sending"]]], False),
        ("mesh-slow-rank", [], True),
        ("mesh-slow-rank", [["rank", [1], ["both ways"]]], False),
        ("mesh-slower-rank", [], False),
        ("mesh-slow-nic", [["rank", [3], ["both ways"]]], False),
        ("mesh-slow-nic", [["NIC", [3], ["both ways"]]], True),
    ],
)
def test_one_name_too_many_or_another_one_is_wrong(
    kind: str, named: list[quiet_runs.Name], right: bool
) -> None:
    assert quiet_runs.right({"kind": kind, "named": named}) is right
