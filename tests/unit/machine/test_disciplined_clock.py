"""What chrony and ptp4l say of a node's clock, in their own words."""

from __future__ import annotations

import os
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
     TRACKING.replace("50484330,PHC0", "7F7F0101,"), TRACKING.replace("-0.000000151", "soon"),
     TRACKING.replace(",8.0", "")],
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


#: Of PTP, which counts from another instant than UTC.
PTP_AHEAD_NS = 37_000_000_000


def device_of(clock: int) -> str:
    """The file of a clock, by the kernel's number for it: not its descriptor, 8 times, and 3."""
    return os.readlink(f"/proc/self/fd/{~(clock >> 3)}")


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a pmc that says that ptp4l follows a master, the only one of programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    asked = "-u -b 0 GET TIME_STATUS_NP GET CURRENT_DATA_SET"
    pmc = folder / "pmc"
    pmc.write_text(f"#!/bin/sh\n[ \"$*\" = '{asked}' ] && echo '{PMC}'\n")
    pmc.chmod(0o755)
    return folder


def test_the_word_of_ptp4l_is_of_the_clock_of_the_nic(programs: Path, tmp_path: Path) -> None:
    read: list[str] = []

    def clock(number: int) -> int:
        read.append(device_of(number))
        return time.monotonic_ns() + PTP_AHEAD_NS

    (tmp_path / "ptp_kvm").touch()  # not one of those that are numbered
    assert word(tmp_path, clock) is None
    (tmp_path / "ptp0").touch()
    found = word(tmp_path, clock)
    assert set(read) == {str(tmp_path / "ptp0")}
    assert found is not None
    assert (found.name, found.of) == ("PTP", "001d7f.fffe.809ac3")
    assert abs(found.ahead_ns - PTP_AHEAD_NS) <= found.bound_ns - 1_880
    # Of two clocks nobody says which one is kept.
    (tmp_path / "ptp1").touch()
    assert word(tmp_path, clock) is None


def test_a_clock_that_cannot_be_read_has_no_word(programs: Path, tmp_path: Path) -> None:
    def refuses(number: int) -> int:
        raise OSError(22, "Invalid argument")

    (tmp_path / "ptp0").touch()
    assert word(tmp_path, refuses) is None
    assert word(tmp_path) is None, "the kernel has no clock behind a plain file"
    held = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
    assert str(tmp_path / "ptp0") not in held


def test_the_better_of_two_words_counts(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "ptp0").touch()
    chronyc = programs / "chronyc"
    chronyc.touch(0o755)
    for better in ("PTP", "chrony"):
        # Seconds more than a read takes, even on a busy machine.
        slow = TRACKING.replace("0.000010000", "9.0") if better == "PTP" else TRACKING
        path = PMC if better == "PTP" else PMC.replace("1853.0", "9e9")
        chronyc.write_text(f"#!/bin/sh\necho '{slow.strip()}'\n")
        (programs / "pmc").write_text(f"#!/bin/sh\necho '{path}'\n")
        found = word(tmp_path, lambda _: time.monotonic_ns() + PTP_AHEAD_NS)
        assert found is not None
        assert found.name == better
        assert found.bound_ns < 10**9
