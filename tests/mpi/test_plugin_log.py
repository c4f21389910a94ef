"""What of a plugin's log is printed and kept, over softtcpx that logs as much as TCPX."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from jobs import Result, run, tcpx_mpi
from variants import variant

from tcpx_mpi.records import read_run

pytestmark = pytest.mark.multirank

SETUP_FAILED, STALLED = 4, 6
LINE = re.compile(r"# plugin: rank (\d) on \S+ \d\d:\d\d:\d\d\.\d{3} ([A-Z]+) (\w+:\d+) (.*)")


def logged(result: Result) -> list[tuple[str, str, str, str]]:
    """Rank, level, place and text of each line of the plugin."""
    lines = [line for line in result.err.splitlines() if line.startswith("# plugin: ")]
    found = [LINE.fullmatch(line) for line in lines]
    assert all(found), result.text
    return [(m[1], m[2], m[3], m[4]) for m in found if m]


def like_tcpx(place: Path, *options: str, **variables: str) -> Result:
    command = tcpx_mpi("run", "pair", "--ranks", "2", "--plugin", "softtcpx", "--memory", "host",
                       "--sizes", "64K", "-n", "100", "--spool", "spool", *options)  # fmt: skip
    return run(command, place, {"SOFTTCPX_LIKE": "tcpx-3.1.9", **variables})


@pytest.mark.parametrize("stalls", [variant(False), True])
def test_a_warning_that_repeats_is_printed_three_times_then_counted(
    stalls: bool, place: Path
) -> None:
    trap = {"SOFTTCPX_TRAP_LOST_AT": "90", "SOFTTCPX_TRAP_SIDE": "recv"} if stalls else {}
    result = like_tcpx(place, "--hdf5", "none", "--stall-timeout", "1", NCCL_DEBUG="WARN", **trap)
    assert result.code == (STALLED if stalls else 0), result.text
    lines = [line for line in logged(result) if "receive into" in line[3] or "more" in line[3]]
    assert {line[:3] for line in lines} == {("1", "WARN", lines[0][2])}, result.text
    texts = [line[3] for line in lines]
    assert [("receive into" in text) for text in texts[:4]] == [True, True, True, False]
    assert texts[3] == "... 7 more", result.text
    counts = [int(text.split()[1].replace(",", "")) for text in texts[3:]]
    assert counts == sorted(set(counts)), result.text
    assert {str(count + 3).rstrip("0") for count in counts[:-1]} == {"1"}  # the last: at the end


@pytest.mark.parametrize(("subsystems", "shown"), [("NET", True), variant("^INIT,NET", False)])
def test_info_lines_are_those_of_the_subsystems_that_were_asked_for(
    subsystems: str, shown: bool, place: Path
) -> None:
    chosen = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": subsystems}
    result = like_tcpx(place, "--hdf5", "none", **chosen)
    assert result.code == 0, result.text
    texts = [text for _, level, _, text in logged(result) if level == "INFO"]
    assert any("SOFTTCPX_SHUFFLE=1" in text for text in texts) is shown, result.text
    assert bool(texts) is shown, result.text


def test_all_lines_of_init_are_in_the_file(place: Path) -> None:
    assert like_tcpx(place, "--hdf5", "run.h5").code == 0
    said = read_run(str(place / "run.h5")).header.facts["plugin_said"].splitlines()
    assert len(said) >= 40, said
    assert said[0].startswith("a trap is set: SOFTTCPX_LIKE"), said
    assert any(line.startswith("device 0: lo") for line in said), said


def test_a_file_takes_64_kib_of_them(place: Path) -> None:
    assert like_tcpx(place, "--hdf5", "run.h5", SOFTTCPX_TRAP_INIT_LINES="10000").code == 0
    said = read_run(str(place / "run.h5")).header.facts["plugin_said"]
    assert 60_000 < len(said) <= 65_536


def test_the_command_that_preflight_names_shows_why_init_fails(place: Path) -> None:
    result = run(
        tcpx_mpi("smoke", "--ranks", "2", "--plugin", "softtcpx"), place,
        {"SOFTTCPX_LIKE": "tcpx-3.1.9", "NCCL_SOCKET_IFNAME": "nosuch", "UCCL_TCPX_DEBUG": "1"},
    )  # fmt: skip
    assert result.code == SETUP_FAILED, result.text
    warned = {(rank, text) for rank, level, _, text in logged(result) if level == "WARN"}
    assert {("0", "no interface found"), ("1", "no interface found")} <= warned, result.text
