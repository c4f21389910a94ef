"""What a rank says while its mpirun ends all: beside the pipe that mpirun reads no more."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SAYS = "from tcpx_mpi.run import last_words; last_words.say('gone', {ending})"


@pytest.mark.parametrize(
    ("launcher", "ending", "directly"),
    [("mpirun", True, True), ("prterun", True, True), ("mpirun", False, False),
     ("srun", True, False)],
)  # fmt: skip
def test_who_has_seen_a_rank_die_says_so_where_mpirun_itself_speaks(
    launcher: str, ending: bool, directly: bool, tmp_path: Path
) -> None:
    program = shutil.copy("/bin/bash", tmp_path / launcher)
    own, piped = tmp_path / "own", tmp_path / "piped"
    own.write_text("mpirun's banner\n")
    command = [str(program), "-c", '"$@" 2>piped; true', "-", sys.executable, "-c"]
    with open(own, "a") as errors:
        subprocess.run(
            [*command, SAYS.format(ending=ending)], cwd=tmp_path, stderr=errors, check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
    said = "gone\n"
    assert own.read_text() == "mpirun's banner\n" + (said if directly else "")
    assert piped.read_text() == ("" if directly else said)


REFUSED = "from tcpx_mpi.run import last_words; last_words._SHARES = False;"


@pytest.mark.parametrize(
    ("first", "mode", "own", "piped"),
    [
        pytest.param(
            "",
            "w",
            "gone\nbanner\n",
            "",
            id="the same open file",
            # A security module of the kernel lets root alone take a parent's descriptor.
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="Yama may refuse a parent's files"),
        ),
        pytest.param(REFUSED, "a", "gone\nbanner\n", "", id="refused, for appending"),
        # The banner may be written over it: then it is in the pipe, too.
        pytest.param(REFUSED, "w", "banner\n", "gone\n", id="refused, at a place of its own"),
    ],
)
def test_mpirun_does_not_write_over_it(
    first: str, mode: str, own: str, piped: str, tmp_path: Path
) -> None:
    program = shutil.copy("/bin/bash", tmp_path / "mpirun")
    command = [str(program), "-c", '"$@" 2>piped; echo banner >&2', "-", sys.executable, "-c"]
    with open(tmp_path / "own", mode) as errors:
        subprocess.run(
            [*command, first + SAYS.format(ending=True)], cwd=tmp_path, stderr=errors, check=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
    assert (tmp_path / "own").read_text() == own
    assert (tmp_path / "piped").read_text() == piped
