"""softtcpx with a trap set: it breaks one rule in the way that its table says, and no other."""

from __future__ import annotations

import ctypes
import os
import re
from pathlib import Path

import pytest
from ends import End, ends_of
from fresh_process import in_fresh_process
from net_v7 import INTERNAL, SLOTS, SUCCESS, Memory, Net, until
from unpack_queue import Pair

pytestmark = pytest.mark.only_softtcpx


def hosts(net: Net, size: int = 100) -> tuple[End, End]:
    return ends_of(net, Memory(b"s" * size), Memory(b"p" * 4 * size))


def looks_until_done(end: End) -> int:
    """How many tests of a finished request say "not yet"; the sender is not driven by them."""
    count = 0
    while not end.net.test(end.pending[0])[1]:
        count += 1
    end.pending.popleft()
    return count


DIRECT = {"SOFTTCPX_LIKE": "direct"}


@pytest.mark.parametrize(
    ("environ", "size"),
    [
        ({}, -7),
        ({"SOFTTCPX_TRAP_SIZES": "1"}, 60),
        ({"SOFTTCPX_TRAP_SIZES": "2"}, 61),
        (DIRECT, 60),
        ({"SOFTTCPX_TRAP_SIZES": "1", **DIRECT}, 60),
        ({"SOFTTCPX_TRAP_SIZES": "2", **DIRECT}, 61),
    ],
)
@in_fresh_process()
def test_the_size_that_is_told_is_none_the_right_one_or_a_wrong_one(
    environ: dict[str, str], size: int
) -> None:
    net = Net().started()
    sender, receiver = hosts(net)
    sender.post(0, 60)
    receiver.post(0, 100)
    until(sender.test_head, "the send")
    done, sizes = ctypes.c_int(), ctypes.c_int(-7)

    def finished() -> bool:
        request = receiver.pending[0]
        code = net.table.test(request, ctypes.byref(done), ctypes.byref(sizes))
        assert code == SUCCESS
        return done.value == 1

    until(finished, "the receive")
    assert sizes.value == size


@pytest.mark.parametrize("environ", [
    {"SOFTTCPX_TRAP_HIDDEN": "1"},
    *({f"SOFTTCPX_TRAP_{name}": "1", **DIRECT} for name in ("DUPLICATE_AT", "REORDER_AT",
      "LEAK_AT", "LATE_COUNTS", "SHARED_PAGES", "DEVICE_MEMORY")),
])  # fmt: skip
@in_fresh_process()
def test_a_trap_that_the_kind_of_plugin_cannot_spring_is_said_to_do_nothing(
    environ: dict[str, str],
) -> None:
    net = Net(log=True).started()
    trap, how = next(iter(environ)), "with" if "SOFTTCPX_LIKE" in environ else "without"
    assert f"{trap}=1 does nothing {how} SOFTTCPX_LIKE=direct" in net.log_lines
    assert not any("a trap is set" in line for line in net.log_lines)


@in_fresh_process(SOFTTCPX_TRAP_OVERSIZE="1")
def test_a_larger_message_overflows_the_posted_receive() -> None:
    net = Net(log=True).started()
    assert "a trap is set: SOFTTCPX_TRAP_OVERSIZE=1" in net.log_lines
    sender, receiver = hosts(net)
    receiver.post(0, 10)
    sender.post(0, 60)
    until(sender.test_head, "the send")
    until(receiver.test_head, "the receive")
    assert receiver.memory.content() == b"s" * 60 + b"p" * 340


@in_fresh_process(SOFTTCPX_TRAP_OVERSIZE="1")
def test_a_larger_message_into_gpu_memory_lists_more_than_was_posted() -> None:
    net = Net().started()
    pair = Pair(net, b"s" * 6000)
    request = pair.post_receive(0, 5000)
    pair.post_send(0, 6000)
    pair.finish(request)
    assert sum(fragment.length for fragment in pair.queue.fragments(0)) == 6000


@in_fresh_process(SOFTTCPX_TRAP_BUSY_NULL="3")
def test_every_third_post_says_busy_and_takes_no_slot() -> None:
    net = Net().started()
    _, receiver = hosts(net)
    address, mhandle = receiver.memory.address, receiver.mhandle
    answers = [net.irecv(receiver.comm, address, 1, mhandle, 0xDEAD0) for _ in range(9)]
    assert all(code == SUCCESS for code, _ in answers)
    assert [request is None for _, request in answers] == [False, False, True] * 3


@pytest.mark.parametrize("limit", [1, 5])
@in_fresh_process()
def test_a_queue_may_be_smaller_than_16(limit: int) -> None:
    os.environ["SOFTTCPX_TRAP_QUEUE"] = str(limit)
    net = Net().started()
    for end in hosts(net):
        assert [end.post(0, 1) for _ in range(limit)] == [SUCCESS] * limit
        assert end.post(0, 1) == INTERNAL


@in_fresh_process(SOFTTCPX_TRAP_SLOW_PERCENT="1000")
def test_a_slowed_connection_delivers_all_the_same() -> None:
    net = Net().started()
    sender, receiver = hosts(net)
    for message in range(3):
        assert receiver.post(100 * message, 100) == SUCCESS
        assert sender.post(0, 100) == SUCCESS
        until(sender.test_head, "the send")
        until(receiver.test_head, "the receive")
    assert receiver.memory.content() == b"s" * 300 + b"p" * 100


@in_fresh_process(
    SOFTTCPX_TRAP_ERROR_AT="1", SOFTTCPX_TRAP_ERROR_CODE="42", SOFTTCPX_TRAP_SIDE="recv"
)
def test_an_error_comes_at_its_message_on_its_side_and_stays() -> None:
    net = Net().started()
    sender, receiver = hosts(net)
    for _ in range(2):
        sender.post(0, 1)
        receiver.post(0, 1)
    until(sender.test_head, "the first send")
    until(sender.test_head, "the second send")
    until(receiver.test_head, "the first receive")
    assert [net.test(receiver.pending[0]) for _ in range(3)] == [(42, False)] * 3
    assert receiver.post(0, 1) == 42
    assert sender.post(0, 1) == SUCCESS


@in_fresh_process(SOFTTCPX_TRAP_DELAY="5", SOFTTCPX_TRAP_SIDE="recv")
def test_done_is_told_so_many_tests_late() -> None:
    net = Net().started()
    sender, receiver = hosts(net)
    for _ in range(3):
        sender.post(0, 1)
        until(sender.test_head, "the send")
        receiver.post(0, 1)
        assert looks_until_done(receiver) >= 5


@in_fresh_process(SOFTTCPX_TRAP_LOST_AT="0", SOFTTCPX_TRAP_SIDE="send")
def test_the_end_of_a_lost_message_is_never_told() -> None:
    net = Net().started()
    sender, receiver = hosts(net)
    sender.post(0, 1)
    receiver.post(0, 1)
    assert [net.test(sender.pending[0]) for _ in range(1000)] == [(SUCCESS, False)] * 1000
    until(receiver.test_head, "the receive, of which the sender knows nothing")


@pytest.mark.parametrize("trap", ["CORRUPT", "DUPLICATE", "REORDER", "LEAK"])
@in_fresh_process()
def test_one_message_is_damaged_and_the_others_are_whole(trap: str) -> None:
    os.environ[f"SOFTTCPX_TRAP_{trap}_AT"] = "1"
    net = Net(log=True).started()
    pair = Pair(net, bytes(range(251)) * 60)
    size, content = pair.source.size, pair.source.content()
    for k in range(SLOTS + 3):
        request = pair.move(0, size)
        found = pair.queue.fragments(k)
        targets = [fragment.target for fragment in found]
        if k != 1 or trap in ("REORDER", "LEAK"):
            assert pair.queue.unpacked(k, size) == content
        assert (targets == sorted(targets)) == (k != 1 or trap != "REORDER")
        if k == 1 and trap == "CORRUPT":
            damaged = pair.queue.unpacked(k, size)
            assert sum(a != b for a, b in zip(damaged, content, strict=True)) == 1
        if k == 1 and trap == "DUPLICATE":
            assert found[-1] == found[-2]
        assert net.consumed(pair.recv, request) == SUCCESS
    leaked = net.table.close_recv(pair.recv)
    assert leaked == (INTERNAL if trap == "LEAK" else SUCCESS)
    assert any("1 bounce pages missing" in line for line in net.log_lines) == (trap == "LEAK")


@in_fresh_process(SOFTTCPX_TRAP_RANK="3", OMPI_COMM_WORLD_RANK="2", SOFTTCPX_TRAP_CORRUPT_AT="0")
def test_only_the_named_rank_has_traps() -> None:
    net = Net().started()
    sender, receiver = hosts(net)
    sender.post(0, 50)
    receiver.post(0, 50)
    until(sender.test_head, "the send")
    until(receiver.test_head, "the receive")
    assert receiver.memory.content()[:50] == b"s" * 50


def test_the_docs_list_every_variable_that_is_read_and_no_other() -> None:
    root = Path(__file__).resolve().parents[2]
    pattern = r'"((?:NCCL|SOFTTCPX)_[A-Z_]+)",'
    settings = root / "native/softtcpx/environment/settings.cc"
    read = set(re.findall(pattern, settings.read_text()))
    text = (root / "docs/reference/softtcpx.md").read_text()
    rows = re.findall(r"^\| `((?:NCCL|SOFTTCPX)_[A-Z_]+)` \|", text, re.M)
    assert set(rows) == read
    assert len(rows) == len(read), "once each"
