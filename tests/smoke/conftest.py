"""Fixtures of the tests of `tcpx-mpi smoke`; jobs come from tests/mpi, the plugin from tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tcpx_mpi import launch
from tcpx_mpi.errors import PluginMissing

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / "mpi"), str(TESTS / "refplugin")]


@pytest.fixture(autouse=True)
def _mpirun() -> None:
    try:
        launch.find_mpirun(os.environ)
    except PluginMissing as error:
        pytest.skip(f"needs mpi: {error}")


@pytest.fixture(scope="session")
def refplugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of the second plugin."""
    from refplugin_build import build

    return build(tmp_path_factory.mktemp("refplugin"))
