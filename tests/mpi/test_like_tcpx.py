"""Patterns and faults over softtcpx as unkind as TCPX 3.1.9: nothing here counts on kinder ways."""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
from broken_sockets import break_busiest
from jobs import Result, mpirun, mpmd, run, started, tcpx_mpi
from variants import variant

pytestmark = pytest.mark.multirank

LIKE = {"SOFTTCPX_LIKE": "tcpx-3.1.9"}
WRONG_BYTES, STALLED, PLUGIN_FAILED, SETUP_FAILED = 5, 6, 13, 4


def ranks_of(place: Path, ranks: int, pattern: str, *options: str, **variables: str) -> Result:
    command = tcpx_mpi("run", pattern, "--ranks", str(ranks), "--plugin", "softtcpx",
                       "--hdf5", "none", "--spool", "spool", *options)  # fmt: skip
    return run(command, place, {**LIKE, **variables})


@pytest.mark.parametrize(
    ("pattern", "ranks", "memory", "variables"),
    [
        variant("pair", 2, "host", {}),
        variant("pair", 2, "emulated", {"SOFTTCPX_FRAGMENTS": "mss"}),
        variant("pingpong", 2, "emulated", {"NCCL_SOCKET_NTHREADS": "1"}),
        variant("ring", 3, "host", {"NCCL_SOCKET_NTHREADS": "2"}),
        ("ring", 3, "emulated", {"SOFTTCPX_FRAGMENTS": "random"}),
        variant("mesh", 3, "host", {"NCCL_GPUDIRECTTCPX_RECV_SYNC": "1"}),
        variant("mesh", 3, "emulated", {"NCCL_NSOCKS_PERTHREAD": "4"}),
    ],
)
def test_every_byte_of_every_pattern_arrives(
    pattern: str, ranks: int, memory: str, variables: Mapping[str, str], place: Path
) -> None:
    options = ("--memory", memory, "--sizes", "0,1,4097,300001", "-n", "4", "--chunk", "16K")
    poison = {"SOFTTCPX_POISON": "1"}
    result = ranks_of(place, ranks, pattern, *options, **poison, **variables)
    assert result.code == 0, result.text
    assert [row.wrong for row in result.rows] == [None, 0, 0, 0], result.text
    assert "faults on purpose (SOFTTCPX_LIKE=tcpx-3.1.9" in result.out


def faulty(place: Path, *options: str, **traps: str) -> Result:
    """A ring of two with these traps besides, on both ranks."""
    variables = {f"SOFTTCPX_TRAP_{name}": value for name, value in traps.items()}
    return ranks_of(
        place, 2, "ring", "-b", "16K", "-e", "16K", "-n", "40", "--chunk", "4K",
        "--stall-timeout", "2", *options, **variables,
    )  # fmt: skip


def assert_refused(result: Result, code: int, text: str) -> None:
    assert result.code == code, result.text
    assert len(result.errors) == 1, result.text
    assert re.search(text, result.errors[0]), result.text
    assert not any(row.wrong == 0 for row in result.rows), result.text


MEMORIES = ["emulated", variant("host")]


@pytest.mark.parametrize("memory", MEMORIES)
def test_an_error_of_one_message_names_rank_and_call(memory: str, place: Path) -> None:
    result = faulty(place, "--memory", memory, ERROR_AT="5", ERROR_CODE="3", SIDE="recv")
    assert_refused(result, PLUGIN_FAILED, r"^rank \d .*call test returned 3 ")


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_plugin_that_stops_is_a_stall_within_the_deadline(memory: str, place: Path) -> None:
    result = faulty(place, "--memory", memory, STOP_AT="6", SIDE="send")
    assert_refused(result, STALLED, r"no progress for 2 s; waiting for rank \d")


def test_a_stall_quotes_what_the_plugin_warned_of_since_the_last_progress(place: Path) -> None:
    result = faulty(place, "--memory", "host", LOST_AT="5", SIDE="recv")
    assert_refused(
        result, STALLED,
        r"no progress for 2 s; waiting for rank \d.*; the plugin said: .* times, last \d+\.\d s",
    )  # fmt: skip


@pytest.mark.variant
@pytest.mark.parametrize("memory", MEMORIES)
def test_a_stall_by_a_broken_data_socket_quotes_what_was_said_of_it_once(
    memory: str, place: Path
) -> None:
    """The socket breaks in mid-run: softtcpx warns once and is silent, as TCPX is."""
    command = tcpx_mpi("run", "pair", "--ranks", "2", "--plugin", "softtcpx", "--channels", "1",
                       "--sizes", "64K", "-n", "1000000", "-c", "0", "--memory", memory,
                       "--stall-timeout", "2", "--hdf5", "none",
                       "--spool", "spool")  # fmt: skip
    with started(command, place, LIKE) as job:
        pids = job.ranks()
        job.send_rank(0, signal.SIGUSR1)
        job.wait_for(r"^rank 0 on .*, row \d .*: \d of \d flows unfinished")
        break_busiest(pids[0])
        result = job.finish()
    assert result.code == STALLED, result.text
    assert "no progress for 2 s; waiting for rank" in result.errors[0], result.text
    # In the error, or, where the other rank's time ran out first, in the report of rank 0.
    said = r"the plugin said: send on data socket 0 with \S+ failed : Broken pipe \(once, "
    assert re.search(said, result.err), result.text


def test_pages_that_no_connection_gives_back_are_a_stall(place: Path) -> None:
    result = faulty(place, "--memory", "emulated", "--chunk", "16K", SHARED_PAGES="3")
    assert_refused(result, STALLED, r"no progress for 2 s; waiting for rank \d")


def test_without_the_manager_set_up_fails_with_code_4(place: Path) -> None:
    result = faulty(place, "--connect-timeout", "20", NO_MANAGER="1")
    assert result.code == SETUP_FAILED, result.text
    assert re.search(
        r"accept returned 3 .*failed against receive-datapath-manager", result.errors[0]
    ), result.text


def test_the_accepting_rank_which_knows_the_cause_speaks_before_the_connecting_one(
    place: Path,
) -> None:
    options = ("--sizes", "16K", "--connect-timeout", "20")
    result = ranks_of(place, 2, "pair", *options, SOFTTCPX_TRAP_NO_MANAGER="1")
    assert_refused(
        result, SETUP_FAILED,
        r"^rank 1 .*accept returned 3 .*failed against receive-datapath-manager : No such file.*"
        r"rank 0 .*connect returned 3",
    )  # fmt: skip


def test_an_accept_that_fails_ends_the_wait_of_the_connecting_rank(place: Path) -> None:
    """It would wait for as long as --connect-timeout says, longer than this test may take."""
    given = ("run", "pair", "--plugin", "softtcpx", "--sizes", "16K", "--channels", "2", "--hdf5",
             "none", "--spool", "spool", "--connect-timeout", "1000")  # fmt: skip
    result = run(mpmd(mpirun(1, *given), mpirun(1, *given, SOFTTCPX_TRAP_NO_MANAGER="1")), place)
    assert_refused(
        result, SETUP_FAILED,
        r"^rank 1 .*accept returned 3 .*failed against receive-datapath-manager : No such file.*"
        r"NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX.*; rank 0 .*: 2 of 2 connections were not up yet: "
        r"to rank 1, lane 0, channel 0; to rank 1, lane 0, channel 1",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("lack", "text"),
    [
        ("3", r"rank 1 .*2 of 2 connections .*: from rank 0, lane 0"),
        variant(
            "4", r"^rank 1 .*plugin call accept from rank 0, lane 0, channel 0 has not returned for"
        ),
    ],
)
def test_a_manager_that_never_answers_is_looked_for(lack: str, text: str, place: Path) -> None:
    options = ("--sizes", "16K", "--channels", "2", "--connect-timeout", "1")
    result = ranks_of(place, 2, "pair", *options, SOFTTCPX_TRAP_NO_MANAGER=lack)
    hint = r"receive-datapath manager, in NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX.*that hangs"
    assert_refused(result, SETUP_FAILED, f"{text}.*{hint}")


@pytest.mark.parametrize("memory", [variant("host"), "emulated"])
def test_a_killed_rank_ends_the_job(memory: str, place: Path) -> None:
    command = tcpx_mpi("run", "ring", "--ranks", "2", "--plugin", "softtcpx", "--sizes", "64K",
                       "-n", "1000000", "-c", "0", "--memory", memory, "--hdf5", "none",
                       "--spool", "spool")  # fmt: skip
    with started(command, place, LIKE) as job:
        job.ranks()
        job.send_rank(1, signal.SIGKILL)
        result = job.finish()
    assert result.code == 137, result.text
    assert_refused(result, 137, r"^rank 1 on \S+ \(NIC lo\) has died[;,] ")
