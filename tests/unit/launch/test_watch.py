"""The thread that keeps a rank's deadlines, and the launcher's look at them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tcpx_mpi import _native
from tcpx_mpi.errors import SetupFailed
from tcpx_mpi.launch.rooms import rooms_of_mpi
from tcpx_mpi.launch.setup_deadline import ending_what_never_comes_up, why
from tcpx_mpi.launch.setup_table import RECORD_BYTES, SetupTable, record_end

#: Holds Python's lock for ever, as a plugin or MPI may; no Python code runs in this process.
HOLD = "import ctypes; ctypes.PyDLL(None).pause()\nwhile True: ctypes.PyDLL(None).pause()"
LIMIT_S = 60


def begun(limit_s: float, first_line_s: float = 100, every_s: float = 100) -> str:
    return (
        "from tcpx_mpi import _native\n"
        f"_native.watch_begin({limit_s}, {first_line_s}, {every_s})\n"
        "_native.watch_name('rank 3 on here')\n"
        "_native.watch_waits_for('a friend')\n"
    )


def ran(code: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT_S
    )
    return done.returncode, done.stderr


def test_the_deadline_ends_a_process_that_holds_pythons_lock() -> None:
    code, said = ran(begun(0.2) + HOLD)
    assert code == 4
    assert said.startswith(
        "tcpx-mpi: error: rank 3 on here: set-up did not end within --setup-timeout (0.2 s): "
        "this rank waits for a friend since 0."
    )
    assert said.count("\n") == 1


def test_lines_say_what_is_waited_for_before_the_deadline() -> None:
    code, said = ran(begun(1.0, 0.2, 0.2) + HOLD)
    lines = said.splitlines()
    assert code == 4
    assert len(lines) > 2
    for line in lines[:-1]:
        assert line.startswith("# rank 3 on here: set-up goes on for 0.")
        assert " of --setup-timeout (1 s): this rank waits for a friend since 0." in line


def test_the_limit_counts_from_the_beginning_and_who_waits_for_others_ends_later() -> None:
    code, said = ran(
        begun(100) + "_native.watch_limit(0.1)\n_native.watch_waits_for('others', 0.3)\n"
        "began = _native.now_ns()\nassert _native.watch_left_s() <= 0.1\n" + HOLD
    )
    assert code == 4
    assert float(said.rpartition("since ")[2].split()[0]) >= 0.2


def test_a_set_up_that_is_over_is_not_ended() -> None:
    code, said = ran(
        begun(0.3) + "_native.watch_enter('--connect-timeout', 0.3, 4)\n"
        "assert _native.watch_left_s() == float('inf')\n"
        "import time\nend = time.monotonic() + 0.6\nwhile time.monotonic() < end: pass"
    )
    assert (code, said) == (0, "")


def test_a_process_may_end_while_it_is_watched() -> None:
    assert ran(begun(100)) == (0, "")


def test_nobody_reads_what_it_says_and_it_ends_all_the_same() -> None:
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writes, b"x" * 4096):
            pass  # until it is full
    os.set_blocking(writes, True)
    code = [sys.executable, "-c", begun(0.2) + HOLD]
    assert subprocess.run(code, stderr=writes, timeout=LIMIT_S).returncode == 4
    os.close(reads)
    os.close(writes)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_a_process_that_does_not_heed_it(number: signal.Signals) -> None:
    program = begun(100) + "print(flush=True)\n" + HOLD
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        process.stdout.readline()
        process.send_signal(number)
        _, said = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 128 + number
    assert f"rank 3 on here: interrupted by signal {int(number)} in set-up: this rank" in said


def test_what_is_left_of_a_process_that_ends_leaves_it_the_code_of_its_run() -> None:
    """Its 20 s are those of `WATCH_END_S`; here a signal comes, which it cannot heed."""
    code, said = ran(
        begun(100) + "_native.watch_ending(7)\n"
        "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n" + HOLD
    )
    assert (code, said) == (7, "")


def test_nothing_is_watched_in_a_process_that_did_not_ask() -> None:
    assert _native.watch_left_s() == float("inf")
    _native.watch_waits_for("nothing")
    _native.watch_enter("--stall-timeout", 1e-9, 6)
    _native.watch_ending(1)
    assert _native.watch_await(0) is None


# --- The launcher's look -------------------------------------------------------------------------


def test_the_launcher_reads_what_ranks_have_written(tmp_path: Path) -> None:
    assert _native.WATCH_RECORD_BYTES == RECORD_BYTES
    table = SetupTable(3)
    try:
        assert table.waits() == {}
        for rank, last in ((0, "_native.watch_enter('', 0, 4)\n"), (2, "")):
            named = f"_native.watch_name('it', {table.path!r}, {rank})\n"
            waits = f"_native.watch_waits_for({'w' * 400!r})\n"
            assert ran(begun(100) + named + waits + last) == (0, "")
        waits = table.waits()
        assert waits.keys() == {0, 2}
        assert waits[0] is None
        assert waits[2] is not None
        assert waits[2].what.startswith("www")
        assert not table.over()
        assert table.ended() == {}
        text = why(table, 5, {1: [os.getpid()]})
        assert text.startswith(
            "set-up did not end within --setup-timeout (5 s): "
            f"rank 1 never spoke (process {os.getpid()}); rank 2 waits for www"
        )
        assert "rank 0" not in text
    finally:
        table.close()
    assert not Path(table.path).exists()


def test_the_launcher_reads_the_codes_that_ranks_ended_with(tmp_path: Path) -> None:
    table = SetupTable(2)
    try:
        named = f"_native.watch_name('it', {table.path!r}, 1)\n"
        assert ran(begun(100) + named + "_native.watch_ending(13)\n") == (0, "")
        assert table.ended() == {1: 13}
        assert table.waits() == {1: None}
    finally:
        table.close()


def test_a_rank_that_a_signal_has_ended_has_told_its_code(tmp_path: Path) -> None:
    table = SetupTable(2)
    named = f"_native.watch_name('it', {table.path!r}, 1)\n"
    signalled = "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n"
    code, _ = ran(begun(100) + named + signalled + HOLD)
    assert code == 143
    assert table.ended() == {1: 143}
    table.close()


def test_a_rank_that_waits_says_nothing_where_the_launcher_has_told_why() -> None:
    table = SetupTable(1)
    told = "from tcpx_mpi.launch.setup_table import SetupTable\ntable = SetupTable(1)\n"
    told += f"table.path = {table.path!r}\ntable.mark_reported()\n"
    named = f"_native.watch_name('it', {table.path!r}, 0)\n_native.watch_waits_for('it')\n"
    assert ran(begun(0.5) + named + told + HOLD) == (4, "")
    assert table.ended() == {0: 4}
    table.close()


def test_a_defect_before_there_is_a_watch_has_its_code_in_the_table() -> None:
    table = SetupTable(2)
    record_end(table.path, 1, 1)
    assert table.ended() == {1: 1}
    table.close()


def test_a_rank_without_a_process_is_named() -> None:
    table = SetupTable(1)
    assert "rank 0 never spoke (it has no process here)" in why(table, 5, {})
    table.close()


def test_a_launch_that_ends_is_not_waited_for() -> None:
    table, killed = SetupTable(1), list[int]()
    with ending_what_never_comes_up(table, 3600, [], dict, lambda: killed.append(1)) as late:
        pass
    table.close()
    assert not killed
    assert not late


def test_a_set_up_that_ends_just_after_its_limit_is_not_killed() -> None:
    table, killed = SetupTable(1), list[int]()
    deadline = time.monotonic() + LIMIT_S
    with ending_what_never_comes_up(table, 0, [], dict, lambda: killed.append(1)) as late:
        while not late:
            assert time.monotonic() < deadline
        Path(table.path).write_bytes(b"over")
        while late:
            assert time.monotonic() < deadline
    table.close()
    assert not killed


def test_a_clock_stands_while_a_process_is_stopped() -> None:
    shows = (
        "import sys, time\n"
        "def show():\n    print(time.monotonic_ns(), _native.running_ns(), flush=True)\n"
        "show()\nsys.stdin.readline()\nshow()\n"
    )
    command = [sys.executable, "-c", begun(LIMIT_S) + shows]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        before = [int(each) for each in process.stdout.readline().split()]
        process.send_signal(signal.SIGSTOP)
        time.sleep(3)  # what is tested is that time goes by
        process.send_signal(signal.SIGCONT)
        process.stdin.write("\n")
        process.stdin.flush()
        after = [int(each) for each in process.stdout.readline().split()]
    everything, running = (b - a for a, b in zip(before, after, strict=True))
    assert everything - running > 2e9


def test_ranks_that_leave_it_to_the_launcher_do_not_take_its_word_away() -> None:
    table, deadline = SetupTable(1), time.monotonic() + LIMIT_S
    with ending_what_never_comes_up(table, 0, [], dict, lambda: None) as late:
        while not late:
            assert time.monotonic() < deadline
        record_end(table.path, 0, 143)  # it was stopped, and mpirun has woken and ended it
    table.close()
    assert "never spoke" in late[0]


def test_a_first_signal_kills_what_does_not_end() -> None:
    table, killed = SetupTable(1), threading.Event()
    Path(table.path).write_bytes(b"over")
    with ending_what_never_comes_up(table, 3600, [15], dict, killed.set):
        assert killed.wait(LIMIT_S)
    table.close()


def test_nothing_is_left_of_what_mpi_kept_for_ranks_that_were_killed() -> None:
    with rooms_of_mpi() as rooms:
        folders = [Path(folder) for folder in rooms.values()]
        for folder in folders:
            (folder / "session").mkdir()
            (folder / "session" / "segment").write_bytes(b"x")
    assert folders
    assert not any(folder.exists() for folder in folders)


def test_no_temporary_folder_is_a_failed_set_up_in_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(SetupFailed, match="no temporary folder can be written"):
        SetupTable(1)
