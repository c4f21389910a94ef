"""`tcpx-mpi selftest` by real ranks, and rows that measure the tool itself."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from jobs import run, tcpx_mpi

from tcpx_mpi.records import read_run

pytestmark = pytest.mark.multirank

SHORT = {"PYTHONPATH": str(Path(__file__).parent / "short_ceilings")}


def test_every_figure_is_printed_and_kept(place: Path) -> None:
    result = run(tcpx_mpi("selftest", "--output", "s.json"), place, SHORT)
    assert result.code == 0, result.text
    kept = json.loads((place / "s.json").read_text())
    assert kept["ranks"] == 2
    assert all(value > 0 and math.isfinite(value) for value in kept["own"].values())
    assert len(kept["barrier_skew_ns"]) == 200
    # Two processes never leave 200 barriers in the same nanosecond each.
    assert min(kept["barrier_skew_ns"]) >= 0 < max(kept["barrier_skew_ns"])
    assert len(kept["quiet"]) == 2
    for rank in kept["quiet"]:
        assert 0 <= rank["lost_share"] <= 1
        assert (rank["longest_ns"] > 0) == (rank["interruptions"] > 0) == (rank["lost_share"] > 0)
        assert rank["noise"] >= 0
        assert rank["piece_ns"] > 0
        assert rank["steal_share"] is None or 0 <= rank["steal_share"] <= 1
    # What is on the screen is in the file, but for the file's own name, and is what was measured.
    lines = kept["lines"]
    assert result.out.splitlines()[:-1] == lines
    own, quiet = kept["own"], kept["quiet"]
    noisiest = max(range(2), key=lambda number: quiet[number]["noise"])
    for text in (
        f"{own['clock_ns']:.1f} ns a call, steps of {own['clock_step_ns']} ns",
        f"{own['chunk_ns']:.1f} ns a chunk",
        f"{np.median(kept['barrier_skew_ns']) / 1e3:.1f} us, p95 ",
        f"{100 * max(rank['lost_share'] for rank in quiet):.2f} % of a CPU's time, the longest ",
        f"{100 * quiet[noisiest]['noise']:.2f} % (pieces of 1 ms, p95 over the fastest; rank "
        f"{noisiest})",
        "raw TCP stream",  # of the ceilings
    ):
        assert any(text in line for line in lines), text


def test_a_file_that_cannot_be_written_is_refused_before_anything_is_measured(place: Path) -> None:
    result = run(tcpx_mpi("selftest", "--output", "nowhere/s.json"), place)
    assert result.code == 2
    assert "--output" in result.err
    assert result.out == ""


@pytest.mark.variant
def test_a_row_that_measures_the_tool_is_marked(place: Path) -> None:
    """Over a plugin that completes at once all time is the tool's own."""
    arguments = ("run", "pair", "--ranks", "2", "--sizes", "64M", "--chunk", "4K", "-c", "0",
                 "--spool", ".")  # fmt: skip
    # So many that a turn of the scheduler is little beside them.
    null = run(tcpx_mpi(*arguments, "-n", "1000", "--plugin", "null", "--hdf5", "n.h5"), place)
    assert null.code == 0, null.text
    assert "# Below resolution     : the tool's own loop and clock have more" in null.out
    few = ("-n", "4", "-w", "1")
    real = run(tcpx_mpi(*arguments, *few, "--plugin", "softtcpx", "--hdf5", "r.h5"), place)
    assert real.code == 0, real.text
    assert "Below resolution" not in real.out
    for name in ("n.h5", "r.h5"):
        facts = read_run(str(place / name)).header.facts
        assert float(facts["own_chunk_ns"]) > 0
        assert float(facts["own_clock_ns"]) > 0
