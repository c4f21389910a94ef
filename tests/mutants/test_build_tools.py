"""Where the programs that builds need are found."""

from __future__ import annotations

import sys
from pathlib import Path

import build_tools
import pytest


def _program(folder: Path, name: str) -> str:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a Python of its own, without cmake's wheel, in front of an empty PATH."""
    folder = tmp_path / "venv"
    folder.mkdir()
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    monkeypatch.setitem(sys.modules, "cmake", None)  # to import it is an ImportError
    monkeypatch.setenv("PATH", str(tmp_path / "usr"))
    return folder


def test_cmake_is_the_program_of_its_wheel_not_the_script_that_starts_it() -> None:
    wheel = pytest.importorskip("cmake", reason="needs cmake-wheel: a system's cmake is used")
    found = build_tools.find_tool("cmake")
    assert found is not None
    assert Path(found).parent == Path(wheel.CMAKE_BIN_DIR)
    assert Path(found).read_bytes()[:4] == b"\x7fELF"


def test_without_the_wheel_what_lies_beside_python_comes_before_the_path(
    beside: Path, tmp_path: Path
) -> None:
    assert build_tools.find_tool("cmake") is None
    of_the_system = _program(tmp_path / "usr", "cmake")
    assert build_tools.find_tool("cmake") == of_the_system
    of_this_python = _program(beside, "cmake")
    assert build_tools.find_tool("cmake") == of_this_python
