"""Starts the cases of `world_cases.py` under mpirun: one rank's failure fails the test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tcpx_mpi.errors import PluginMissing
from tcpx_mpi.launch import mpirun as launch

RANKS = 3
LIMIT_S = 100


@pytest.mark.multirank
def test_the_collectives_of_the_world_between_real_ranks() -> None:
    try:
        mpirun = launch.find_mpirun(os.environ)
    except PluginMissing as error:
        pytest.skip(f"needs mpi: {error}")
    environ = launch.mpirun_environment(os.environ, is_root=os.geteuid() == 0)
    command = [mpirun, "-n", str(RANKS), sys.executable, "-m", "pytest", "--with-mpi", "-q",
               "-p", "no:cacheprovider", str(Path(__file__).parent / "world_cases.py")]  # fmt: skip
    done = subprocess.run(
        command,
        env={**environ, "TESTS_WORLD_SIZE": str(RANKS)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("31 passed") == RANKS, done.stdout
