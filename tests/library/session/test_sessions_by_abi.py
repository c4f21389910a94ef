"""Sessions over several versions of a plugin's table: how often it is initialised, and ended."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from variants import variant

#: Two sessions of one process that meet each other, twice.
BODY = """
import os, sys, threading
import numpy as np
from tcpx_mpi import Session

def together(*calls):
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads: thread.start()
    for thread in threads: thread.join()

def exchange(abi):
    a, b = (Session(plugin="softtcpx", abi=abi, channels=2) for _ in range(2))
    there, here = a.listen(), b.listen()
    a.load_remote_conn_info(here)
    b.load_remote_conn_info(there)
    together(a.establish, b.establish)
    source = np.arange(300_001, dtype=np.uint32).view(np.uint8)
    target = np.zeros_like(source)
    def send():
        with a.create_transfer() as t:
            t.post_send(a.register_memory(source))
            t.wait()
    def receive():
        with b.create_transfer() as t:
            t.post_recv(b.register_memory(target))
            t.wait()
    together(send, receive)
    a.close()
    b.close()
    return bool((source == target).all())

abi = int(sys.argv[1])
results = [exchange(abi)]
before = len(os.listdir("/proc/self/fd"))
results.append(exchange(abi))
print(*results, len(os.listdir("/proc/self/fd")) - before)
"""


@pytest.mark.parametrize("abi", [6, variant(9), variant(11), 12])
def test_sessions_come_and_go_in_one_process(abi: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BODY, str(abi)], capture_output=True, text=True, timeout=60,
        env=os.environ | {"NCCL_SOCKET_IFNAME": "lo"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "True", "0"]
