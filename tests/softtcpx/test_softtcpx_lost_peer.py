"""softtcpx: a peer that is killed, or one of whose sockets breaks, is error 2."""

from __future__ import annotations

import os
import signal
import socket

import pytest
from ends import OWNERS, End, ends_of
from fresh_process import Line, Other, in_fresh_process
from net_v7 import SUCCESS, SYSTEM, Memory, Net, accept, connect, until
from own_process import data_sockets
from variants import variants_where

pytestmark = pytest.mark.only_softtcpx


def receiver_that_never_receives(line: Line) -> None:
    net = Net().started()
    listener, handle = net.listen()
    line.tell(handle)
    accept(net, listener)
    line.tell(b"ready")
    line.hear()


@pytest.mark.parametrize(
    "environ", variants_where(lambda environ: OWNERS.index(environ) in (1, 4, 5), OWNERS)
)
@in_fresh_process()
def test_16_sends_whose_peer_is_killed_are_error_2_which_stays(environ: dict[str, str]) -> None:
    net = Net().started()
    with Other(receiver_that_never_receives) as other:
        send = connect(net, other.line.hear())
        other.line.hear()
        end = End(net, send, Memory(32 << 20), sends=True)  # more than the kernel buffers
        for _ in range(16):
            assert end.post(0, end.memory.size) == SUCCESS
        for _ in range(1000):
            end.test_head()  # buffers of many sockets have room for some
        os.kill(other.process.pid, signal.SIGKILL)
        assert net.code_of(end.pending[0]) == SYSTEM
        assert end.post(0, 1) == SYSTEM
        assert net.table.close_send(send) == SUCCESS


def sender_of_two_messages(line: Line) -> None:
    net = Net().started()
    source = Memory(bytes(range(256)) * 512)
    end = End(net, connect(net, line.hear()), source, sends=True)
    for size in (source.size, 5000):
        assert end.post(0, size) == SUCCESS
    while end.pending:
        until(end.test_head, "a send")
    line.tell(b"sent")
    line.hear()


@pytest.mark.parametrize("posted_before", [True, False])
@pytest.mark.parametrize(
    "environ", variants_where(lambda environ: OWNERS.index(environ) in (1, 3, 5, 6), OWNERS)
)
@in_fresh_process()
def test_what_a_killed_sender_had_sent_still_arrives_and_then_comes_error_2(
    environ: dict[str, str], posted_before: bool
) -> None:
    net = Net().started()
    expected = bytes(range(256)) * 512
    target = Memory(3 * len(expected))
    offsets = [0, len(expected), 2 * len(expected)]
    with Other(sender_of_two_messages) as other:
        listener, handle = net.listen()
        other.line.tell(handle)
        end = End(net, accept(net, listener), target, sends=False)
        for offset in offsets if posted_before else ():
            assert end.post(offset, len(expected)) == SUCCESS
        other.line.hear()
        os.kill(other.process.pid, signal.SIGKILL)
        other.process.wait()
        for offset in () if posted_before else offsets:
            assert end.post(offset, len(expected)) == SUCCESS
        until(lambda: end.test_head() and len(end.pending) == 1, "what was sent")
        assert net.code_of(end.pending[0]) == SYSTEM
        content = target.content()
        assert content[: len(expected)] == expected
        assert content[len(expected) : len(expected) + 5000] == expected[:5000]
        assert net.table.close_recv(end.comm) == SUCCESS


@pytest.mark.parametrize("environ", [{}, {"SOFTTCPX_DIRECT_SOCKETS": "0"}], ids=["direct", "epoll"])
@in_fresh_process()
def test_the_end_of_a_data_socket_right_behind_its_last_byte_is_noticed(
    environ: dict[str, str],
) -> None:
    net = Net(log=True).started()
    sender, receiver = ends_of(net, Memory(b"s" * 5000), Memory(5000))
    control_and_data = data_sockets(port_side=False)
    receiver.post(0, 5000)
    for _ in range(100):  # the first looks, that find nothing yet
        assert net.test(receiver.pending[0]) == (SUCCESS, False)
    sender.post(0, 5000)
    until(sender.test_head, "the send")
    # Descriptors are handed out in order: the control socket is the older one.
    control_and_data[1].shutdown(socket.SHUT_WR)
    receiver.post(0, 5000)
    until(receiver.test_head, "what was sent")
    assert net.code_of(receiver.pending[0]) == SYSTEM


@pytest.mark.parametrize("victim", [0, 2])  # of control and two data sockets
@pytest.mark.parametrize("receiving_side", [True, False])
@pytest.mark.parametrize("environ", [{}, {"SOFTTCPX_DIRECT_SOCKETS": "0"}], ids=["direct", "epoll"])
@in_fresh_process(NCCL_NSOCKS_PERTHREAD="2")
def test_a_broken_socket_ends_the_pending_requests_with_code_2(
    environ: dict[str, str], victim: int, receiving_side: bool
) -> None:
    net = Net(log=True).started()
    sender, receiver = ends_of(net, Memory(64 << 20), Memory(64 << 20))
    receiver.post(0, 64 << 20)
    sockets = data_sockets(port_side=receiving_side)
    assert len(sockets) == 3
    sockets[victim].shutdown(socket.SHUT_RDWR)
    # A connection of which one socket is gone: more is sent than its buffers hold.
    sender.post(0, 64 << 20)
    codes: dict[bool, int] = {}

    def ends_failed() -> bool:
        for end in (sender, receiver):
            code, done = net.test(end.pending[0])
            assert not done
            if code != SUCCESS:
                codes[end.sends] = code
                if len(codes) == 1:  # as a caller does: the first error closes that side
                    close = net.table.close_send if end.sends else net.table.close_recv
                    assert code == SYSTEM
                    assert close(end.comm) == SUCCESS
                    survivors.remove(end)
                    return True
        return False

    survivors = [sender, receiver]
    until(ends_failed, "the first error")
    assert net.code_of(survivors[0].pending[0]) == SYSTEM
