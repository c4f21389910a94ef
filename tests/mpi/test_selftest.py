"""`tcpx-mpi selftest` by real ranks, and rows that measure the tool itself."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from jobs import run, tcpx_mpi

from tcpx_mpi.records import read_run

pytestmark = pytest.mark.multirank


def test_every_figure_is_printed_and_kept(place: Path) -> None:
    result = run(tcpx_mpi("selftest", "--output", "s.json"), place, limit_s=170)
    assert result.code == 0, result.text
    kept = json.loads((place / "s.json").read_text())
    assert kept["ranks"] == 2
    assert all(value > 0 and math.isfinite(value) for value in kept["own"].values())
    assert len(kept["barrier_skew_ns"]) == 200
    assert min(kept["barrier_skew_ns"]) >= 0
    assert len(kept["quiet"]) == 2
    for rank in kept["quiet"]:
        assert 0 <= rank["lost_share"] <= 1
        assert rank["noise"] >= 0
        assert rank["piece_ns"] > 0
    # The ceilings, too; what is on the screen is in the file, but for the file's own name.
    assert any("raw TCP stream" in line for line in kept["lines"])
    assert result.out.splitlines()[:-1] == kept["lines"]
    again = run(tcpx_mpi("selftest", "--output", "nowhere/s.json"), place)
    assert again.code == 2


def test_a_row_that_measures_the_tool_is_marked(place: Path) -> None:
    """Over a plugin that completes at once all time is the tool's own."""
    arguments = (
        "run",
        "pair",
        "--ranks",
        "2",
        "--sizes",
        "64M",
        "--chunk",
        "4K",
        "-c",
        "0",
        "--spool",
        ".",
    )
    null = run(tcpx_mpi(*arguments, "--plugin", "null", "--hdf5", "n.h5"), place)
    assert null.code == 0, null.text
    assert "# Below resolution     : the tool's own loop and clock have more" in null.out
    real = run(tcpx_mpi(*arguments, "--plugin", "softtcpx", "--hdf5", "r.h5"), place)
    assert real.code == 0, real.text
    assert "Below resolution" not in real.out
    for name in ("n.h5", "r.h5"):
        facts = read_run(str(place / name)).header.facts
        assert float(facts["own_chunk_ns"]) > 0
        assert float(facts["own_clock_ns"]) > 0
