"""softtcpx: what waiting costs, in system calls."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest
from ends import ends_of
from fresh_process import LIMIT_S, OTHER, Line, clean_environment, command_of
from net_v7 import SUCCESS, Memory, Net

IDLE_CONNECTIONS, IDLE_ROUNDS = 100, 1000

pytestmark = pytest.mark.only_softtcpx


def idle_receivers(line: Line) -> None:
    net = Net().started()
    ends = [ends_of(net, Memory(8), Memory(8))[1] for _ in range(IDLE_CONNECTIONS)]
    for end in ends:
        end.post(0, 8)
    os.write(2, b"idle from here\n")
    for _ in range(IDLE_ROUNDS):
        for end in ends:
            assert net.test(end.pending[0]) == (SUCCESS, False)
    os.write(2, b"idle until here\n")


def test_a_round_over_100_idle_connections_costs_about_one_system_call() -> None:
    strace = shutil.which("strace")
    if strace is None or subprocess.run([strace, "-qq", "true"], capture_output=True).returncode:
        pytest.skip("needs strace: system calls are counted with it")
    result = subprocess.run(
        [
            strace,
            "-f",
            "-e",
            "trace=network,read,readv,epoll_wait",
            *command_of(idle_receivers, OTHER),
        ],
        env=clean_environment({}),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    between = re.search(r"idle from here(.*)idle until here", result.stderr, re.DOTALL)
    assert between is not None
    # A first try of its sockets each, then one question about all of them a round.
    calls = between.group(1).count("\n") - 2 * IDLE_CONNECTIONS
    assert IDLE_ROUNDS / 2 < calls < 1.1 * IDLE_ROUNDS, f"{calls} system calls"
