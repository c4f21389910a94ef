"""What the tap writes down: every request, in files of its user alone, which survive a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from tap_files import LIMIT_S, command, environment, only_file, send

from tcpx_mpi.tap.file import DONE, RECEIVE, SEND, files_of, read_tap
from tcpx_mpi.tap.joined import read_job
from tcpx_mpi.tap.ways import matched, summarise

SIZES = (0, 1, 4096, 100_003, 2 << 20)


@pytest.mark.parametrize("abi", [7, 12])
def test_every_request_is_in_the_file_with_its_size_and_its_end(abi: int, tmp_path: Path) -> None:
    sent = send(SIZES, abi=abi, TCPX_TAP_DIR=str(tmp_path / "taps"))
    assert [one.partition(",")[0] for one in sent.messages] == ["ok"] * len(SIZES)
    file = only_file(tmp_path / "taps")
    assert (file.plugin, file.abi, file.lost) == (f"softtcpx_v{abi}", abi, 0)
    assert sorted(comm.sends for comm in file.comms.values()) == [False, True]
    for kind in (SEND, RECEIVE):
        posts = file.records[file.records["kind"] == kind]
        assert posts["bytes"].tolist() == list(SIZES)
        assert posts["request"].tolist() == list(range(len(SIZES)))
    assert (file.records["kind"] == DONE).sum() == 2 * len(SIZES)
    assert (np.diff(file.times_ns[file.records["kind"] == SEND]) > 0).all()


def test_both_ends_of_a_connection_are_paired_and_their_messages_too(tmp_path: Path) -> None:
    send(SIZES, TCPX_TAP_DIR=str(tmp_path / "taps"))
    job = read_job(files_of([str(tmp_path / "taps")]))
    (link,) = job.links
    assert (link.sender, link.receiver) == (0, 0)
    sent, received = matched(job, 0)
    assert sent["bytes"].tolist() == received["bytes"].tolist() == list(SIZES)
    assert (received["done_ns"] > sent["posted_ns"]).all()
    (way,) = summarise(job).ways
    assert (way.messages, way.bytes, way.not_done) == (len(SIZES), sum(SIZES), 0)
    assert way.caller + way.receiver_late + way.plugin == pytest.approx(1)


def test_a_file_is_its_users_alone_and_holds_no_byte_of_a_message(tmp_path: Path) -> None:
    send([4096], TCPX_TAP_DIR=str(tmp_path / "taps"))
    (path,) = (tmp_path / "taps").glob("*.tap")
    assert path.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "taps").stat().st_mode & 0o777 == 0o700
    assert bytes(range(100, 116)) not in path.read_bytes()


def test_a_second_context_after_the_last_one_has_a_file_of_its_own(tmp_path: Path) -> None:
    sent = send([64], "again", abi=12, TCPX_TAP_DIR=str(tmp_path))
    assert len(sent.messages) == 2
    files = [read_tap(path) for path in files_of([str(tmp_path)])]
    assert [(len(file.comms), file.lost) for file in files] == [(2, 0), (2, 0)]


def test_what_was_written_before_a_kill_is_read(tmp_path: Path) -> None:
    with subprocess.Popen(
        command([4096] * 20, "wait"), env=environment(TCPX_TAP_DIR=str(tmp_path)), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as job:  # fmt: skip
        assert job.stdout is not None
        while json.loads(job.stdout.readline()) != "waits":
            pass
        deadline = time.monotonic() + LIMIT_S
        while (only_file(tmp_path).records["kind"] == DONE).sum() < 40:
            assert time.monotonic() < deadline
        job.send_signal(signal.SIGKILL)
    file = only_file(tmp_path)
    assert file.lost == -1
    (path,) = tmp_path.glob("*.tap")
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])  # in mid-write
    assert len(only_file(tmp_path).comms) == 2


def test_a_thread_has_the_ring_of_one_that_has_ended(tmp_path: Path) -> None:
    threads = 28  # 25 have room in so little memory
    with subprocess.Popen(
        command([], "threads"), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=environment(TCPX_TAP_DIR=str(tmp_path), TCPX_TAP_MEMORY="64K"),
    ) as job:  # fmt: skip
        assert job.stdin is not None
        assert job.stdout is not None
        for number in range(1, threads + 1):
            deadline = time.monotonic() + LIMIT_S
            job.stdin.write("\n")
            job.stdin.flush()
            assert json.loads(job.stdout.readline()) == "ok"
            while (only_file(tmp_path).records["kind"] == DONE).sum() < 2 * number:
                assert time.monotonic() < deadline
        job.stdin.close()
    assert only_file(tmp_path).lost == 0


def test_a_forked_child_goes_on_and_writes_nothing(tmp_path: Path) -> None:
    sent = send([64], "fork", TCPX_TAP_DIR=str(tmp_path))
    assert sent.messages == ["ok", "ok"]
    assert (only_file(tmp_path).records["kind"] == SEND).sum() == 1


def test_a_file_ends_at_its_bound_and_says_what_is_not_in_it(tmp_path: Path) -> None:
    sent = send([64] * 200, "again", abi=7, TCPX_TAP_DIR=str(tmp_path), TCPX_TAP_FILES="8K")
    assert sent.messages[:200] == ["ok"] * 200
    (path,) = tmp_path.glob("*.tap")
    assert path.stat().st_size <= 8 << 10
    assert f"{path} has TCPX_TAP_FILES bytes: what follows is counted only" in sent.err
    file = read_tap(str(path))
    assert len(file.records) + file.lost == 800


@pytest.mark.parametrize("kind", ["others", "link", "file", "full"])
def test_without_a_file_one_line_says_why_and_messages_arrive(kind: str, tmp_path: Path) -> None:
    folder = tmp_path / "taps"
    why = {
        "others": "others may write there: use a folder of your own (chmod go-w)",
        "link": "Not a directory", "file": "Not a directory", "full": "No space left on device",
    }[kind]  # fmt: skip
    if kind == "others":
        folder.mkdir()
        folder.chmod(0o777)
    elif kind == "link":
        (tmp_path / "real").mkdir()
        folder.symlink_to(tmp_path / "real")
    elif kind == "file":
        folder.touch()
    elif os.geteuid() != 0:
        pytest.skip("needs root: a file system that is full is mounted")
    if kind == "full":
        mounted = f"mkdir {folder}; mount -t tmpfs -o size=8k,mode=700 tap {folder}"
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", f'{mounted}; exec "$@"', "sh", *command([64] * 300)],
            env=environment(TCPX_TAP_DIR=str(folder)), capture_output=True, text=True,
            timeout=LIMIT_S,
        )  # fmt: skip
        messages, err = [json.loads(line) for line in done.stdout.splitlines()], done.stderr
    else:
        sent = send([64], TCPX_TAP_DIR=str(folder))
        messages, err = sent.messages, sent.err
    assert set(messages) == {"ok"}, err
    (line,) = [line for line in err.splitlines() if "nothing more is written down" in line]
    assert why in line
