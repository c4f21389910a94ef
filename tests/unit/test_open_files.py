"""A process that connects may have as many files open as the system lets it."""

from __future__ import annotations

import os
import resource
import subprocess
import sys

import pytest

from tcpx_mpi import open_files

#: Fewer than 40 connections of softtcpx to itself take.
FEW = 100
CONNECT = """
import resource
from tcpx_mpi import Session
with Session(plugin="softtcpx", channels=40) as session:
    session.load_remote_conn_info(session.listen())
    session.establish()
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
print(soft == hard)
"""


def test_a_session_has_more_connections_than_a_shell_allows_files() -> None:
    command = f'ulimit -Sn {FEW} && exec "$0" "$@"'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, "-c", CONNECT], text=True, capture_output=True,
        env={**os.environ, "NCCL_SOCKET_IFNAME": "lo"}, timeout=60,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("True\n", "")


def test_a_limit_that_stays_is_said_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(kind: int, limits: tuple[int, int]) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(resource, "getrlimit", lambda kind: (110, 4096))
    monkeypatch.setattr(resource, "setrlimit", refused)
    open_files.raise_limit()
    assert capsys.readouterr().err == (
        "# warning: the limit of open files stays 110 (ulimit -Sn), 4096 was refused: "
        "[Errno 1] Operation not permitted\n"
    )


def test_nothing_is_changed_where_the_limit_is_as_high_as_it_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (4096, 4096))
    monkeypatch.delattr(resource, "setrlimit")
    open_files.raise_limit()
