"""SUITE=tune: by real launches, equal settings recommend nothing and a planted one is found.

TIMES=n tunes of each, WITHIN=30s each; at most one in 20 may be wrong. On a machine that others
use, where a launch takes seconds, give more time.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from jobs import Result, run, tcpx_mpi

pytestmark = [pytest.mark.multirank, pytest.mark.timeout(0)]

TIMES = int(os.environ.get("TIMES", "1"))
WITHIN = os.environ.get("WITHIN", "30s")
RUN = ("ring", "--ranks", "2", "--plugin", "softtcpx", "--sizes", "4K", "-n", "10",
       "--check-memory", "1M", "--memory", "host", "--spool", "spool")  # fmt: skip
#: Read by nobody.
EQUAL = "[environment]\nSOFTTCPX_SEED = [2, 3, 4]\n"
#: A message takes 20 ms, but for one value.
PLANTED = "[environment]\nSOFTTCPX_TRAP_SLOW_US = [20000, 19000, 0]\n"


def tune(place: Path, space: str, number: int, **variables: str) -> tuple[Result, dict[str, Any]]:
    (place / "s.toml").write_text(space)
    files = ("--out", f"{number}.h5", "--json", f"{number}.json")
    command = tcpx_mpi("tune", *RUN, "--space", "s.toml", "--within", WITHIN, *files)
    result = run(command, place, variables, limit_s=1200)
    assert result.code in (0, 11), result.text
    return result, json.loads((place / f"{number}.json").read_text())


def test_equal_settings_recommend_nothing(place: Path) -> None:
    found = [tune(place, EQUAL, number)[1]["compromise"] for number in range(TIMES)]
    assert sum(each is not None for each in found) <= TIMES // 20, found


def test_a_planted_better_setting_is_found(place: Path) -> None:
    best = {"run": {}, "environment": {"SOFTTCPX_TRAP_SLOW_US": "0"}}
    slow = {"SOFTTCPX_TRAP_SLOW_US": "20000"}
    tuned = [tune(place, PLANTED, number, **slow) for number in range(TIMES)]
    missed = [result.text for result, each in tuned if each["compromise"] != best]
    assert len(missed) <= TIMES // 20, missed[0]
