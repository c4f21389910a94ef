"""softtcpx: a full queue, the order of calls, and arguments that are refused, as TCPX has them."""

from __future__ import annotations

import pytest
from ends import ends_of, transfer
from fresh_process import in_fresh_process
from net_v7 import INTERNAL, INVALID_ARGUMENT, SLOTS, SUCCESS, Memory, Net, until


@in_fresh_process()
def test_the_17th_send_and_receive_are_error_3_and_leave_the_request_as_it_was() -> None:
    net = Net().started()
    source, target = Memory(b"s" * SLOTS), Memory(SLOTS)
    sender, receiver = ends_of(net, source, target)
    for end in (sender, receiver):
        for k in range(SLOTS):
            assert end.post(k, 1) == SUCCESS
        act = net.isend if end.sends else net.irecv
        canary = 0xDEAD0
        assert act(end.comm, end.memory.address, 1, end.mhandle, canary) == (INTERNAL, canary)
    transfer(sender, receiver, [])
    assert target.content() == source.content()


@pytest.mark.only_softtcpx
@pytest.mark.parametrize("size", [0, 10])
@in_fresh_process()
def test_consuming_out_of_order_twice_or_before_done_is_error_3_and_harms_nothing(
    size: int,
) -> None:
    net = Net().started()
    source, target = Memory(b"s" * 100), Memory(100)
    sender, receiver = ends_of(net, source, target)
    for k in range(4):
        sender.post(10 * k, size)
        receiver.post(10 * k, size)
    first, second, third, _ = receiver.pending
    assert net.consumed(receiver.comm, first) == INTERNAL, "before done"
    until(sender.test_head, "the first send")
    net.finish(first)
    assert net.consumed(receiver.comm, second) == INTERNAL, "not done"
    net.finish(second)
    assert net.consumed(receiver.comm, second) == INTERNAL, "out of order"
    assert net.consumed(receiver.comm, first) == SUCCESS
    assert net.consumed(receiver.comm, first) == INTERNAL, "twice"
    assert net.consumed(receiver.comm, second) == SUCCESS
    assert net.consumed(receiver.comm, third) == INTERNAL
    assert net.table.irecv_consumed(receiver.comm, 2, third) == INVALID_ARGUMENT
    net.finish(third)
    assert net.consumed(receiver.comm, third) == SUCCESS
    assert net.consumed(sender.comm, third) == INVALID_ARGUMENT


@pytest.mark.only_softtcpx
@in_fresh_process()
def test_only_the_oldest_request_may_be_tested_and_never_again_after_done() -> None:
    net = Net().started()
    source, target = Memory(b"s" * 100), Memory(100)
    sender, receiver = ends_of(net, source, target)
    for k in range(3):
        sender.post(k, 1)
        receiver.post(k, 1)
    assert net.test(receiver.pending[1]) == (INTERNAL, False)
    assert net.test(sender.pending[2]) == (INTERNAL, False)
    net.finish(sender.pending[0])
    net.finish(receiver.pending[0])
    assert net.test(receiver.pending[0]) == (INTERNAL, False)
    assert net.test(sender.pending[0]) == (INTERNAL, False)
    net.finish(receiver.pending[1])
    assert net.test(None) == (INVALID_ARGUMENT, False)
    assert net.table.test(receiver.pending[2], None, None) == INVALID_ARGUMENT


@in_fresh_process()
def test_a_receive_keeps_its_slot_until_it_is_consumed_and_a_send_only_until_done() -> None:
    net = Net().started()
    source, target = Memory(b"s" * (SLOTS + 1)), Memory(SLOTS + 1)
    sender, receiver = ends_of(net, source, target)
    for k in range(SLOTS):
        assert (sender.post(k, 1), receiver.post(k, 1)) == (SUCCESS, SUCCESS)
    while sender.pending:
        until(sender.test_head, "a send")
    for request in receiver.pending:
        net.finish(request)
    assert sender.post(SLOTS, 1) == SUCCESS, "the slots of sends that are done are free"
    assert receiver.post(SLOTS, 1) == INTERNAL, "none is consumed"
    while receiver.pending:
        assert net.consumed(receiver.comm, receiver.pending.popleft()) == SUCCESS
    assert receiver.post(SLOTS, 1) == SUCCESS
    transfer(sender, receiver, [])
    assert target.content() == source.content()


@in_fresh_process()
def test_request_pointers_repeat_every_16_posts() -> None:
    net = Net().started()
    source, target = Memory(b"s" * 8), Memory(8)
    sender, receiver = ends_of(net, source, target)
    seen: dict[bool, list[int | None]] = {True: [], False: []}
    for k in range(40):
        for end in (sender, receiver):
            assert end.post(0, k % 3) == SUCCESS
            seen[end.sends].append(end.pending[0])
        until(sender.test_head, "the send")
        until(receiver.test_head, "the receive")
    for pointers in seen.values():
        assert len(set(pointers)) == SLOTS
        assert pointers[SLOTS:] == pointers[:-SLOTS]


@pytest.mark.only_softtcpx
@in_fresh_process()
def test_data_outside_its_registration_and_senseless_arguments_are_refused() -> None:
    net = Net().started()
    source, target = Memory(100), Memory(100)
    sender, receiver = ends_of(net, source, target)
    for end in (sender, receiver):
        assert end.post(1, 100) == INVALID_ARGUMENT
        assert end.post(-1, 10) == INVALID_ARGUMENT
        assert end.post(101, 1) == INVALID_ARGUMENT
        assert end.post(0, -1) == INVALID_ARGUMENT
        assert end.post(100, 0) == SUCCESS
        act = net.isend if end.sends else net.irecv
        other = net.irecv if end.sends else net.isend
        assert act(end.comm, end.memory.address, 1, None)[0] == INVALID_ARGUMENT
        assert other(end.comm, end.memory.address, 1, end.mhandle)[0] == INVALID_ARGUMENT
        assert act(0, end.memory.address, 1, end.mhandle)[0] == INVALID_ARGUMENT
    for n in (0, 2):
        code, _ = net.irecv(receiver.comm, target.address, 1, receiver.mhandle, n=n)
        assert code == INVALID_ARGUMENT
