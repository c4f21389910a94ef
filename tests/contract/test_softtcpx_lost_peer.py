"""softtcpx: a peer that is killed, that closes, or one of whose sockets breaks is error 2."""

from __future__ import annotations

import os
import signal
import socket

import pytest
from ends import End, ends_of, every_owner
from fresh_process import Line, Other, in_fresh_process
from net_v7 import SLOTS, SUCCESS, SYSTEM, Memory, Net, accept, connect, until
from own_process import data_sockets

pytestmark = pytest.mark.only_softtcpx


def receiver_that_never_receives(line: Line) -> None:
    net = Net().started()
    listen_comm, handle = net.listen()
    line.tell(handle)
    accept(net, listen_comm)
    line.tell(b"ready")
    line.hear()


@every_owner
@in_fresh_process()
def test_a_sender_whose_peer_is_killed_gets_code_2(environ: dict[str, str]) -> None:
    net = Net(log=True).started()
    with Other(receiver_that_never_receives) as other:
        send = connect(net, other.line.hear())
        other.line.hear()
        source = Memory(32 << 20)  # more than the kernel buffers
        end = End(net, send, source, True)
        for _ in range(SLOTS):
            assert end.post(0, 32 << 20) == SUCCESS
        for _ in range(1000):
            end.test_head()
        os.kill(other.process.pid, signal.SIGKILL)
        assert net.code_of(end.pending[0]) == SYSTEM
        assert end.post(0, 1) == SYSTEM, "the error stays"
        assert net.table.close_send(send) == SUCCESS


def sender_of_two_messages(line: Line) -> None:
    net = Net().started()
    source = Memory(bytes(range(256)) * 512)
    end = End(net, connect(net, line.hear()), source, True)
    for size in (source.size, 5000):
        assert end.post(0, size) == SUCCESS
    until(lambda: end.test_head() and not end.pending, "both sends")
    line.tell(b"sent")
    line.hear()


@pytest.mark.parametrize("posted_before", [True, False])
@every_owner
@in_fresh_process()
def test_what_a_killed_sender_had_sent_still_arrives_and_then_comes_code_2(
    environ: dict[str, str], posted_before: bool
) -> None:
    net = Net(log=True).started()
    expected = bytes(range(256)) * 512
    target = Memory(3 * len(expected))
    with Other(sender_of_two_messages) as other:
        listen_comm, handle = net.listen()
        other.line.tell(handle)
        end = End(net, accept(net, listen_comm), target, False)
        offsets = [0, len(expected), 2 * len(expected)]
        if posted_before:
            for offset in offsets:
                end.post(offset, len(expected))
        other.line.hear()
        os.kill(other.process.pid, signal.SIGKILL)
        other.process.wait()
        if not posted_before:
            for offset in offsets:
                assert end.post(offset, len(expected)) == SUCCESS
        until(lambda: end.test_head() and len(end.pending) == 1, "what was sent")
        assert net.code_of(end.pending[0]) == SYSTEM
        content = target.content()
        assert content[: len(expected)] == expected
        assert content[len(expected) : len(expected) + 5000] == expected[:5000]
        assert net.table.close_recv(end.comm) == SUCCESS


@every_owner
@in_fresh_process()
def test_an_idle_receiver_learns_that_its_peer_closed(environ: dict[str, str]) -> None:
    net = Net().started()
    sender, receiver = ends_of(net, Memory(10), Memory(10))
    receiver.post(0, 10)
    for _ in range(200):
        assert net.test(receiver.pending[0]) == (SUCCESS, False)
    assert net.table.close_send(sender.comm) == SUCCESS
    assert net.code_of(receiver.pending[0]) == SYSTEM


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


@pytest.mark.parametrize("victim", [0, 1, 2])
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

    def both_failed() -> bool:
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
    until(both_failed, "the first error")
    assert net.code_of(survivors[0].pending[0]) == SYSTEM
