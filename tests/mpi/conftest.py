"""Fixtures of the tests that start mpirun."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "cluster"))  # for nodes and launcher

from tcpx_mpi import launch
from tcpx_mpi.errors import PluginMissing


@pytest.fixture(autouse=True)
def _mpirun() -> None:
    try:
        launch.find_mpirun(os.environ)
    except PluginMissing as error:
        pytest.skip(f"needs mpi: {error}")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory to run in, with one for the journals in it; nothing else may be written to."""
    (tmp_path / "spool").mkdir()
    return tmp_path
