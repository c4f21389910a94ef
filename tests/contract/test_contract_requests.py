"""Any plugin: requests, their slots and order, and the sizes that test tells."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from any_net import AnyNet
from net_v7 import SUCCESS, Memory, until
from subjects import on_subject
from talk import End, ends_of

#: NCCL's limit, and the one of v6.
MOST, MOST_OF_V6 = 32, 8


def fill(end: End, most: int) -> int:
    """Posts a byte each until one is not taken; how many were, `most` at most."""
    for count in range(most):
        code, request = end.try_post(count, 1)
        if code != SUCCESS or request is None:
            return count
    return most


@pytest.mark.quick
@pytest.mark.owners
@on_subject
def test_a_full_queue_says_so_and_takes_more_later(subject: dict[str, Any]) -> None:
    net = AnyNet()
    source, target = Memory(bytes(range(100))), Memory(100)
    most = MOST_OF_V6 if net.abi == 6 else MOST
    ends = ends_of(net, source, target)
    room = {end: fill(end, subject.get("slots", most)) for end in ends}
    assert all(count > 0 for count in room.values())
    if "slots" in subject:
        assert list(room.values()) == [subject["slots"]] * 2
        assert [end.try_post(99, 1) for end in ends] == [(subject["full"], None)] * 2
    posted, total = dict(room), max(room.values()) + 1

    def step() -> bool:
        for end in ends:
            end.drained()
            if posted[end] < total and len(end.pending) < room[end]:
                posted[end] += end.post(posted[end], 1)
        return all(posted[end] == total and not end.pending for end in ends)

    until(step, "all, and one message more")
    assert target.content()[:total] == source.content()[:total]


@on_subject
def test_a_receive_keeps_its_slot_until_it_is_consumed_and_a_send_only_until_done(
    subject: dict[str, Any],
) -> None:
    net = AnyNet()
    source, target = Memory(b"s" * 100), Memory(100)
    sender, receiver = ends_of(net, source, target)
    slots = subject.get("slots", 1)  # of a plugin that nothing is known of one will do
    for place in range(slots):
        assert sender.post(place, 1)
        assert receiver.post(place, 1)
    until(sender.drained, "the sends")
    for request in receiver.pending:
        until(functools.partial(_is_done, net, request), "a receive")
    assert sender.post(slots, 1), "the slots of sends that are done are free"
    if net.consumes and "slots" in subject:
        assert receiver.try_post(slots, 1) == (subject["full"], None), "none is consumed"
    while receiver.pending:
        request = receiver.pending.popleft()
        assert not net.consumes or net.consumed(receiver.comm, request) == SUCCESS
    assert receiver.post(slots, 1)
    until(lambda: sender.drained() & receiver.drained(), "one message more")
    assert target.content()[: slots + 1] == b"s" * (slots + 1)


def _is_done(net: AnyNet, request: int) -> bool:
    code, done, _ = net.test(request)
    assert code == SUCCESS, f"test returned {code}"
    return done


@pytest.mark.quick
@on_subject
def test_a_size_is_reported_right_or_not_at_all(subject: dict[str, Any]) -> None:
    net = AnyNet()
    source, target = Memory(b"s" * 5000), Memory(5000)
    sender, receiver = ends_of(net, source, target)
    sizes = [0, 1, 1000, 5000]
    for size in sizes:
        assert receiver.post(0, 5000)
        assert sender.post(0, size)
        until(lambda: sender.drained() & receiver.drained(), "a message")
    untouched = [-7] * len(sizes)
    if "keeps_size" in subject:
        assert receiver.sizes == (untouched if subject["keeps_size"] else sizes)
    assert receiver.sizes in (untouched, sizes)


@on_subject
def test_a_message_ends_its_own_receive_and_no_other(subject: dict[str, Any]) -> None:
    net = AnyNet()
    source, target = Memory(b"a" * 10 + b"b" * 10), Memory(20)
    sender, receiver = ends_of(net, source, target)
    assert receiver.post(0, 10)
    assert receiver.post(10, 10)
    for _ in range(100):
        assert not receiver.test_head(), "before anything is sent"
    for half in range(2):
        assert sender.post(10 * half, 10)
        until(sender.drained, "the send")
        until(receiver.test_head, "the receive")
        for _ in range(100 if receiver.pending else 0):
            assert not receiver.test_head(), "of a message that is not sent"
    assert target.content() == source.content()


@on_subject
def test_a_message_may_be_sent_before_its_receive_is_posted(subject: dict[str, Any]) -> None:
    net = AnyNet()
    source, target = Memory(b"s" * 5000), Memory(5000)
    sender, receiver = ends_of(net, source, target)
    assert sender.post(0, 5000)
    for _ in range(200):
        sender.drained()
    assert receiver.post(0, 5000)
    until(lambda: sender.drained() & receiver.drained(), "the message")
    assert target.content() == source.content()
