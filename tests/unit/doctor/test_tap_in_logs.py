"""The tap's lines in a log of NCCL: what the doctor makes of them (tests/tap holds their form)."""

from __future__ import annotations

from tcpx_mpi.doctor.judge import Verdict, judge
from tcpx_mpi.doctor.lines import read_lines
from tcpx_mpi.doctor.text import lines as printed
from tcpx_mpi.findings import Severity

H, G = "0123456789abcdef", "fedcba9876543210"
FAST = [
    f"{host}:1:1 [0] NCCL INFO {text}"
    for number, host in enumerate("ab")
    for text in (
        f"comm 0x1 rank {number} nRanks 2 nNodes 2 localRanks 1 localRank 0",
        "Using network GPUDirectTCPX_v7",
        f"Channel 00/0 : {number}[0] -> {1 - number}[0] [send] via NET/GPUDirectTCPX_v7/0/GDRDMA",
    )
]


def tap(host: str, text: str, level: str = "WARN") -> str:
    return f"{host}:1:9 [0] tap:7 NCCL {level} tcpx-mpi tap: {text}"


def verdict_of(*said: str) -> Verdict:
    return judge([*read_lines([("log", [*FAST, *said])])], [])


def text_of(verdict: Verdict) -> str:
    return "\n".join(printed(verdict))


def test_slow_requests_are_one_finding_by_the_slowest() -> None:
    lines = [
        tap("a", f"rank 0: slow: comm 0 (sends, eth1, handle {H}): request 7 of 512 bytes, posted "
                 "1.2 s after init, done after 900 us, 30 polls, 2 us of it within the plugin's "
                 "calls; 12 more"),
        tap("b", f"rank 1: slow: comm 3 (receives, eth2, handle {H}): request 9 of 4096 bytes, "
                 "posted 3.0 s after init, done after 1.5 ms, 99 polls, 31 us of it within the "
                 "plugin's calls"),
    ]  # fmt: skip
    verdict = verdict_of(*lines)
    assert verdict.code == 0
    (found,) = [each for each in verdict.findings if "slower" in each.text]
    assert found.severity is Severity.DOUBTFUL
    assert found.text == (
        "14 requests of 2 ranks slower than TCPX_TAP_SLOW_US: the slowest, a receive of 4096 bytes "
        "of rank 1 over eth2, took 1.5 ms, 31 us of it within the plugin's calls"
    )
    assert found.evidence is not None
    assert found.evidence.line is not None
    assert found.evidence.line.number == len(FAST) + 2


def stall(host: str, rank: int, seconds: float, side: str, handle: str, turn: str) -> list[str]:
    return [
        tap(host, f"rank {rank}: nothing has moved for {seconds} s, requests are under way on 2 "
                  "comms, the oldest first"),
        tap(host, f"comm 5 ({side}s, eth1, handle {handle}): request 8 of 64 bytes, posted "
                  f"{seconds} s ago, 4 under way, 12 polls, the last 0.0 s ago: {turn}"),
        tap(host, f"comm 6 ({side}s, eth9, handle {G}): request 1 of 64 bytes, posted 1.0 s ago, 1 "
                  "under way, 1 polls, the last 0.0 s ago: the turn of the plugin or of its peer"),
    ]  # fmt: skip


def test_a_stall_is_told_in_the_verdict_with_its_request_and_the_other_end() -> None:
    verdict = verdict_of(
        *stall("a", 0, 30.5, "send", H, "the turn of the plugin or of its peer"),
        *stall("b", -1, 9.0, "receive", H, "the caller's turn, who does not poll"),
    )
    assert verdict.code == 0
    assert verdict.headline.endswith(
        "; later rank 0: nothing moved for 30.5 s, the oldest request is a send over eth1 (the "
        "other end: b pid 1 [0]), the plugin's turn or its peer's"
    )
    assert (
        "b pid 1 [0]: nothing moved for 9.0 s, the oldest request is a receive over eth1 (the "
        in (text_of(verdict))
    )
    assert "the caller's turn" in text_of(verdict)
    assert "-> the caller does not poll, so it is no matter of the network" in text_of(verdict)


def test_what_a_comm_moved_is_a_fact_of_its_last_summary() -> None:
    def summary(count: int, p99: str) -> str:
        return tap(
            "a", f"comm 0 (sends, eth1, handle {H}): {count} requests of 1.2 GB, {count} done; "
            f"sizes below 1048576: {count}; post to done p50 31 us, p99 {p99}, max 12 ms, 12 % of "
            "it within the plugin's calls; between the caller's polls p50 1.1 us, p99 9 us", "INFO",
        )  # fmt: skip

    verdict = verdict_of(summary(100, "9 s"), summary(1200, "80 us"))
    (found,) = [each for each in verdict.findings if "the tap saw" in each.text]
    assert found.severity is Severity.NOTE
    assert found.text == (
        "the tap saw 1200 requests on 1 comm; the slowest comm, sends of a pid 1 [0] over eth1: "
        "post to done p50 31 us, p99 80 us, max 12 ms, 12 % of it within the plugin's calls; "
        "between the caller's polls p50 1.1 us"
    )


def test_a_record_that_is_not_whole_and_faults_on_purpose_are_said() -> None:
    text = text_of(verdict_of(
        tap("a", "records are dropped, 41 so far: raise TCPX_TAP_MEMORY; the file says at its end"),
        tap("b", "/taps/b.tap has TCPX_TAP_FILES bytes: what follows is counted only"),
        tap("b", "puts faults in: delay=3000,call=irecv"),
    ))  # fmt: skip
    assert "the tap's record of 2 ranks is not whole, 41 records or more dropped" in text
    assert "the tap puts faults in on purpose: delay=3000,call=irecv" in text


def test_no_line_of_the_tap_is_a_warning_that_nobody_knows() -> None:
    unknown = "is not known here"
    assert unknown in text_of(verdict_of("b:1:9 [0] tap:7 NCCL WARN what nobody says"))
    said = [
        tap("a", "records are dropped, 41 so far: raise TCPX_TAP_MEMORY"),
        tap("a", "what a later tap may say"),
    ]
    assert unknown not in text_of(verdict_of(*said))


def test_a_log_without_the_tap_has_nothing_of_it() -> None:
    assert "tap" not in text_of(verdict_of())
