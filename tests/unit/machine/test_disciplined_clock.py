"""What chrony and ptp4l say of a node's clock, in their own words."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tcpx_mpi.machine.disciplined_clock import chrony_bound_ns, ptp_bound_ns, word

TRACKING = (
    "50484330,PHC0,1,1732600000.1,-0.000000151,0.000000020,0.000000100,-12.345,0.001,0.010,"
    "0.000010000,0.000002000,8.0,Normal\n"
)
PMC = """sending: GET TIME_STATUS_NP
	90e2ba.fffe.20c7f8-1 seq 0 RESPONSE MANAGEMENT TIME_STATUS_NP
		master_offset              -27
		gmPresent                  true
		gmIdentity                 001d7f.fffe.809ac3
sending: GET CURRENT_DATA_SET
	90e2ba.fffe.20c7f8-1 seq 1 RESPONSE MANAGEMENT CURRENT_DATA_SET
		stepsRemoved     1
		offsetFromMaster -27.0
		meanPathDelay    1853.0
"""


def test_the_bound_of_chrony_is_that_of_ntp() -> None:
    assert chrony_bound_ns(TRACKING) == 151 + 5_000 + 2_000


@pytest.mark.parametrize(
    "text",
    ["", "506 Cannot talk to daemon\n", TRACKING.replace("Normal", "Not synchronised"),
     TRACKING.replace("-0.000000151", "soon"), TRACKING.replace(",8.0", "")],
)  # fmt: skip
def test_chrony_that_knows_no_time_has_no_word(text: str) -> None:
    assert chrony_bound_ns(text) is None


def test_the_bound_of_ptp_is_half_of_its_round_trip() -> None:
    assert ptp_bound_ns(PMC) == ("001d7f.fffe.809ac3", 1_880)
    assert ptp_bound_ns(PMC.replace("true", "false")) is None
    assert ptp_bound_ns(PMC.replace("meanPathDelay", "meanPath")) is None


def test_the_word_is_that_of_the_program_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert word() is None
    chronyc = tmp_path / "chronyc"
    chronyc.write_text(f"#!/bin/sh\n[ \"$*\" = '-c tracking' ] && printf '{TRACKING.strip()}'\n")
    chronyc.chmod(0o755)
    before = time.time_ns() - time.monotonic_ns()
    found = word()
    assert found is not None
    assert (found.name, found.of) == ("chrony", "UTC")
    assert abs(found.ahead_ns - before) < 1_000_000
    assert 7_151 < found.bound_ns < 1_000_000
    chronyc.write_text("#!/bin/sh\nexit 1\n")
    assert word() is None
