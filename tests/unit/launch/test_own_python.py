"""Nothing that lies in the current directory is imported, however this program is started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hostile_directory import BIN, fill, ran

from tcpx_mpi.launch.own_python import code_command, module_command, without_here


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A directory with files of the names of modules."""
    return fill(tmp_path)


@pytest.mark.parametrize(
    "start",
    [
        [str(BIN / "tcpx-mpi")],
        [sys.executable, "-m", "tcpx_mpi"],
        [sys.executable, "-mtcpx_mpi"],
        [sys.executable, "-I", "-m", "tcpx_mpi"],
        module_command("tcpx_mpi"),
        module_command("tcpx_mpi", version=(3, 10)),
    ],
    ids=["script", "-m", "-mNAME", "-I -m", "ours", "ours before 3.11"],
)
def test_a_command_imports_nothing_from_the_current_directory(
    start: list[str], hostile: Path
) -> None:
    assert "softtcpx" in ran([*start, "plugins", "--plugin", "softtcpx"], hostile)


@pytest.mark.parametrize("version", [(3, 10), sys.version_info[:2]])
def test_code_of_ours_imports_nothing_from_the_current_directory(
    version: tuple[int, ...], hostile: Path
) -> None:
    assert ran(code_command("import random; print(random.choice('x'))", version), hostile) == "x\n"


def test_arguments_of_a_module_are_its_own(hostile: Path) -> None:
    for version in ((3, 10), (3, 11)):
        said = ran(module_command("tcpx_mpi", ["run", "--help"], version), hostile)
        assert "PATTERN" in said


def test_an_empty_part_of_pythonpath_is_no_directory() -> None:
    assert without_here({"PYTHONPATH": ":/a::/b:", "X": ""}) == {"PYTHONPATH": "/a:/b", "X": ""}
    assert without_here({"X": "1"}) == {"X": "1"}


def test_a_program_that_imports_us_keeps_its_own_directory(hostile: Path) -> None:
    (hostile / "other.py").write_text("import tcpx_mpi, sys, own; print(own.x)\n")
    (hostile / "own.py").write_text("x = 'own'\n")
    for command in ([sys.executable, "-m", "other"], [sys.executable, "other.py"]):
        done = subprocess.run(
            command, cwd=hostile, env={**os.environ}, text=True, capture_output=True, timeout=60
        )
        assert done.stdout == "own\n", done.stderr
