"""Fixtures of the tests with two processes; jobs come from tests/mpi, the plugin from tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / "mpi"), str(TESTS / "refplugin")]


@pytest.fixture(scope="session")
def refplugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of the second plugin."""
    from refplugin_build import build

    return build(tmp_path_factory.mktemp("refplugin"))
