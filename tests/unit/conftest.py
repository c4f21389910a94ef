"""What unit tests share."""

from __future__ import annotations

import pytest

from tcpx_mpi import large


@pytest.fixture(params=["whole", "in pieces"])
def whole_and_in_pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test runs as it is, and again with every working copy of a row on disk and in pieces."""
    if request.param == "in pieces":
        monkeypatch.setattr(large, "LARGE_BYTES", 1)
        monkeypatch.setattr(large, "PIECE", 7)
