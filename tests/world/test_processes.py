"""The state of a rank's process, as the kernel has it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

from tcpx_mpi.world.processes import state_of


def test_a_process_is_gone_when_it_is_a_zombie_and_when_it_is_buried() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert state_of(child.pid) == ""
    child.wait()
    assert state_of(child.pid) == ""


def test_who_has_no_descriptor_left_does_not_take_a_process_for_gone() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        state = state_of(os.getpid())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert state == "?"
