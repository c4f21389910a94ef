"""Fixtures of the tests with two nodes: a cluster of each test's own, and README's mpirun on it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "mpi"))  # for jobs

from launcher import Launcher, cluster_or_skip
from nodes import Cluster


@pytest.fixture
def nodes() -> Iterator[Cluster]:
    """Two nodes of this test's own."""
    with cluster_or_skip() as made:
        yield made


@pytest.fixture
def launcher(nodes: Cluster) -> Launcher:
    return Launcher(nodes)
