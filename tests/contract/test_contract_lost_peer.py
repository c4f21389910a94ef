"""Any plugin: a peer that is killed, or that closes, is an error of what waits for it."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from any_net import AnyNet
from fresh_process import Line, Other
from net_v7 import SUCCESS, Memory, until
from subjects import on_subject
from talk import End, ends_of, lost

LARGE = 32 << 20  # more than the kernel buffers


def receiver_that_never_receives(line: Line) -> None:
    net = AnyNet()
    listener, handle = net.listen()
    line.tell(handle)
    net.accept_from(listener)
    line.tell(b"ready")
    line.hear()


@pytest.mark.owners
@on_subject
def test_a_sender_whose_peer_is_killed_gets_an_error(subject: dict[str, Any]) -> None:
    net = AnyNet()
    with Other(receiver_that_never_receives) as other:
        send = net.connect_to(other.line.hear())
        other.line.hear()
        end = End(net, send, Memory(LARGE), True)
        for _ in range(subject.get("slots", 1)):
            assert end.post(0, LARGE)
        for _ in range(1000):
            end.drained()
        os.kill(other.process.pid, signal.SIGKILL)
        assert lost(subject, end.code_of_head())
        if "lost" in subject:
            assert end.try_post(0, 1)[0] == subject["lost"], "the error stays"
        assert net.table.close_send(send) == SUCCESS


def sender_of_two_messages(line: Line) -> None:
    net = AnyNet()
    source = Memory(bytes(range(256)) * 512)
    end = End(net, net.connect_to(line.hear()), source, True)
    for size in (source.size, 5000):
        assert end.post(0, size)
    until(end.drained, "both sends")
    line.tell(b"sent")
    line.hear()


@pytest.mark.parametrize("posted_before", [True, False])
@pytest.mark.owners
@on_subject
def test_what_a_killed_sender_had_sent_still_arrives_and_then_comes_an_error(
    subject: dict[str, Any], posted_before: bool
) -> None:
    net = AnyNet()
    expected = bytes(range(256)) * 512
    target = Memory(3 * len(expected))
    offsets = [0, len(expected), 2 * len(expected)]
    with Other(sender_of_two_messages) as other:
        listener, handle = net.listen()
        other.line.tell(handle)
        end = End(net, net.accept_from(listener), target, False)
        for offset in offsets if posted_before else ():
            assert end.post(offset, len(expected))
        other.line.hear()
        os.kill(other.process.pid, signal.SIGKILL)
        other.process.wait()
        for offset in () if posted_before else offsets:
            assert end.post(offset, len(expected))
        until(lambda: end.test_head() and len(end.pending) == 1, "what was sent")
        assert lost(subject, end.code_of_head())
        content = target.content()
        assert content[: len(expected)] == expected
        assert content[len(expected) : len(expected) + 5000] == expected[:5000]
        assert net.table.close_recv(end.comm) == SUCCESS


@pytest.mark.owners
@on_subject
def test_an_idle_receiver_learns_that_its_peer_closed(subject: dict[str, Any]) -> None:
    net = AnyNet()
    sender, receiver = ends_of(net, Memory(10), Memory(10))
    assert receiver.post(0, 10)
    for _ in range(200):
        assert not receiver.test_head()
    sender.close()
    assert lost(subject, receiver.code_of_head())
