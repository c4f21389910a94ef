"""Ranks that stop, die or are told to end in mid-row: who ends, how, and what is kept.

Every run here has a short first row and then one that would last for minutes; the signal comes
while the second is under way, known by what the ranks say and not by the clock.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from jobs import LIMIT_S, Job, Result, run, started, tcpx_mpi
from variants import variant

from tcpx_mpi.records import Run, read_journal, read_run

pytestmark = pytest.mark.multirank

ITERS = 8000
#: A chunk is as small as a message of the first row; the second row's have so many that it lasts.
CHUNK, FIRST, ENDLESS = 64, 1, 16 << 10
STALL_S = 2
OPTIONS = ("--plugin", "softtcpx", "--sizes", f"{FIRST},{ENDLESS}", "-n", str(ITERS),
           "--chunk", str(CHUNK), "--stall-timeout", str(STALL_S), "--hdf5", "o.h5",
           "--spool", "spool")  # fmt: skip
#: Without checks a row is one batch.
UNCHECKED = ("-c", "0", "-w", "0")
#: With checks and little memory there are many batches, and as many times between two.
CHECKED = ("--check-memory", "1M")


def wait_until_in_mid_batch(job: Job, ranks: int) -> None:
    """Returns while every rank moves the second row's bytes."""
    job.wait_for_row(FIRST)
    for rank in range(ranks):
        job.send_rank(rank, signal.SIGUSR1)
        job.wait_for(rf"^rank {rank} on .*, row 1 .*: \d of \d flows unfinished")


def rows_on_disk(place: Path) -> tuple[Run, Result]:
    """The file of a run that ended in its second row, and what `tcpx-mpi report` says of it."""
    found = read_run(str(place / "o.h5"))
    assert [row.size_bytes for row in found.rows] == [FIRST]
    assert found.rows[0].samples["iteration"].shape == (found.header.world, ITERS)
    assert not found.complete
    report = run(tcpx_mpi("report", "o.h5"), place)
    assert report.code == 12, report.text
    assert [row.size for row in report.rows] == [FIRST]
    assert "1 of 2 rows: 16 KiB" in report.errors[0]
    return found, report


@pytest.mark.parametrize(
    ("stopped", "in_a_batch"),
    [
        (0, True),
        variant(1, False),
    ],
)
def test_a_stopped_rank_ends_every_rank_within_the_deadline_and_is_named(
    stopped: int, in_a_batch: bool, place: Path
) -> None:
    options = UNCHECKED if in_a_batch else CHECKED
    with started(tcpx_mpi("run", "ring", "--ranks", "3", *OPTIONS, *options), place) as job:
        job.wait_for_row(FIRST)
        if in_a_batch:
            wait_until_in_mid_batch(job, 3)
        job.send_rank(stopped, signal.SIGSTOP)
        result = job.finish()

    assert result.code == 7, result.text
    assert len(result.errors) == 1, result.text
    assert re.match(
        rf"rank {stopped} on \S+ \(NIC lo\) did not answer the roll call; ", result.errors[0]
    )
    # The deadline that was set, and not the 30 s that are usual.
    assert re.search(r"no progress for 2 s|within 2(\.\d+)? s", result.text), result.text
    others = sorted({0, 1, 2} - {stopped})
    for rank in others:
        assert re.search(rf"^# rank {rank} on \S+ \(NIC lo\), row \d", result.err, re.M), (
            result.text
        )
        if in_a_batch:
            # Each waits for the one before it in the ring: for the stopped one, or in its turn.
            assert oldest_request_from((rank - 1) % 3, result), result.text
    found, report = rows_on_disk(place)
    if found.fault is None:
        # The writer itself was stopped, and mpirun left it no time to write on.
        assert stopped == 0
        assert "its writer was killed" in report.errors[0]
        return
    assert (found.fault.kind, found.fault.exit_code) == ("lost_rank", 7)
    assert found.fault.missing_ranks == (stopped,)
    assert sorted(found.fault.texts) == ([0] if stopped == 0 else others)
    assert f"rank {stopped}" in report.errors[0]


def test_two_ranks_that_stop_together_are_named_by_those_that_need_nothing_of_them(
    place: Path,
) -> None:
    # 0 -> 2 is done at once and waits for 1 -> 3, which gives no sign of life any more.
    command = tcpx_mpi("run", "pair", "--ranks", "4", "--plugin", "softtcpx", "--sizes", "8", "-n",
                       "200000", "-w", "0", "--stall-timeout", "2", "--hdf5", "none")  # fmt: skip
    trap = {"SOFTTCPX_TRAP_SLOW_US": "400", "SOFTTCPX_TRAP_SIDE": "recv", "SOFTTCPX_TRAP_RANK": "3"}
    with started(command, place, trap) as job:
        for rank in (1, 3):
            job.send_rank(rank, signal.SIGUSR1)
            job.wait_for(rf"^rank {rank} on .*, row 0 .*: 1 of 1 flows unfinished")
        for rank in (1, 3):
            job.send_rank(rank, signal.SIGSTOP)
        result = job.finish()
    assert result.code == 7, result.text
    (error,) = result.errors
    assert re.match(r"rank 1 on \S+ \(NIC \S+\), 3 on \S+ \(NIC \S+\) did not answer", error)


@pytest.mark.variant
def test_a_rank_that_is_slower_than_others_is_not_lost_at_the_next_start(place: Path) -> None:
    # 0 -> 2 is at the start of the second iteration at once; 1 -> 3 needs 3.8 s for the first.
    command = tcpx_mpi("run", "pair", "--ranks", "4", "--plugin", "softtcpx", "--sizes", "4M", "-z",
                       "1", "--chunk", "64K", "--channels", "1", "-n", "2", "-w", "0",
                       "--stall-timeout", "1.5", "--hdf5", "none")  # fmt: skip
    trap = {"SOFTTCPX_TRAP_SLOW_US": "60000", "SOFTTCPX_TRAP_SIDE": "recv",
            "SOFTTCPX_TRAP_RANK": "3"}  # fmt: skip
    result = run(command, place, trap)
    assert result.code == 0, result.text


def oldest_request_from(peer: int, result: Result) -> bool:
    """Whether the stall report has the oldest request for bytes of that rank, with its age."""
    line = (
        rf"^#     receive from rank {peer} on \S+ \(NIC lo\), lane 0, channel \d: window \d+/16, "
        r"oldest request iteration \d+ of the batch, step \d, chunk \d+, 64 B, "
        r"posted ([2-9]|1\d)\.\d s ago; .* moved in this batch$"
    )
    return re.search(line, result.err, re.M) is not None


@pytest.mark.parametrize("killed", [variant(0), 1])
def test_a_killed_rank_ends_the_job_and_merge_joins_what_its_journals_have(
    killed: int, place: Path
) -> None:
    with started(tcpx_mpi("run", "ring", "--ranks", "3", *OPTIONS, *CHECKED), place) as job:
        job.wait_for_row(FIRST)
        until(lambda: all(batches_of_the_second_row(path) for path in journals(place)), "batches")
        job.send_rank(killed, signal.SIGKILL)
        result = job.finish()
    assert result.code == 137, result.text
    assert len(result.errors) == 1, result.text
    assert re.match(rf"rank {killed} on \S+ \(NIC lo\) has died[;,] ", result.errors[0]), (
        result.text
    )
    rows_on_disk(place)

    left = [f"spool/{path.name}" for path in journals(place)]
    assert len(left) == 3
    merged = run(tcpx_mpi("join", "--run", "o.h5", "joined.h5", *left), place)
    assert merged.code == 12, merged.text
    whole = read_run(str(place / "joined.h5"))
    assert [row.size_bytes for row in whole.rows] == [FIRST]
    assert [part.size_bytes for part in whole.partial] == [ENDLESS]
    assert sorted(whole.partial[0].samples) == [0, 1, 2]
    assert all(part["iteration"].size > 0 for part in whole.partial[0].samples.values())


def journals(place: Path) -> list[Path]:
    return sorted((place / "spool").iterdir())


def batches_of_the_second_row(journal: Path) -> bool:
    row = read_journal(str(journal)).rows.get(1)
    return row is not None and row.samples["iteration"].size > 0


def until(condition: Callable[[], bool], what: str) -> None:
    """Looks again and again until a file has come to be as it must."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, f"no {what}"
        time.sleep(0.01)  # a poll with a deadline: nothing tells us of a file


def test_a_signal_ends_the_run_in_good_order_with_its_own_exit_code(place: Path) -> None:
    with started(tcpx_mpi("run", "ring", "--ranks", "3", *OPTIONS, *UNCHECKED), place) as job:
        wait_until_in_mid_batch(job, 3)
        job.send(signal.SIGTERM)
        result = job.finish()
    assert result.code == 143, result.text
    assert "# kept: 1 row in o.h5" in result.err
    found, _ = rows_on_disk(place)
    assert found.fault is not None
    assert found.fault.exit_code == 143


def test_sigusr1_shows_progress_of_every_rank_and_the_run_goes_on(place: Path) -> None:
    options = ("-n", "1000", "-w", "0")
    with started(tcpx_mpi("run", "ring", "--ranks", "3", *OPTIONS, *options), place) as job:
        job.wait_for_row(FIRST)
        job.send(signal.SIGUSR1)
        for rank in range(3):
            job.wait_for(rf"^rank {rank} on \S+ \(NIC lo\), row 1 \(16 KiB\): ")
        result = job.finish()
    assert result.code == 0, result.text
    assert [row.wrong for row in result.rows] == [0, 0]
    assert read_run(str(place / "o.h5")).complete


def test_t_ends_the_run_after_that_time_and_keeps_the_rows(place: Path) -> None:
    command = tcpx_mpi("run", "ring", "--ranks", "2", *OPTIONS, *UNCHECKED, "-T", "4")
    result = run(command, place)
    assert result.code == 6, result.text
    assert len(result.errors) == 1, result.text
    assert "the run took longer than -T 4 s" in result.errors[0]
    found, _ = rows_on_disk(place)
    assert found.fault is not None
    assert (found.fault.kind, found.fault.exit_code) == ("stall", 6)
    assert found.fault.missing_ranks == ()


@pytest.mark.variant
def test_t_counts_from_the_start_of_the_processes_and_is_looked_at_before_the_first_row(
    place: Path,
) -> None:
    # No rank has come up in a millisecond; from its buffers on, one row would just be possible.
    options = ("--plugin", "null", "--sizes", "8", "-c", "0", "--hdf5", "none")
    result = run(tcpx_mpi("run", "pair", "--ranks", "2", *options, "-T", "1ms"), place)
    assert result.code == 6, result.text
    assert len(result.errors) == 1, result.text
    assert "the run took longer than -T 0.001 s: its buffers were there" in result.errors[0]
    assert "# Using devices" not in result.out


@pytest.mark.variant
def test_t_ends_a_run_of_batches_too_short_to_look_at_the_clock(place: Path) -> None:
    for limit in ("3", "12", "48"):  # the start of a busy machine may take the first ones
        command = tcpx_mpi("run", "pair", "--ranks", "2", "--plugin", "null", "--sizes", "8", "-n",
                           "5", "-w", "0", "-N", "0", "-T", limit, "--hdf5", "none")  # fmt: skip
        result = run(command, place)
        assert result.code == 6, result.text
        assert f"the run took longer than -T {limit} s" in result.errors[0]
        if result.rows:
            break
    assert result.rows


def test_bytes_that_nobody_sent_are_all_counted_and_the_first_is_named(place: Path) -> None:
    # The null plugin moves nothing; the poison is the complement of what should have come.
    command = tcpx_mpi("run", "ring", "--ranks", "3", "--plugin", "null", "--sizes", "17,100000",
                       "-n", "3", "--hdf5", "o.h5", "--spool", "spool")  # fmt: skip
    result = run(command, place)
    assert result.code == 5, result.text
    iterations = 4  # with the warm-up, which is checked too
    assert [row.wrong for row in result.rows] == [3 * iterations * size for size in (17, 100000)]
    assert f"# Out of bounds values : {3 * iterations * 100017} FAILED" in result.out
    found = read_run(str(place / "o.h5"))
    assert found.complete
    for row in found.rows:
        assert row.wrong.tolist() == [iterations * row.size_bytes] * 3
        for rank, text in enumerate(row.faults):
            match = re.fullmatch(
                rf"rank {rank}, peer {(rank - 1) % 3}, iteration \d+, chunk 0, offset 0: "
                r"expected 0x(..), found 0x(..)", text)  # fmt: skip
            assert match, text
            assert int(match[1], 16) ^ int(match[2], 16) == 0xFF
            assert text in result.out
