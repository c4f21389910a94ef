"""softtcpx: a small message that was waited for is delivered first and acknowledged afterwards."""

from __future__ import annotations

import array
import fcntl
import operator
import os
import socket
import termios

import pytest
from ends import End, ends_of
from fresh_process import in_fresh_process
from hostile import FalseSender
from net_v7 import SLOTS, SUCCESS, Memory, Net, until
from own_process import data_sockets
from wire import header

HEADER, SIZE = 64, 8

pytestmark = pytest.mark.only_softtcpx


def unread(end: socket.socket) -> int:
    """Bytes in the socket that nobody has taken out, and that are hence not acknowledged."""
    count = array.array("i", [0])
    fcntl.ioctl(end, termios.FIONREAD, count)
    return count[0]


def data_ends() -> tuple[socket.socket, socket.socket]:
    """Duplicates of the sending and the receiving end of the one connection's data socket."""
    accepted = data_sockets(port_side=True)
    # Who connects makes descriptors in order, the control socket first; who accepts need not.
    outgoing = data_sockets(port_side=False)[1]
    port = outgoing.getsockname()[1]
    return outgoing, next(end for end in accepted if end.getpeername()[1] == port)


def waiting_pair(net: Net, receives: int = 2) -> tuple[End, End, socket.socket, socket.socket]:
    """Sender and receiver, with their data sockets; the receiver has looked and found nothing."""
    sender, receiver = ends_of(net, Memory(b"12345678" * 4), Memory(32))
    for slot in range(receives):
        assert receiver.post(slot * SIZE, SIZE) == SUCCESS
    for _ in range(5):
        assert not receiver.test_head()
    return sender, receiver, *data_ends()


def send(sender: End, *slots: int) -> None:
    for slot in slots:
        assert sender.post(slot * SIZE, SIZE) == SUCCESS
    while sender.pending:
        until(sender.test_head, "a send")


@in_fresh_process()
def test_an_answer_may_be_sent_before_the_question_is_acknowledged() -> None:
    sender, receiver, _, incoming = waiting_pair(Net().started())
    send(sender, 0)
    until(lambda: unread(incoming) == HEADER + SIZE, "the message")
    assert receiver.test_head()
    assert receiver.memory.content()[:SIZE] == b"12345678"
    assert unread(incoming) == HEADER + SIZE
    # Twice the next receive is tested while the caller posts and sends its answer.
    for _ in range(2):
        assert not receiver.test_head()
        assert unread(incoming) == HEADER + SIZE
    assert not receiver.test_head()
    assert unread(incoming) == 0
    send(sender, 1)
    until(receiver.test_head, "the next message")
    assert receiver.memory.content()[: 2 * SIZE] == b"12345678" * 2


@in_fresh_process()
def test_messages_that_nobody_waited_for_are_taken_at_once() -> None:
    net = Net().started()
    sender, receiver = ends_of(net, Memory(b"12345678" * 4), Memory(32))
    _, incoming = data_ends()
    send(sender, 0, 1, 2)
    for slot in range(3):
        assert receiver.post(slot * SIZE, SIZE) == SUCCESS
    until(receiver.test_head, "the first message")
    assert unread(incoming) == 0


@in_fresh_process()
def test_several_messages_of_one_look_are_each_delivered_once_and_in_order() -> None:
    sender, receiver, _, incoming = waiting_pair(Net().started(), receives=1)
    send(sender, 0, 1, 2, 3)
    until(lambda: unread(incoming) == 4 * (HEADER + SIZE), "the messages")
    assert receiver.test_head()
    for slot in (1, 2, 3):  # posted after they were looked at
        assert receiver.post(slot * SIZE, SIZE) == SUCCESS
        until(receiver.test_head, "a message")
    assert receiver.memory.content() == b"12345678" * 4
    receiver.post(0, SIZE)
    for _ in range(5):
        assert not receiver.test_head()
    assert unread(incoming) == 0


@pytest.mark.parametrize("environ", [{}, {"NCCL_SOCKET_NTHREADS": "1"}], ids=["caller", "worker"])
@in_fresh_process()
def test_a_receiver_that_closes_at_once_resets_nothing(environ: dict[str, str]) -> None:
    net = Net().started()
    sender, receiver, outgoing, incoming = waiting_pair(net, receives=1)
    incoming.close()  # a duplicate, which would keep it open
    send(sender, 0)
    until(receiver.test_head, "the message")
    assert net.table.close_recv(receiver.comm) == SUCCESS
    assert outgoing.recv(1) == b"", "an end, where a reset would be an error"


@in_fresh_process(NCCL_SOCKET_NTHREADS="1", SOFTTCPX_SPIN_US="0")
def test_a_worker_does_not_sleep_over_what_came_behind_held_bytes() -> None:
    """Then only its timer wakes it, every 100 ms, and the messages take minutes."""
    net = Net().started()
    peer = FalseSender(net)
    peer.data[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    receiver = End(net, peer.comm, Memory(SIZE), sends=False)
    messages = iter(range(200 * SLOTS))

    def sixteen_one_by_one() -> bool:
        for _ in range(SLOTS):
            assert receiver.post(0, SIZE) == SUCCESS
        while receiver.pending:
            peer.data[0].sendall(header(next(messages), SIZE, 0, SIZE) + bytes(SIZE))
            until(receiver.test_head, "a message")
        return operator.length_hint(messages) == 0

    until(sixteen_one_by_one, "the messages")
    peer.close()


@pytest.mark.parametrize(
    "environ",
    [
        {"SOFTTCPX_DIRECT_SOCKETS": "0"},
        {"SOFTTCPX_RCVBUF": "1"},
        {"SOFTTCPX_RCVBUF": "16384"},
    ],
    ids=["epoll", "least buffer", "small buffer"],
)
@in_fresh_process()
def test_nothing_is_held_where_the_sender_might_wait_for_its_room(environ: dict[str, str]) -> None:
    sender, receiver, _, incoming = waiting_pair(Net().started())
    send(sender, 0)
    until(lambda: unread(incoming) == HEADER + SIZE, "the message")
    until(receiver.test_head, "its delivery")
    assert unread(incoming) == 0


@pytest.mark.parametrize(
    ("environ", "quick"), [({}, 0), ({"SOFTTCPX_RCVBUF": "1"}, 1)], ids=["held back", "at once"]
)
@in_fresh_process()
def test_acknowledgements_are_held_back_where_the_window_has_room(
    environ: dict[str, str], quick: int
) -> None:
    """With the least window a burst crawls for many seconds where they are, 446 bytes a timer."""
    _, receiver, _, incoming = waiting_pair(Net().started())
    incoming.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    for _ in range(100):  # now and then while it waits
        assert not receiver.test_head()
    assert incoming.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == quick


@in_fresh_process(SOFTTCPX_DIRECT_SOCKETS="1")
def test_what_is_held_is_let_go_when_others_wait_too() -> None:
    net = Net().started()
    sender, receiver, _, incoming = waiting_pair(net)
    send(sender, 0)
    until(receiver.test_head, "the message")
    assert unread(incoming) == HEADER + SIZE
    other = ends_of(net, Memory(SIZE), Memory(SIZE))[1]
    assert other.post(0, SIZE) == SUCCESS
    for _ in range(2):  # it learns that the other has heard nothing for it, and asks
        assert not receiver.test_head()
    assert unread(incoming) == 0


@pytest.mark.parametrize("environ", [{}, {"SOFTTCPX_DIRECT_SOCKETS": "0"}], ids=["direct", "epoll"])
@in_fresh_process(SOFTTCPX_RCVBUF="1")
def test_messages_wait_for_no_timer_of_tcp_in_the_least_window(environ: dict[str, str]) -> None:
    """It has room for one segment: one that is acknowledged too early costs 200 ms each time."""
    net = Net().started()
    size, count = 1500, 4
    content = os.urandom(count * size)
    sender, receiver = ends_of(net, Memory(content), Memory(count * size))
    rounds = iter(range(200))

    def four_at_once() -> bool:
        next(rounds)
        for slot in range(count):
            assert receiver.post(slot * size, size) == SUCCESS
        for _ in range(5):  # it waits
            assert not receiver.test_head()
        for slot in range(count):
            assert sender.post(slot * size, size) == SUCCESS
        while sender.pending or receiver.pending:
            for end in (sender, receiver):
                if end.pending:
                    end.test_head()
        return operator.length_hint(rounds) == 0

    until(four_at_once, "the messages")
    assert receiver.memory.content() == content


@in_fresh_process(SOFTTCPX_DIRECT_SOCKETS="1")
def test_nothing_is_held_once_others_wait_too() -> None:
    net = Net().started()
    sender, receiver, _, incoming = waiting_pair(net)
    other = ends_of(net, Memory(SIZE), Memory(SIZE))[1]
    assert other.post(0, SIZE) == SUCCESS
    send(sender, 0)
    until(receiver.test_head, "the message")
    assert unread(incoming) == 0


@in_fresh_process(SOFTTCPX_DIRECT_SOCKETS="1")
def test_what_came_before_its_receive_is_delivered_though_epoll_tells_of_nothing_new() -> None:
    """It was taken out of the socket while sockets were tried, and others wait too since then."""
    net = Net().started()
    sender, receiver = ends_of(net, Memory(b"12345678" * 4), Memory(32))
    _, incoming = data_ends()
    send(sender, 0)
    assert receiver.post(0, SIZE) == SUCCESS
    until(receiver.test_head, "a message that nobody waited for")
    send(sender, 1, 2)
    until(lambda: unread(incoming) == 2 * (HEADER + SIZE), "the next two")
    assert receiver.post(SIZE, SIZE) == SUCCESS
    assert receiver.test_head()
    assert unread(incoming) == 0
    other = ends_of(net, Memory(SIZE), Memory(SIZE))[1]
    assert other.post(0, SIZE) == SUCCESS
    assert receiver.post(2 * SIZE, SIZE) == SUCCESS
    until(receiver.test_head, "the third message")
    assert receiver.memory.content() == b"12345678" * 3 + bytes(SIZE)
