"""What a fault of a batch is called: its error, its exit code, its words."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from tcpx_mpi._native import Fault, FlowReport
from tcpx_mpi.errors import ExitCode, LostRank, PluginFailed, Stalled, WrongBytes
from tcpx_mpi.transport.errors import error_of

WHERE = "rank 0 on host0, row 1 (16 KiB), peer raw"
PLACES = [f"host{rank}" for rank in range(8)]
LIMITS = {"stall_timeout_s": 30.0, "timeout_s": 5.0}


def flow(**changes: Any) -> FlowReport:
    """A receive that waits for rank 3."""
    fields: dict[str, Any] = {
        "kind": "receive", "peer": 3, "channel": 1, "window": 1, "posted": 5, "arrived": 4,
        "completed": 4, "bytes": 65536, "finished": False, "oldest_iteration": 4,
        "oldest_chunk": 2, "oldest_bytes": 16384, "oldest_age_ns": 31_000_000_000,
    }  # fmt: skip
    return FlowReport(**fields | changes)


def fault(kind: str, **changes: Any) -> Fault:
    fields: dict[str, Any] = {"flow": 0, "iteration": 4, "chunk": 2, "bytes": 16384}
    return Fault(kind, **fields | changes)


@pytest.mark.parametrize(
    ("call", "code", "words"),
    [
        ("recv", 0, "recv: the other side has closed"),
        ("recv", errno.ECONNRESET, "recv: Connection reset by peer"),
        ("send", errno.EPIPE, "send: Broken pipe"),
        ("send", 2, "send: No such file or directory"),
    ],
)
def test_a_socket_of_a_peer_that_fails_is_a_lost_rank_and_no_plugin_call(
    call: str, code: int, words: str
) -> None:
    # 2 and 6 are codes of a plugin with a meaning of their own, and errno's with another.
    found = fault("socket", call=call, code=code)
    error = error_of(found, [flow()], WHERE, PLACES, LIMITS)
    assert isinstance(error, LostRank)
    assert error.exit_code == ExitCode.LOST_RANK
    assert str(error) == (
        f"{WHERE}: {words}: rank 3 is gone, or its connection is; receive from rank 3 on host3, "
        "lane 0, channel 1, iteration 4 of the batch, chunk 2"
    )


@pytest.mark.parametrize(
    ("code", "kind"), [(-1, PluginFailed), (3, PluginFailed), (2, LostRank), (6, LostRank)]
)
def test_a_peer_in_a_process_of_its_own_says_itself_what_failed(
    code: int, kind: type[Exception]
) -> None:
    found = Fault("peer", code, "the companion process 7 was ended by SIGKILL")
    error = error_of(found, [], WHERE, PLACES, LIMITS)
    assert type(error) is kind
    assert str(error) == f"{WHERE}: the companion process 7 was ended by SIGKILL"


def test_a_plugin_call_that_fails_is_one() -> None:
    found, gone = (
        fault("plugin", code=code, failed_call="plugin call irecv returned 3") for code in (3, 6)
    )
    error = error_of(found, [flow()], WHERE, PLACES, LIMITS)
    assert isinstance(error, PluginFailed)
    assert str(error).startswith(f"{WHERE}: plugin call irecv returned 3; receive from rank 3")
    assert isinstance(error_of(gone, [flow()], WHERE, PLACES, LIMITS), LostRank)


def test_what_the_plugin_warned_of_last_is_said_with_its_error() -> None:
    found, lost = (
        fault("plugin", code=code, text="; the plugin said: no buffers")
        for code in (3, 6)
    )  # fmt: skip
    error = error_of(found, [flow()], WHERE, PLACES, LIMITS)
    assert str(error).endswith("; the plugin said: no buffers")
    gone = error_of(lost, [flow()], WHERE, PLACES, LIMITS)
    assert str(gone).endswith("chunk 2; the plugin said: no buffers")


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (4096, "the plugin reports 4096 bytes, 16 KiB were sent"),
        (16384, "the plugin lists fragments of 16 KiB beyond the end of the message"),
    ],
)
def test_a_wrong_size_and_bytes_in_wrong_places_are_told_apart(code: int, words: str) -> None:
    error = error_of(fault("size", call="test", code=code), [flow()], WHERE, PLACES, LIMITS)
    assert isinstance(error, WrongBytes)
    assert str(error).endswith(words)


def test_a_stall_of_the_own_gpu_blames_no_other_rank() -> None:
    held = flow(arrived=7, posted=8)
    error = error_of(fault("stall"), [flow(oldest_age_ns=0), held], WHERE, PLACES, LIMITS)
    own = "3 receives have arrived and wait for this rank's GPU: receive from rank 3 on host3"
    assert f"; {own}" in str(error)
    copies = error_of(fault("stall"), [flow(kind="copy", peer=-1)], WHERE, PLACES, LIMITS)
    assert "; waiting for this rank's own copies: local copy, channel 1" in str(copies)


def test_a_stall_names_the_rank_that_is_waited_for() -> None:
    error = error_of(fault("stall"), [flow(finished=True), flow(peer=5)], WHERE, PLACES, LIMITS)
    assert isinstance(error, Stalled)
    assert str(error).startswith(f"{WHERE}: no progress for 30 s; waiting for rank 5: ")


def test_a_call_of_the_cuda_driver_that_fails_names_no_plugin_call() -> None:
    found = fault("gpu", code=719, failed_call="CUDA driver call cuLaunchKernel", flow=-1)
    error = error_of(found, [flow()], WHERE, PLACES, LIMITS)
    assert isinstance(error, PluginFailed)
    assert f"{WHERE}: CUDA driver call cuLaunchKernel; waiting for rank 3: " in str(error)
