"""An engine that is slower by a known time has a ratio to raw that is smaller by as much."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from broken_copy import BrokenCopy
from mutations import detected_by

pytestmark = pytest.mark.multirank

SIZE = 1 << 20
#: What the patch adds to every receive: many times what 1 MiB needs over loopback, so that no other
#: load of the machine can hide it.
ADDED_US = 20_000.0
#: Nothing is known of a machine's moods but that they are within this factor.
MOODS = 5.0


def with_raw(copy: BrokenCopy, file: Path) -> dict[str, Any]:
    """The plugin against raw at equal sockets, one message a chunk."""
    command = ["run", "pair", "--ranks", "2", "--plugin", "softtcpx", "--sizes", str(SIZE)]
    command += ["--channels", "1", "--chunk", str(SIZE), "-n", "40", "--against", "raw"]
    command += ["--check-memory", "64M", "--hdf5", "none", "-J", str(file)]
    done = copy.python("-m", "tcpx_mpi", *command)
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(file.read_text())["results"][0]["against"]["raw"]
    return found


@pytest.mark.variant
@pytest.mark.timeout(700)
def test_a_slowed_engine_moves_the_ratio_as_predicted(mpi_copy: BrokenCopy, tmp_path: Path) -> None:
    (patch,) = detected_by("ratio")
    mpi_copy.install()  # a mutant before may be built in still
    sound = with_raw(mpi_copy, tmp_path / "sound.json")
    mpi_copy.apply(patch)
    try:
        mpi_copy.install()
        slowed = with_raw(mpi_copy, tmp_path / "slowed.json")
    finally:
        mpi_copy.revert(patch)
    # Raw's time is that of the same run, when the machine was as busy. The plugin's is as much
    # longer as it was before, and what was added.
    raw_us = SIZE / 1e3 / slowed["theirs_gbps"]
    predicted = raw_us / (raw_us / sound["ratio"] + ADDED_US)
    assert predicted / MOODS < slowed["ratio"] < predicted * MOODS
    assert slowed["ci_high"] < sound["ci_low"]
    assert slowed["ours_gbps"] <= SIZE / 1e3 / ADDED_US, "ours fell, and not only theirs rose"
