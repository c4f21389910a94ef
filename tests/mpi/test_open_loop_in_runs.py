"""Runs that begin their iterations by the clock."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import numpy as np
import pytest
from jobs import run, tcpx_mpi

from tcpx_mpi.records import read_run

pytestmark = pytest.mark.multirank

RATES, ITERS = (400, 2000), 30
BASE = ("--ranks", "2", "--plugin", "softtcpx", "--sizes", "64", "--hdf5", "o.h5", "--spool", ".")


def test_no_iteration_ends_before_its_instant_and_each_rate_has_rows(place: Path) -> None:
    options = ("--rate", "400,2000", "-n", str(ITERS), "-J", "o.json")
    result = run(tcpx_mpi("run", "pingpong", *BASE, *options), place)
    assert result.code == 0, result.text
    assert "# Timing: open loop: iterations are begun by the clock" in result.out
    assert "from the intended start" in result.out
    rows = read_run(str(place / "o.h5")).rows
    assert [row.rate_per_s for row in rows] == [*RATES]
    for row in rows:
        assert row.wrong.tolist() == [0, 0]
        within = np.concatenate([np.arange(count) for count in row.batches.tolist()])
        intended = np.repeat(row.batch_start, row.batches, axis=1) + (
            within * 1e9 / row.rate_per_s
        ).astype(np.int64)
        ended = row.samples["start"] + row.samples["iteration"]
        assert (ended[0] > intended[0]).all()
        assert (row.samples["start"][0] + row.samples["receive"][0] > intended[0]).all()
    # JSON and CSV have what the table has.
    results = json.loads((place / "o.json").read_text())["results"]
    told = run(tcpx_mpi("export", "o.h5", "--csv", "--table", "rows", "--output", "-"), place)
    lines = list(csv.DictReader(io.StringIO(told.out)))
    for result_, line, rate in zip(results, lines, RATES, strict=True):
        assert result_["rate_per_s"] == float(line["rate_per_s"]) == rate
        assert result_["offered_mb_per_s"] == float(line["offered_mb_per_s"]) == 64 * rate / 1e6
        assert float(line["open_bound_us"]) == 0
        if result_["achieved_per_s"] == rate:  # a busy machine may not keep up
            assert result_["open_p50_us"] == float(line["open_p50_us"]) > 0


def test_a_rate_that_a_slow_plugin_cannot_keep_is_refused_a_latency(place: Path) -> None:
    # It is done with at most 1000 messages a second.
    options = ("--rate", "10,20000", "-n", "16")
    result = run(tcpx_mpi("run", "pair", *BASE, *options), place, {"SOFTTCPX_TRAP_SLOW_US": "1000"})
    assert result.code == 0, result.text
    (said,) = [line for line in result.out.splitlines() if line.startswith("# Rate ")]
    assert "the ranks do not keep up with --rate" in said
    assert "of 20000 a second): use a lower rate" in said
    assert "of 10 a second" not in said
    told = run(tcpx_mpi("export", "o.h5", "--csv", "--table", "rows", "--output", "-"), place)
    slow, fast = csv.DictReader(io.StringIO(told.out))
    assert float(slow["achieved_per_s"]) == 10
    assert 0 < float(slow["open_p50_us"]) < math.inf
    assert float(fast["achieved_per_s"]) < 2000
    assert fast["open_p50_us"] == fast["open_p99_us"] == ""


def test_what_has_no_open_loop_is_one_line_before_anything_starts(place: Path) -> None:
    for options, said in (
        (("ring", "--rate", "100"), "--rate (100) has no ring"),
        (("pair", "--rate", "0"), "--rate (0) is no rate"),
        (("pair", "--rate", "-5"), "--rate (-5) is no rate"),
    ):
        result = run(tcpx_mpi("run", *options, "--ranks", "2"), place)
        assert result.code == 2, result.text
        (line,) = result.errors
        assert said in line
