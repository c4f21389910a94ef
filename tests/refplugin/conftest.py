"""Fixtures of the tests with the second plugin; they start mpirun as those of tests/mpi do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "mpi"))  # for jobs


@pytest.fixture(scope="session")
def refplugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The path of the second plugin."""
    from refplugin_build import build

    return build(tmp_path_factory.mktemp("refplugin"))
