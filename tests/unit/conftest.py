"""What unit tests share."""

from __future__ import annotations

import pytest

from tcpx_mpi.records import mapped_arrays


@pytest.fixture(params=["whole", "in pieces"])
def in_one_and_in_pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test runs as it is, and again with every working copy of a row on disk and in pieces."""
    if request.param == "in pieces":
        monkeypatch.setattr(mapped_arrays, "LARGE_BYTES", 1)
        monkeypatch.setattr(mapped_arrays, "PIECE", 7)
