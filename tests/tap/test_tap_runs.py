"""Runs of several ranks through the tap: what its files say is what was sent."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from jobs import run, tcpx_mpi
from tap_files import bundled
from variants import variant

from tcpx_mpi.tap.file import files_of, read_tap
from tcpx_mpi.tap.joined import read_job
from tcpx_mpi.tap.ways import matched

pytestmark = pytest.mark.multirank

RANKS = 3
WAYS = {
    "ring": {(rank, (rank + 1) % RANKS) for rank in range(RANKS)},
    "alltoall": set(itertools.permutations(range(RANKS), 2)),
}


@pytest.mark.parametrize(("pattern", "through"), [
    ("ring", "tap"), variant("alltoall", "tap"),
])  # fmt: skip
def test_the_files_have_every_way_its_bytes_and_their_order(
    pattern: str, through: str, place: Path
) -> None:
    environ = {"TCPX_TAP_PLUGIN": "softtcpx", "TCPX_TAP_DIR": str(place / "taps")}
    command = tcpx_mpi("run", pattern, "--ranks", str(RANKS), "--plugin", through, "--sizes",
                       "24K,3M", "-n", "4", "--channels", "2", "--hdf5", "none")  # fmt: skip
    result = run(command, place, environ)
    assert result.code == 0, result.text
    assert "# Out of bounds values : 0 OK" in result.text

    told = run(tcpx_mpi("tap", str(place / "taps"), "--json"), place)
    assert told.code == 0, told.text
    found = json.loads(told.out)
    ways = {(int(way["sender"][5:]), int(way["receiver"][5:])): way for way in found["ways"]}
    assert set(ways) == WAYS[pattern]
    assert len({way["bytes"] for way in ways.values()}) == 1
    assert all(way["comms"] == 2 and way["not_done"] == 0 for way in ways.values())
    assert (found["unpaired"], [file["lost"] for file in found["files"]]) == (0, [0] * RANKS)

    job = read_job(files_of([str(place / "taps")]))
    for link in range(len(job.links)):
        sent, received = matched(job, link)
        assert np.array_equal(sent["bytes"], received["bytes"])
        assert (received["done_ns"] > sent["posted_ns"]).all()


def test_a_full_file_has_its_last_word_however_many_comms_are_closed_behind_it(place: Path) -> None:
    environ = {"TCPX_TAP_PLUGIN": "softtcpx", "TCPX_TAP_DIR": str(place / "taps"),
               "TCPX_TAP_FILES": "8K"}  # fmt: skip
    command = tcpx_mpi("run", "ring", "--ranks", "2", "--plugin", "tap", "--sizes", "1M", "-n", "4",
                       "--chunk", "16K", "--channels", "24", "--hdf5", "none")  # fmt: skip
    result = run(command, place, environ)
    assert result.code == 0, result.text
    files = [read_tap(path) for path in files_of([str(place / "taps")])]
    # Two a chunk at either end; warm-up, too.
    assert [len(file.records) + file.lost for file in files] == [2 * 2 * 5 * 64] * 2
    assert all(file.lost > 0 for file in files)
    told = run(tcpx_mpi("tap", str(place / "taps")), place)
    assert f"{files[0].lost} records of rank {files[0].rank} are not there" in told.out


def test_a_fault_of_the_tap_ends_a_run_with_its_code_and_words(place: Path) -> None:
    environ = {
        "TCPX_TAP_PLUGIN": str(bundled("softtcpx")),
        "TCPX_TAP_FAULT": "error=6,call=isend,at=40,rank=1",
    }
    command = tcpx_mpi("run", "ring", "--ranks", "2", "--plugin", "tap", "--sizes", "1M", "-n",
                       "50", "--hdf5", "none")  # fmt: skip
    result = run(command, place, environ)
    assert result.code == 7, result.text
    assert "isend returned 6 (remote error)" in result.text
