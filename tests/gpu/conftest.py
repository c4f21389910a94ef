"""Fixtures of the tests on GPUs."""

from __future__ import annotations

import gpus as found
import pytest


@pytest.fixture
def gpus(request: pytest.FixtureRequest) -> found.Gpus:
    """The GPUs to test on; a test marked `stand_in` runs without real ones, too."""
    return found.find(or_stand_in=request.node.get_closest_marker("stand_in") is not None)
