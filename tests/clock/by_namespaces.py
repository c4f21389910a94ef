"""Clocks of two nodes that are days apart by the kernel's own namespaces, and lie beside that:
what `CommonClock` finds, by real ranks and a relay that is slow one way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tcpx_mpi.launch import mpirun as launch

RANKS = Path(__file__).parent / "clock_ranks.py"
DAYS_S = 3 * 86_400
TRIES = int(os.environ.get("TIMES", "100"))
DRIFT_S = 60


def found_by(*parts: tuple[int, int], words: tuple[str, ...]) -> dict[str, Any]:
    """What rank 0 says; a part of the ranks is their number, and how far their clock is ahead."""
    command = [launch.find_mpirun(os.environ), "--oversubscribe"]
    for ranks, ahead_s in parts:
        own = ["unshare", "--fork", "--time", f"--monotonic={ahead_s}", f"--boottime={ahead_s}"]
        command += ["-n", str(ranks), *(own if ahead_s else []), sys.executable, str(RANKS), *words]
        command.append(":")
    environ = launch.mpirun_environment(os.environ, is_root=os.geteuid() == 0)
    done = subprocess.run(
        command[:-1], env=environ, capture_output=True, text=True, timeout=550, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(" ".join(words), done.stdout.strip())
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("way", ["question", "answer"])
@pytest.mark.parametrize("delay_us", [0, 100, 5_000])
def test_the_offset_is_within_its_bound_in_all_tries(delay_us: int, way: str) -> None:
    words = ("tries", str(TRIES), str(delay_us * 1000), way, str(DAYS_S))
    found = found_by((1, 0), (1, DAYS_S), (1, 0), words=words)
    assert found["within"] == found["knots"] == 2 * TRIES
    # The asymmetry is in the bound, and it is what the middle of a round trip is wrong by.
    assert found["bound_us"][0] >= delay_us / 2
    assert found["error_us"][1] >= 0.9 * delay_us / 2


def test_a_drift_of_50_ppm_is_followed_for_a_minute() -> None:
    found = found_by((1, 0), (1, DAYS_S), words=("drift", str(DRIFT_S), str(DAYS_S)))
    assert found["seconds"] > DRIFT_S
    assert found["moved_us"] == 0
    assert found["error_us"] <= found["bound_us"]
    assert abs(found["drift_ppm"] - 50) <= 2 * found["bound_us"] / DRIFT_S
    # It gains 3000 us in the minute, and 50 us in the second that is ahead of the last look.
    assert found["apart_us"] <= 2 * found["bound_us"] + 50


def test_64_clocks_cost_less_than_a_second_of_the_cpus_that_all_share() -> None:
    found = found_by((64, 0), words=("cost",))
    assert found["clocks"] == 64
    assert max(found["cpu_s_of_all"]) / len(os.sched_getaffinity(0)) < 1
