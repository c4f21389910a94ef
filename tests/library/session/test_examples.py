"""The examples, run as their first lines say."""

from __future__ import annotations

import re
import socket
import sys
from pathlib import Path

import pytest
from jobs import run, started
from variants import variant

EXAMPLES = Path(__file__).parents[3] / "examples"
TWO = [sys.executable, str(EXAMPLES / "two_processes.py")]
ALL_RIGHT = "8000024 bytes there and back: all right\n"


def test_two_processes_joined_by_a_pipe(tmp_path: Path) -> None:
    result = run(TWO, tmp_path)
    assert (result.code, result.out) == (0, ALL_RIGHT), result.text


def test_two_processes_joined_by_tcp_in_either_order_of_starting(tmp_path: Path) -> None:
    with socket.socket() as kept:  # keeps the port from others; a listener may share it
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{kept.getsockname()[1]}"
        with started([*TWO, "connect", address], tmp_path) as other:
            result = run([*TWO, "listen", address], tmp_path)
            assert (result.code, result.out) == (0, ALL_RIGHT), result.text
            assert other.finish().code == 0


def test_what_two_processes_does_not_understand_it_answers_with_its_usage(tmp_path: Path) -> None:
    result = run([*TWO, "listen"], tmp_path)
    assert result.code == 1
    assert "two_processes.py connect 127.0.0.1:5000" in result.err


@pytest.mark.multirank
@pytest.mark.parametrize("ranks", [1, variant(2), 3])
def test_hello_from_each_rank_to_the_next(ranks: int, mpirun_path: str, tmp_path: Path) -> None:
    hello = [mpirun_path, "-n", str(ranks), sys.executable, str(EXAMPLES / "hello.py")]
    result = run(hello, tmp_path)
    assert result.code == 0, result.text
    found = re.findall(r"^rank (\d): 23 bytes from rank (\d): (.*)$", result.out, re.MULTILINE)
    text = "Hello from TCPX client!"
    assert sorted(found) == [(str(r), str((r - 1) % ranks), text) for r in range(ranks)]
