"""Plugins that break the rules, one way a test: a named error or the right bytes, and in time.

The traps are switches of softtcpx (docs/reference/softtcpx.md). One of two ranks has them, unless a
test says otherwise; messages count from 0 on each connection, warm-up included.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from jobs import Result, mpirun, mpmd, run, tcpx_mpi
from variants import variant

pytestmark = pytest.mark.multirank

#: Longer than it takes a rank to hear of another's error, which must come first.
STALL_S = 2
#: Of runs that come to a good end.
IN_NO_HURRY = ("--stall-timeout", "20")
both_kinds = pytest.mark.parametrize("memory", [variant("host"), "emulated"])

WRONG_BYTES, STALLED, LOST_RANK, PLUGIN_FAILED, SETUP_FAILED = 5, 6, 7, 13, 4


def trapped(place: Path, memory: str, traps: Mapping[str, str | int], *options: str) -> Result:
    """A run of two ranks in a ring, 40 messages of 4 chunks each over 2 channels, of which rank 1
    has the traps."""
    variables = {f"SOFTTCPX_TRAP_{name}": str(value) for name, value in traps.items()}
    command = tcpx_mpi("run", "ring", "--ranks", "2", "--plugin", "softtcpx", "-b", "16K",
                       "-e", "16K", "-n", "40", "--chunk", "4K", "--memory", memory,
                       "--hdf5", "none", "--spool", "spool", "--stall-timeout", str(STALL_S),
                       "--progress-threads", "1", *options)  # fmt: skip
    return run(command, place, {"SOFTTCPX_TRAP_RANK": "1", **variables})


def assert_sound(result: Result) -> None:
    assert result.code == 0, result.text
    assert [row.wrong for row in result.rows] == [0], result.text


def assert_refused(result: Result, code: int, text: str) -> None:
    """One error line with `text` (a pattern) in it, and no row of bytes that were called right."""
    assert result.code == code, result.text
    assert len(result.errors) == 1, result.text
    assert re.search(text, result.errors[0]), result.text
    assert not any(row.wrong == 0 for row in result.rows), result.text


# --- What a harness must cope with --------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "traps"),
    [
        ("host", {"SIZES": 1}),
        variant("emulated", {"BUSY_NULL": 2, "DELAY": 7}),
        variant("host", {"DELAY": 50, "SIDE": "send"}),
        variant("host", {"BUSY_NULL": 3}),
        ("emulated", {"REORDER_AT": 8}),
        variant("emulated", {"ACCEPT_MS": 1000, "RANK": -1}),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_a_harmless_oddity_changes_no_byte(
    memory: str, traps: Mapping[str, str | int], place: Path
) -> None:
    assert_sound(trapped(place, memory, traps, *IN_NO_HURRY))


# --- What it must find --------------------------------------------------------------------------


@both_kinds
def test_one_corrupted_byte_is_found_and_is_one(memory: str, place: Path) -> None:
    result = trapped(place, memory, {"CORRUPT_AT": 8})
    assert result.code == WRONG_BYTES, result.text
    # One byte on each of two channels.
    assert [row.wrong for row in result.rows] == [2], result.text


def test_a_fragment_that_is_listed_twice_is_a_wrong_size(place: Path) -> None:
    result = trapped(place, "emulated", {"DUPLICATE_AT": 8})
    assert_refused(result, WRONG_BYTES, r"rank 1 .* reports 8192 bytes")


def test_a_wrong_size_that_a_plugin_tells_is_an_error(place: Path) -> None:
    assert_refused(
        trapped(place, "host", {"SIZES": 2}), WRONG_BYTES, r"rank 1 .* reports 4097 bytes"
    )


@pytest.mark.parametrize(
    ("memory", "side", "code", "exit_code"),
    [
        variant("host", "send", 3, PLUGIN_FAILED),
        variant("host", "recv", 99, PLUGIN_FAILED),
        ("emulated", "send", 6, LOST_RANK),
        variant("emulated", "recv", 3, PLUGIN_FAILED),
    ],
)
def test_an_error_code_of_one_message_is_named_with_rank_and_call(
    memory: str, side: str, code: int, exit_code: int, place: Path
) -> None:
    result = trapped(place, memory, {"ERROR_AT": 5, "ERROR_CODE": code, "SIDE": side})
    assert_refused(result, exit_code, rf"^rank 1 .*call test returned {code} ")


def test_a_queue_that_is_smaller_than_the_window_is_an_error_of_the_plugin(place: Path) -> None:
    result = trapped(place, "host", {"QUEUE": 1, "SIDE": "recv"})
    assert_refused(result, PLUGIN_FAILED, r"^rank 1 .*call irecv returned 3 ")


@pytest.mark.variant
def test_a_queue_as_large_as_the_window_is_enough(place: Path) -> None:
    options = ("--window-send", "2", "--window-recv", "2")
    assert_sound(trapped(place, "emulated", {"QUEUE": 2}, *options, *IN_NO_HURRY))


@pytest.mark.parametrize(
    ("trap", "side", "memory"),
    [
        variant("LOST_AT", "send", "host"),
        ("LOST_AT", "recv", "emulated"),
        variant("STOP_AT", "send", "emulated"),
        variant("STOP_AT", "recv", "host"),
    ],
)
def test_a_plugin_that_stops_is_a_stall_within_the_deadline(
    trap: str, side: str, memory: str, place: Path
) -> None:
    result = trapped(place, memory, {trap: 6, "SIDE": side})
    assert_refused(result, STALLED, rf"no progress for {STALL_S} s; waiting for rank \d")


@both_kinds
def test_a_plugin_that_ends_its_rank_in_mid_transfer_ends_the_job_and_is_named(
    memory: str, place: Path
) -> None:
    result = trapped(place, memory, {"EXIT_AT": 5})
    assert result.code == PLUGIN_FAILED, result.text
    assert any(
        re.match(r"rank 1 on .* has ended this process by exit\(1\), in a batch", each)
        for each in result.errors
    ), result.text
    assert not any(row.wrong == 0 for row in result.rows)


def test_a_leaked_bounce_page_is_an_error_at_close(place: Path) -> None:
    result = trapped(place, "emulated", {"LEAK_AT": 8})
    assert result.code == SETUP_FAILED, result.text
    assert "closeRecv returned 3" in result.errors[0]
    assert "1 bounce pages missing" in result.errors[0]


def test_a_peer_that_never_comes_is_named_within_the_deadline(place: Path) -> None:
    result = trapped(place, "emulated", {"NO_PEER": 1, "RANK": -1}, "--connect-timeout", "2")
    assert_refused(result, SETUP_FAILED, r"connections did not come up within 2")


# --- Ranks whose pairs take much longer than others -----------------------------------------------


def two_pairs(place: Path, *options: str, **traps: int) -> Result:
    """Two pairs that know nothing of each other: 0 -> 2 and 1 -> 3."""
    variables = {f"SOFTTCPX_TRAP_{name}": str(value) for name, value in traps.items()}
    command = tcpx_mpi("run", "pair", "--ranks", "4", "--plugin", "softtcpx", "-w", "0",
                       "--hdf5", "none", "--spool", "spool", *options)  # fmt: skip
    return run(command, place, {"SOFTTCPX_TRAP_SIDE": "recv", **variables})


def test_a_rank_that_is_slow_and_moves_is_waited_for(place: Path) -> None:
    # The other pair is there within a few ms and waits for 3.2 s, three times its patience.
    options = ("--sizes", "8", "-n", "4000", "--stall-timeout", "1s")
    result = two_pairs(place, *options, SLOW_US=800, RANK=3)
    assert result.code == 0, result.text
    assert [row.wrong for row in result.rows] == [0], result.text


def test_a_rank_that_moves_hears_of_an_error_elsewhere(place: Path) -> None:
    # The other pair's only batch goes on for longer than a roll call waits.
    options = ("--sizes", "8", "-n", "1000000", "-m", "8", "-c", "0")
    result = two_pairs(place, *options, ERROR_AT=5, ERROR_CODE=3, RANK=2)
    assert_refused(result, PLUGIN_FAILED, r"^rank 2 .*call test returned 3 ")


# --- What is said of them -----------------------------------------------------------------------


def test_settings_not_taken_and_traps_of_one_rank_are_on_the_screen_and_in_the_report(
    place: Path,
) -> None:
    given = ("run", "pair", "--plugin", "softtcpx", "--sizes", "8", "-n", "2", "--hdf5", "o.h5")
    bad = {"SOFTTCPX_SPIN_US": "banana"}
    commands = mpirun(1, *given, **bad), mpirun(1, *given, **bad, SOFTTCPX_TRAP_SIZES="1")
    result = run(mpmd(*commands), place)
    assert_sound(result)
    about = re.compile("SPIN_US|TRAP_SIZES")
    told = [line for line in result.out.splitlines() if about.search(line)]
    assert len(told) == 3, result.text
    assert told[0].startswith("# Plugin warning: SOFTTCPX_SPIN_US=banana"), result.text
    assert told[1] == "# Plugin warning: a trap is set: SOFTTCPX_TRAP_SIZES=1 (rank 1)"
    assert "faults on purpose (SOFTTCPX_TRAP_SIZES=1 (rank 1))" in told[2]
    assert "# Sockets: congestion control " in result.out
    reported = run(tcpx_mpi("report", "o.h5"), place).out
    assert [line for line in reported.splitlines() if about.search(line)] == told
