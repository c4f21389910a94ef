"""The jobs of these tests: what of a run that did not come up they try again."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import MPIRUN_FAILED, run, started

#: Fails as mpirun does now and then, so many times.
FAILING = f"""\
echo started >> count
if [ $(wc -l < count) -le $1 ]; then
  echo "{MPIRUN_FAILED}" >&2
  exit 213
fi
echo well
"""


def test_a_job_is_started_again_where_mpirun_did_not_come_up(place: Path) -> None:
    with started(["sh", "-c", FAILING, "sh", "1"], place) as job:
        job.wait_for("^well$")
        result = job.finish()
    assert (result.code, result.out, result.err) == (0, "well\n", "")


def test_a_job_that_fails_so_twice_has_failed(place: Path) -> None:
    assert run(["sh", "-c", FAILING, "sh", "2"], place).code == 213
    with started(["sh", "-c", FAILING, "sh", "5"], place) as job, pytest.raises(AssertionError):
        job.wait_for("^well$")
    assert (place / "count").read_text() == "started\n" * 4
