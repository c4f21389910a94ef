"""Two processes of a test, `left` and `right`, that meet over a socket of the test's.

A body is Python with `s`, an established Session, and `line`, which carries `send_bytes` and
`recv_bytes` to the other side. What it prints is what the test sees.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
from dataclasses import dataclass

LIMIT_S = 60

_PRELUDE = """
import os, sys
import numpy as np
from multiprocessing.connection import Connection
from tcpx_mpi import Session
from tcpx_mpi.errors import TcpxError

line = Connection(int(sys.argv[1]))
s = Session(plugin=sys.argv[2], channels=2, chunk_bytes=1024, stall_timeout_s=20)
line.send_bytes(s.listen())
s.load_remote_conn_info(line.recv_bytes())
s.establish()

def meet():
    line.send_bytes(b"here")
    line.recv_bytes()

def refusal(call, *arguments):
    try:
        call(*arguments)
    except TcpxError as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("not refused")

def send(array):
    with s.create_transfer() as t:
        t.post_send(s.register_memory(array))
        t.wait()

def receive(array):
    with s.create_transfer() as t:
        t.post_recv(s.register_memory(array))
        t.wait()
"""


@dataclass(frozen=True)
class Side:
    """How one side ended."""

    code: int
    out: str
    err: str


def run_sides(plugin: str, left: str, right: str) -> tuple[Side, Side]:
    """Runs two bodies to their ends; neither is left over."""
    sockets = socket.socketpair()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _PRELUDE + textwrap.dedent(body), str(end.fileno()), plugin],
            pass_fds=[end.fileno()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "NCCL_SOCKET_IFNAME": "lo"},
        )
        for body, end in zip((left, right), sockets, strict=True)
    ]
    for end in sockets:
        end.close()
    try:
        outputs = [process.communicate(timeout=LIMIT_S) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    left_side, right_side = (
        Side(process.returncode, out.strip(), err)
        for process, (out, err) in zip(processes, outputs, strict=True)
    )
    return left_side, right_side
