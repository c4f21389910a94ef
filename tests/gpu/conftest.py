"""Fixtures of the tests on GPUs; jobs come from tests/mpi, native tests and mutants from theirs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / folder) for folder in ("mpi", "gpu", "native", "mutants")]

import gpus as found  # noqa: E402  # by the path above

from tcpx_mpi import launch  # noqa: E402
from tcpx_mpi.errors import PluginMissing  # noqa: E402


@pytest.fixture(scope="session")
def gpus() -> found.Gpus:
    """The GPUs to test on."""
    return found.find()


@pytest.fixture(autouse=True)
def _mpirun(gpus: found.Gpus) -> None:
    try:
        launch.find_mpirun(os.environ)
    except PluginMissing as error:
        pytest.skip(f"needs mpi: {error}")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory to run in, with one for the journals in it."""
    (tmp_path / "spool").mkdir()
    return tmp_path
