"""A plugin whose accept blocks until the peer has connected: ranks in a circle all come up.

NCCL begins its connects before it accepts, and so such plugins run there.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from jobs import run, tcpx_mpi
from refplugin_build import build
from variants import variant

HERE = Path(__file__).parent
LIMIT_S = 120
CONNECT = ("--connect-timeout", "20")


@pytest.fixture(scope="module")
def blocking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("blocking"), HERE / "blocking.cc")


@pytest.mark.multirank
@pytest.mark.parametrize(
    ("pattern", "ranks", "abi"),
    [
        variant("ring", 2, 6),
        variant("mesh", 3, 9),
        ("alltoall", 4, 6),
        variant("ring", 3, 9),
        variant("mesh", 4, 6),
        variant("pingpong", 2, 6),
        variant("pingpong", 4, 9),
        variant("alltoall", 2, 9),
    ],
)
def test_a_pattern_runs_where_each_rank_accepts_from_one_that_accepts(
    pattern: str, ranks: int, abi: int, blocking: Path, place: Path
) -> None:
    result = run(
        tcpx_mpi(
            "run", pattern, "--ranks", str(ranks), "--plugin", str(blocking), "--abi", str(abi),
            "--sizes", "64K,160K", "-n", "3", "--hdf5", "none", *CONNECT,
        ),
        place,
    )  # fmt: skip
    assert result.code == 0, result.text
    assert "# Out of bounds values : 0 OK" in result.out, result.text
    assert f" ABI v{abi} name blocking " in result.out


@pytest.mark.variant
@pytest.mark.multirank
def test_a_connect_of_two_calls_is_begun_before_the_peer_accepts(
    blocking: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLOCKING_CONNECTS", "2")
    result = run(
        tcpx_mpi(
            "run", "mesh", "--ranks", "3", "--plugin", str(blocking), "--sizes", "100003",
            "-n", "3", "--channels", "3", "--hdf5", "none", *CONNECT,
        ),
        place,
    )  # fmt: skip
    assert result.code == 0, result.text
    assert [row.wrong for row in result.rows] == [0], result.text


@pytest.mark.multirank
def test_smoke_runs_over_it(blocking: Path, place: Path) -> None:
    result = run(tcpx_mpi("smoke", "--ranks", "3", "--plugin", str(blocking), *CONNECT), place)
    assert result.code == 0, result.text
    assert "6 messages: all right" in result.out


@pytest.mark.parametrize(
    ("processes", "abi"), [("3", 6), ("threads", 9), variant("2", 9), variant("threads", 6)]
)
def test_sessions_come_up_around_a_circle(processes: str, abi: int, blocking: Path) -> None:
    script = str(HERE / "circle_of_sessions.py")
    found = subprocess.run(
        [sys.executable, script, str(blocking), str(abi), processes],
        capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip
    assert (found.returncode, found.stderr) == (0, "")
