"""No program is started that lies in the current directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tcpx_mpi import _version
from tcpx_mpi.errors import PluginMissing
from tcpx_mpi.launch import mpirun
from tcpx_mpi.programs import find_program

NAMES = ("git", "mpirun", "ssh", "rsh", "false")


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with programs that leave a mark."""
    for place in (tmp_path, tmp_path / "bin"):
        place.mkdir(exist_ok=True)
        for name in NAMES:
            (place / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/started\necho mine\n")
            (place / name).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("path", ["", ":", ".", "bin", ":/nowhere", "/nowhere:", "/nowhere::./bin"])
def test_what_lies_below_the_current_directory_is_no_program(
    path: str, hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [find_program(name, path) for name in NAMES] == [None] * len(NAMES)
    monkeypatch.setenv("PATH", path)
    assert _version.source_state() == ""
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(PluginMissing):
        mpirun.find_mpirun({"PATH": path})
    assert mpirun.settings_without_ssh({"PATH": path})["OMPI_MCA_plm_rsh_agent"] == "/bin/false"
    assert not (hostile / "started").exists()


def test_a_whole_path_beside_an_empty_part_holds(hostile: Path) -> None:
    assert find_program("git", f":{hostile}/bin") == f"{hostile}/bin/git"


def test_the_state_of_the_sources_is_asked_of_gits_own_path(
    hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f":{os.environ['PATH']}")
    _version.source_state()
    assert not (hostile / "started").exists()
