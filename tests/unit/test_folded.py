"""Lines on a terminal that is narrower than they are, and in a pipe."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

import pytest

COLUMNS = 50
LINES = ("# Loose: ring, host, 64 KiB, busbw may be 62 x worse than in the median launch",
         "  ring, host, 64 KiB  busbw 0.5779 GB/s, must be >= 0.000839  pass", "short")  # fmt: skip
PATH = f"/{'folder/' * 10}libnccl-net-mine.so"
SCRIPT = f"from tcpx_mpi.folded import show; show({LINES!r})"


def shown_on_terminal(script: str) -> list[str]:
    ours, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
    command = [sys.executable, "-c", script]
    subprocess.run(command, stdout=theirs, check=True, cwd=Path(__file__).parents[2])
    os.close(theirs)
    shown = os.read(ours, 65536).decode().splitlines()
    os.close(ours)
    return shown


def test_what_does_not_fit_goes_on_below_itself_on_a_terminal() -> None:
    shown = shown_on_terminal(SCRIPT)
    assert max(map(len, shown)) <= COLUMNS
    begins = [re.match(r"#? *", line) for line in shown]
    assert [found[0] for found in begins if found] == ["# ", "#     ", "  ", "      ", ""]
    assert " ".join(re.sub(r"^#? *", "", line) for line in shown).split() == (
        " ".join(LINES).replace("# ", "").split()
    )


def test_a_path_that_fits_into_no_line_stays_whole() -> None:
    script = f"from tcpx_mpi.folded import show; show(['->  mine  v7  {PATH}', 'PATH {PATH} x'])"
    shown = shown_on_terminal(script)
    assert [line.strip() for line in shown] == ["->  mine  v7", PATH, "PATH", PATH, "x"]


def test_a_path_that_fits_beside_a_narrower_indent_has_it() -> None:
    path = "/" + "f" * (COLUMNS - 3)
    lines = [f"->  mine  v7  {path}", f"# it would choose {path}"]
    shown = shown_on_terminal(f"from tcpx_mpi.folded import show; show({lines!r})")
    assert shown == ["->  mine  v7", f"  {path}", "# it would choose", f"# {path}"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["topo", "--from", "tests/fixtures/topology/laptop.json"], "interrupts"),
        (["conform", "--explain", "full"], "NCCL_NET_MAX_REQUESTS;"),
        (["report", *["docs/evidence/pair-1MiB.0.h5"] * 2], "(docs/evidence/pair-1MiB.0.h5)"),
    ],
)
def test_what_a_command_shows_fits(arguments: list[str], word: str) -> None:
    shown = shown_on_terminal(f"from tcpx_mpi import cli; cli.main({arguments!r})")
    assert max(map(len, shown)) <= COLUMNS
    assert any(word in line for line in shown)


def test_what_is_said_of_a_trace_fits() -> None:
    arguments = ["report", "docs/evidence/ring.h5", "--trace"]
    shown = shown_on_terminal(f"from tcpx_mpi import cli; cli.main({arguments!r})")
    begin = next(i for i, line in enumerate(shown) if line.startswith("# Trace"))
    assert max(map(len, shown[begin:])) <= COLUMNS


def test_a_pipe_has_whole_lines() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    assert tuple(done.stdout.splitlines()) == LINES
