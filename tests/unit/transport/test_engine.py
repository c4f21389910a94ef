"""The engine as Python drives it: one rank over the null plugin, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tcpx_mpi._native

NULL = str(Path(tcpx_mpi._native.__file__).parent / "libnccl-net-null.so")

RANK = f"""
import numpy as np
from tcpx_mpi import _native

plugin = _native.Plugin({NULL!r})
plugin.init()

def engine(channels=2, window_send=12, window_receive=16):
    e = _native.Engine(plugin, 0, window_send, window_receive, 100)
    for channel in range(channels):
        e.add_send(1, 0, channel, e.listen(1, 0, channel))
    e.establish(5.0)
    return e

def table(*rows):
    return np.array(rows, np.int32)

SEND = [0, 1, 0, 0, 0, -1, -1, 1, -1, 0, -1, 0]
RECEIVE = [1, 1, 0, -1, -1, 1, 0, 1, -1, 0, -1, 0]

def loaded(e, rows, message=10000, chunk=1024, iterations=5):
    buffers = []
    for number in (0, 1):
        buffer = _native.SlotBuffer(1 << 20)
        buffer.cut(message, 64, 16384, 8)
        e.register_buffer(number, buffer)
        e.set_blocks(number, np.array([0], np.int64), np.array([message], np.int64))
        buffers.append(buffer)
    e.load(rows, chunk, 2, [*buffers, None], iterations)
    return buffers

def run(e, iterations=5):
    e.start(0, iterations, 0, 10**10, 0)
    while not e.wait(1.0):
        pass
"""


def rank(body: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", RANK + body], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def refusal(body: str) -> str:
    return rank(f"try:\n    {body}\nexcept Exception as e:\n    print(type(e).__name__, e)")


def test_a_batch_leaves_stamps_in_order_and_no_fault() -> None:
    assert (
        rank("""
e = engine()
loaded(e, table(SEND, RECEIVE))
run(e)
s = e.stamps(5)
assert e.fault() is None
assert (np.diff(s.end) >= 0).all() and s.end[0] >= s.start > 0 and not s.late
assert (np.maximum(s.send_done, s.receive_done) == s.end).all()
e.close()
print("well")
""")
        == "well"
    )


def test_stamps_are_copies_that_the_next_batch_leaves_alone() -> None:
    assert (
        rank("""
e = engine()
loaded(e, table(SEND, RECEIVE))
run(e)
first = e.stamps(5).end
kept = first.copy()
run(e)
assert (first == kept).all() and (e.stamps(5).end > kept).all()
print("well")
""")
        == "well"
    )


def test_setup_times_name_every_comm() -> None:
    out = rank("e = engine(3); print(sorted(row[:4] for row in e.setup_times()))")
    assert out == str(sorted((d, 1, 0, c) for d in ("receive", "send") for c in range(3)))


def test_a_step_that_cannot_be_is_a_value_error_that_names_its_row() -> None:
    bad = "SEND[:4] + [7] + SEND[5:]"
    out = refusal(f"loaded(engine(), table(SEND, {bad}))")
    assert out == "ValueError schedule row 1: blocks 7+1 of 1"


def test_a_peer_without_a_connection_is_a_value_error() -> None:
    out = refusal("loaded(engine(), table([0, 5] + SEND[2:]))")
    assert out == "ValueError no connection to rank 5, lane 0, channel 0"


@pytest.mark.parametrize("window", [0, 17])
def test_a_window_outside_of_the_contract_is_a_value_error(window: int) -> None:
    assert refusal(f"engine(window_receive={window})").startswith("ValueError a window of")


@pytest.mark.parametrize("chunk", [0, (2 << 20) + 1])
def test_a_chunk_outside_of_the_contract_is_a_value_error(chunk: int) -> None:
    assert refusal(f"loaded(engine(), table(SEND), chunk={chunk})") == (
        "ValueError bad chunk or channels"
    )


def test_a_handle_of_another_length_is_a_value_error() -> None:
    assert refusal("engine().add_send(1, 0, 0, b'short')") == "ValueError a handle has 128 bytes"


def test_request_stop_makes_a_fault_that_stays() -> None:
    assert rank("""
e = engine()
loaded(e, table(SEND, RECEIVE), message=16000, chunk=1, iterations=8)
e.request_stop()
run(e, 8)
print(e.fault().kind, len(e.picture()))
run(e, 8)
print(e.fault().kind)
""").split() == ["stopped", "4", "stopped"]


def test_sockets_of_a_plugin_without_any_are_none() -> None:
    assert rank("print(engine().sockets()['count'])") == "0"
