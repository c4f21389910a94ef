"""Which terminal a person looks at: that of the parent, or of the launcher among the parents."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tcpx_mpi.launch.terminal import TERMINAL_VARIABLE, Terminal, terminal_of_rank, variable_of

#: What a rank sees, into a file.
RANK = """
import sys
from tcpx_mpi.launch.terminal import terminal_of_rank
with open(sys.argv[1], "w") as file:
    file.write(str(terminal_of_rank({})))
"""
#: A launcher, or its proxy, that reads what ranks say.
READER = "subprocess.run(sys.argv[1:], stdout=-1, stderr=-1, check=True)"
#: What only starts something.
STARTER = "subprocess.run(sys.argv[1:], check=True)"


@contextlib.contextmanager
def terminal(columns: int) -> Iterator[int]:
    near, far = pty.openpty()
    fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    try:
        yield far
    finally:
        os.close(near)
        os.close(far)


def seen_by_rank(place: Path, programs: dict[str, str], stdout: int, stderr: int) -> str:
    """What a rank sees below these programs, by name, the one that is started first."""
    command = [sys.executable, "-c", RANK, str(place / "seen")]
    for name, code in reversed(programs.items()):
        script = place / name  # the kernel calls the process by the name of this file
        script.write_text(f"#!{sys.executable}\nimport subprocess, sys\n{code}\n")
        script.chmod(0o755)
        command = [str(script), *command]
    subprocess.run(command, stdout=stdout, stderr=stderr, check=True, timeout=60)
    return (place / "seen").read_text()


@pytest.mark.parametrize("name", ["mpirun", "prterun", "orterun", "mpiexec"])
def test_a_rank_sees_the_terminal_of_its_launcher(name: str, tmp_path: Path) -> None:
    with terminal(97) as far:
        seen = seen_by_rank(tmp_path, {name: READER}, far, far)
    assert seen == str(Terminal(97, shows_table=True))


def test_a_launcher_above_the_one_that_reads_has_the_terminal(tmp_path: Path) -> None:
    programs = {"mpiexec.hydra": STARTER, "hydra_pmi_proxy": READER}
    with terminal(97) as far:
        assert seen_by_rank(tmp_path, programs, far, far) == str(Terminal(97, shows_table=True))


def test_where_the_output_goes_elsewhere_the_standard_error_is_the_terminal(tmp_path: Path) -> None:
    with terminal(97) as far:
        seen = seen_by_rank(tmp_path, {"mpirun": READER}, subprocess.DEVNULL, far)
    assert seen == str(Terminal(97, shows_table=False))


@pytest.mark.parametrize(
    ("programs", "why"),
    [
        ({"script": READER}, "no launcher"),
        ({"mpirun": STARTER, "sh": READER}, "another reads what the rank says"),
    ],
)
def test_a_rank_whose_output_nobody_sees_has_no_terminal(
    programs: dict[str, str], why: str, tmp_path: Path
) -> None:
    with terminal(97) as far:
        assert seen_by_rank(tmp_path, programs, far, far) == "None", why


def test_a_terminal_that_does_not_know_its_size_has_80_columns(tmp_path: Path) -> None:
    with terminal(0) as far:
        seen = seen_by_rank(tmp_path, {"mpirun": READER}, far, far)
    assert seen == str(Terminal(80, shows_table=True))


@pytest.mark.parametrize("place", [None, Terminal(120, True), Terminal(80, False)])
def test_a_rank_knows_what_its_parent_has_told(place: Terminal | None) -> None:
    assert terminal_of_rank({TERMINAL_VARIABLE: variable_of(place)}) == place


@pytest.mark.parametrize("value", ["", "both", "both x", "file 80"])
def test_what_no_parent_says_is_no_terminal(value: str) -> None:
    assert terminal_of_rank({TERMINAL_VARIABLE: value}) is None
