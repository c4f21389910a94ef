"""Ranks and probes import nothing from the directory that a run is started in."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile_directory import BIN, fill, ran, require_untouched
from jobs import clean_environment, mpirun
from variants import variant

from tcpx_mpi.launch.library import mpi_library

SMALL = ("--plugin", "softtcpx", "-b", "8", "-e", "8", "-n", "2", "--hdf5", "none")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A directory with files of the names of modules."""
    return fill(tmp_path)


@pytest.mark.multirank
@pytest.mark.parametrize(
    "start",
    [
        variant(lambda: [str(BIN / "tcpx-mpi"), "run", "ring", *SMALL, "--ranks", "2"]),
        lambda: mpirun(2, "run", "ring", *SMALL),
    ],
    ids=["script --ranks", "mpirun -m"],
)
def test_ranks_import_nothing_from_the_current_directory(
    start: Callable[[], list[str]], hostile: Path
) -> None:
    ran(start(), hostile)


@pytest.mark.multirank
def test_probes_of_preflight_import_nothing_from_the_current_directory(hostile: Path) -> None:
    command = [str(BIN / "tcpx-mpi"), "preflight", "--plugin", "softtcpx"]
    done = subprocess.run(
        command, cwd=hostile, env=clean_environment({}), text=True, timeout=100,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    require_untouched(hostile)
    assert "MPI library" in done.stdout


@pytest.mark.multirank
def test_the_mpi_library_is_asked_without_the_current_directory(
    hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(hostile)
    version, problem = mpi_library()
    require_untouched(hostile)
    assert version, problem
