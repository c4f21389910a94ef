"""What the tap says while a job runs: slow requests, a stall, a summary of each comm."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tap_files import command, environment, only_file, send

from tcpx_mpi.doctor.lines import read_lines
from tcpx_mpi.doctor.tap import Said, findings_of_tap

#: "comm 0 (sends, lo, handle 0123456789abcdef)".
_END = r"comm \d \((send|receive)s, lo, handle [0-9a-f]{16}\)"


@contextmanager
def job(
    *then: str, sizes: tuple[int, ...] = (4096,), **environ: str
) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        command(sizes, *then), env=environment(**environ), text=True, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as found:  # fmt: skip
        try:
            yield found
        finally:
            found.kill()


def until(found: subprocess.Popen[str], what: str) -> None:
    assert found.stdout is not None
    while json.loads(found.stdout.readline()) != what:
        pass


def doctors(log: str) -> list[Said]:
    """What the doctor makes of these lines, as NCCL prints them."""
    nccl = (re.sub(r"^# plugin: \S+ (\w+) (\S+)", r"h:7:8 [0] \2 NCCL \1", line)
            for line in log.splitlines())  # fmt: skip
    return findings_of_tap([*read_lines([("log", nccl)])])


def heard(
    found: subprocess.Popen[str], pattern: str, log: list[str] | None = None
) -> re.Match[str]:
    assert found.stderr is not None
    for line in found.stderr:
        if log is not None:
            log.append(line)
        if match := re.search(pattern, line):
            return match
    raise AssertionError(f"nothing like {pattern}")


def test_a_slow_request_is_a_line_and_the_others_are_counted() -> None:
    sent = send([4096] * 5, TCPX_TAP_SLOW_US="1", TCPX_TAP_FAULT="delay=3000,call=irecv",
                OMPI_COMM_WORLD_RANK="3")  # fmt: skip
    assert sent.messages == ["ok"] * 5
    lines = [line for line in sent.err.splitlines() if ": slow: " in line]
    assert re.search(
        rf"rank 3: slow: {_END}: request \d of 4096 bytes, posted [\d.]+ s after init, done after "
        r"[\d.]+ [mu]s, \d+ polls, [\d.]+ [nmu]s of it within the plugin's calls",
        lines[0],
    )
    # All of them are slow, and one line a second says so.
    assert len(lines) < 10
    faults, slow = sorted(doctors(sent.err), key=lambda said: "slower" in said.what)
    assert faults.what.endswith("on purpose: delay=3000,call=irecv")
    assert re.match(r"\d+ requests? of 1 rank slower than TCPX_TAP_SLOW_US: the slowest, a "
                    r"(send|receive) of 4096 bytes of rank 3 over lo, took", slow.what)  # fmt: skip


def test_a_stall_names_the_request_and_whose_turn_it_is(tmp_path: Path) -> None:
    log: list[str] = []
    with job("hold", TCPX_TAP_STALL_S="0.3", TCPX_TAP_DIR=str(tmp_path)) as found:
        heard(found, r"nothing has moved for [\d.]+ s, requests are under way on 1 comms", log)
        match = heard(
            found,
            rf"{_END}: request 1 of 64 bytes, posted [\d.]+ s ago, 1 under way, \d+ polls, the "
            r"last 0\.0 s ago: the turn of the plugin or of its peer",
            log,
        )
        assert match[1] == "receive"
    (stall,) = doctors("".join(log))
    assert stall.stall
    assert "the oldest request is a receive over lo, the plugin's turn or its peer's" in stall.what
    assert any("nothing has moved" in said for said in only_file(tmp_path).said)


def test_a_request_that_nobody_polls_is_the_callers_turn() -> None:
    with job(
        "wait", sizes=(64,), TCPX_TAP_STALL_S="4", TCPX_TAP_FAULT="stuck,call=irecv,at=0"
    ) as found:
        heard(found, r"request 0 of 64 .* the last [1-9]\.\d s ago: the caller's turn, who does")


def test_a_signal_makes_it_say_a_summary_of_each_comm() -> None:
    with job("wait") as found:
        until(found, "waits")
        found.send_signal(signal.SIGUSR1)
        for _ in range(2):
            heard(
                found,
                rf"{_END}: 1 requests of 4.1 kB, 1 done; sizes below 8192: 1; post to done p50 "
                r".* max .*, \d+ % of it within the plugin's calls; between the caller's polls p50",
            )


def test_each_comm_has_a_summary_when_it_is_closed() -> None:
    sent = send([0, 64, 4096], SHOW_INFO="1")
    found = [line for line in sent.err.splitlines() if "3 requests of 4.2 kB, 3 done" in line]
    assert len(found) == 2, sent.err
    assert all("sizes below 1: 1, 128: 1, 8192: 1;" in line for line in found)
    (moved,) = doctors(sent.err)
    assert moved.fact
    assert moved.what.startswith("the tap saw 6 requests on 2 comms; the slowest comm, ")
