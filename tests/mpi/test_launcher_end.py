"""A rank whose launcher has ended ends too, also where it waits in a library for ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from jobs import LIMIT_S

pytestmark = pytest.mark.multirank

#: A world of one, that believes to be under a launcher: a real one's end is known to its MPI too.
RANK = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"}
START = """
import ctypes, os, sys, time
from tcpx_mpi import _native, world as mpi
from tcpx_mpi.world import launcher_watch
launcher_watch.LOOK_S, launcher_watch.GRACE_S = 0.01, {grace_s}
_native.install_signal_handlers()
world = mpi.start(_native.stop_signal, os.environ)
print("started", flush=True)
"""
FOR_EVER = """
while True:
    ctypes.CDLL(None).pause()  # as the wait of Open MPI's abort: no signal ends it
"""
IN_GOOD_ORDER = """
while not _native.stop_signal():
    time.sleep(0.001)  # a poll, as a rank's between two batches: the signal only sets a flag
print("in good order", _native.stop_signal(), flush=True)
"""
#: Starts the rank, and ends when a line is sent to it.
LAUNCHER = """
import subprocess, sys
rank = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.DEVNULL)
print(rank.pid, flush=True)
sys.stdin.readline()
"""


def written_after_the_launchers_end(rank: str, place: Path) -> tuple[int, str]:
    """The launcher's process, and all that the rank wrote after its start until its own end."""
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, rank], cwd=place, env={**os.environ, **RANK}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    with launcher:
        assert launcher.stdout
        pid = int(launcher.stdout.readline())
        assert launcher.stdout.readline() == "started\n"
        try:
            said, _ = launcher.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.kill(pid, signal.SIGKILL)
            raise
    return launcher.pid, said


def test_a_rank_that_waits_for_ever_is_ended_with_a_line(place: Path) -> None:
    program = START.format(grace_s=0.1) + FOR_EVER
    launcher, said = written_after_the_launchers_end(program, place)
    assert said.startswith("tcpx-mpi: error: rank 0 on ")
    assert f"its launcher (process {launcher}) has ended, and it did not end" in said


def test_a_rank_that_can_ends_in_good_order_by_sigterm(place: Path) -> None:
    program = START.format(grace_s=3600) + IN_GOOD_ORDER
    _, said = written_after_the_launchers_end(program, place)
    assert said == "in good order 15\n"
