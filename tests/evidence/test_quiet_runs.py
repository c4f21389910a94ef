"""The kept runs: as many as promised, nobody named for nothing, and what their times say."""

from __future__ import annotations

from typing import Any

import pytest
import quiet_runs
from quiet_runs import KINDS

from tcpx_mpi.stragglers.detect import Measured


@pytest.fixture
def kept() -> list[dict[str, Any]]:
    return quiet_runs.read(quiet_runs.FILE)


@pytest.mark.parametrize("name", KINDS)
def test_nobody_is_named_for_nothing_and_whoever_is_slow_is(
    kept: list[dict[str, Any]], name: str
) -> None:
    runs = [each for each in kept if each["kind"] == name]
    assert len(runs) >= KINDS[name].runs(quiet=20, slow=5)
    assert all(map(quiet_runs.right, runs))
    assert quiet_runs.missed_too_often(runs) == []


def test_the_kept_names_follow_from_the_kept_times(kept: list[dict[str, Any]]) -> None:
    for each in kept:
        assert quiet_runs.named(KINDS[each["kind"]], each) == each["named"]
        ranks = len(each["nodes"])
        ways = ranks * (ranks - 1) // (1 if each["kind"].startswith("pairs") else 2)
        assert len(each["first"]) == ways


def test_one_run_of_ten_may_miss_a_slow_rank_in_a_mesh() -> None:
    found = {"kind": "mesh-slow-rank", "named": [["rank", [2], ["both ways"]]]}
    missed = {**found, "named": []}
    assert quiet_runs.missed_too_often([*9 * [found], missed]) == []
    assert quiet_runs.missed_too_often([*8 * [found], *2 * [missed]]) == ["mesh-slow-rank"]
    assert quiet_runs.missed_too_often(10 * [{"kind": "mesh", "named": []}]) == []


def test_quarters_are_kept_and_read_back() -> None:
    ways = {(0, 2): Measured(3.0, 2.0, 4.0, (1.0, 2.0, 3.0, 4.0)), (1, 2): Measured(5.0, 6.0, 7.0)}
    assert quiet_runs.measured_of(quiet_runs.listed(ways)) == ways


@pytest.mark.parametrize(
    ("kind", "named", "right"),
    [
        ("pairs", [], True),
        ("mesh", [["rank", [1], ["both ways"]]], False),
        ("mesh-busy", [["rank", [1], ["both ways"]]], False),
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
