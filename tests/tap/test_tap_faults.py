"""TCPX_TAP_FAULT: what a caller sees of each fault, in a plugin that has none."""

from __future__ import annotations

import pytest
from tap_files import send

SIZES = (4096, 4096, 4096)


@pytest.mark.parametrize(("fault", "messages"), [
    # What failed was no request, so that the next one has its number.
    ("error=6,call=isend,at=1", ["ok", "code 6 of isend", "code 6 of isend"]),
    ("error=3,call=test,at=2", ["ok", "ok", "code 3 of test of irecv"]),
    ("drop,call=isend,at=1", ["ok", "not done: isend", "ok"]),
    ("stuck,call=irecv,at=1", ["ok", "not done: irecv", "not done: irecv"]),
    ("disconnect,call=irecv,at=1", ["ok", "code 6 of irecv", "code 6 of irecv"]),
    ("flip=17,call=irecv,at=2", ["ok", "ok", "wrong 1"]),
    ("delay=20000,call=irecv,at=0", ["ok", "ok", "ok"]),
    ("drop,p=0", ["ok", "ok", "ok"]),
    ("drop,rank=5", ["ok", "ok", "ok"]),
    ("error=6,call=isend,at=0;error=2,call=irecv,at=2",
     ["code 6 of isend", "code 6 of isend", "code 2 of irecv"]),
])  # fmt: skip
def test_a_fault_is_what_the_caller_sees(fault: str, messages: list[str]) -> None:
    sent = send(SIZES, TCPX_TAP_FAULT=fault)
    assert sent.messages == messages
    told = "rank=5" not in fault
    assert (f"tcpx-mpi tap: puts faults in: {fault.replace(';', '; ')}" in sent.err) == told


def test_a_receive_reports_another_size() -> None:
    sent = send(SIZES, TCPX_TAP_FAULT="size=-96,at=1", SOFTTCPX_REPORT_SIZES="1")
    assert sent.messages == [f"ok, reported {size}" for size in (4096, 4000, 4096)]


def test_chance_is_the_same_for_the_same_seed() -> None:
    def drawn(seed: int) -> list[str]:
        fault = f"error=6,call=irecv,p=0.5,seed={seed}"
        return send([64] * 24, TCPX_TAP_FAULT=fault).messages

    first = drawn(1)
    assert {"ok", "code 6 of irecv"} == set(first)
    assert drawn(1) == first
    assert drawn(2) != first


def test_a_call_of_set_up_fails_too() -> None:
    sent = send([64], TCPX_TAP_FAULT="error=2,call=connect,at=0")
    assert sent.messages[0].startswith("broken: connect returned 2")
