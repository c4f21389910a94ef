"""Fixtures of the tests with two nodes: a cluster of each test's own, and mpirun on it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
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
