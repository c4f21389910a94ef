"""The sockets of a comm: what we count on is what softtcpx opens, and what TCPX was seen to."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tcpx_mpi.plugin.sockets import data_sockets

#: Connects a session to itself: says how many sockets a comm has, but for its control socket.
COUNT = """
from tcpx_mpi import Session, _native
with Session(plugin="softtcpx", channels=1) as session:
    session.load_remote_conn_info(session.listen())
    session.establish()
    print(len(_native.tcp_socket_inodes()) // 2 - 1)
"""


def variables(sockets: str, threads: str, most: str = "") -> dict[str, str]:
    given = {"NCCL_NSOCKS_PERTHREAD": sockets, "NCCL_SOCKET_NTHREADS": threads,
             "SOFTTCPX_MAX_SOCKETS": most}  # fmt: skip
    return {name: value for name, value in given.items() if value}


#: NCCL_NSOCKS_PERTHREAD, NCCL_SOCKET_NTHREADS -> sockets that were counted on TCPX 3.1.9, or that
#: its rule makes of them: each value alone first, then the product.
LIKE_TCPX = [
    (variables("", ""), 1),
    (variables("2", "4"), 8),
    (variables("4", "3"), 6),  # counted: of each thread 8 / 3
    (variables("8", "2"), 8),  # counted
    (variables("3", "5"), 5),  # counted
    (variables("9", ""), 1),  # counted
    (variables("", "17"), 1),  # counted
    (variables("0x4", ""), 4),  # counted
    (variables("4x", ""), 4),  # counted
    (variables("3", "3"), 6),
    (variables("2", "5"), 5),
    (variables("100", "1"), 1),
    (variables("9", "8"), 8),
    (variables("2", "7"), 7),
    (variables("3", "17"), 3),
    (variables("0", "5"), 5),
    (variables("-2", "-3"), 1),
    (variables("many", ""), 1),
    (variables(" +010", ""), 8),
]


@pytest.mark.parametrize(
    ("environ", "sockets"),
    [
        *LIKE_TCPX,
        (variables("2", "0"), 2),  # no thread: the caller of test
        (variables("1", "9"), 8),  # where TCPX has none
        (variables("4", "5", "16"), 15),
        (variables("16", "", "16"), 16),
        (variables("16", "", "17"), 1),  # beyond its limit, and then beyond that of sockets
    ],
)
def test_sockets_are_counted_as_softtcpx_opens_them(environ: dict[str, str], sockets: int) -> None:
    assert data_sockets("softtcpx_v7", environ) == sockets
    done = subprocess.run(
        [sys.executable, "-c", COUNT], env={**os.environ, "NCCL_SOCKET_IFNAME": "lo", **environ},
        text=True, capture_output=True, check=True,
    )  # fmt: skip
    assert int(done.stdout) == sockets


@pytest.mark.parametrize(
    ("environ", "sockets"),
    [
        *LIKE_TCPX,
        (variables("2", "0"), 2),  # counted: 0 threads are 1
        (variables("1", "9"), 0),  # and nothing ever moves
        (variables("1", "16"), 0),
    ],
)
def test_the_sockets_of_tcpx_go_by_the_same_rule(environ: dict[str, str], sockets: int) -> None:
    assert data_sockets("GPUDirectTCPX_v7", environ) == sockets


def test_the_limit_of_softtcpx_is_not_that_of_tcpx() -> None:
    environ = variables("16", "", "16")
    assert data_sockets("softtcpx_v7", environ) == 16
    assert data_sockets("GPUDirectTCPX_v7", environ) == 1
