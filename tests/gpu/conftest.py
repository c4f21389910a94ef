"""Fixtures of the tests on GPUs; jobs come from tests/mpi, native tests and mutants from theirs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / folder) for folder in ("mpi", "gpu", "native", "mutants", "evidence")]

import gpus as found  # noqa: E402  # by the path above

from tcpx_mpi import launch  # noqa: E402
from tcpx_mpi.errors import PluginMissing  # noqa: E402


@pytest.fixture
def gpus(request: pytest.FixtureRequest) -> found.Gpus:
    """The GPUs to test on; a test marked `stand_in` runs without real ones, too."""
    return found.find(or_stand_in=request.node.get_closest_marker("stand_in") is not None)


@pytest.fixture(autouse=True)
def _mpirun() -> None:
    try:
        launch.find_mpirun(os.environ)
    except PluginMissing as error:
        pytest.skip(f"needs mpi: {error}")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory to run in, with one for the journals in it."""
    (tmp_path / "spool").mkdir()
    return tmp_path
