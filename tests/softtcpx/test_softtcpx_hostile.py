"""softtcpx among peers that were admitted and then break the rules: nobody else notices.

Two tables: senders and receivers that lie on their control or data socket. Beside each a sound
connection of the same process moves its bytes. A crash is the exit code of the test's own process,
a blocking call is its time limit.
"""

from __future__ import annotations

import contextlib
import socket
import time

import pytest
from fresh_process import in_fresh_process
from hostile import ATTEMPT, FalseReceiver, FalseSender, Household, Traffic, reset
from net_v7 import INTERNAL, SUCCESS, SYSTEM, Memory, Net, until
from wire import HELLO, credit, greeting, header

pytestmark = pytest.mark.only_softtcpx

#: How long a receiver that has lost a socket waits for the next byte of another.
QUIET_S = 1.0
#: Rounds in which something that must not happen has not happened.
ROUNDS = 300

#: Owners of a hostile connection: the caller of test, or a worker that it shares with sound ones.
both_owners = pytest.mark.parametrize(
    "environ", [{}, {"NCCL_SOCKET_NTHREADS": "1"}], ids=["caller", "worker"]
)
MOST = 2**64 - 1
ROOM = 100
GOOD = header(0, ROOM, 0, ROOM) + b"g" * ROOM
#: What a sender says on its data socket, how it ends, the code of the receive posted for ROOM bytes
#: (None: it stays pending), and how many of the bytes from its start on may have been written.
SENDERS: dict[str, tuple[bytes, str, int | None, int]] = {
    "noise": (bytes(range(256)) * 40, "stays", INTERNAL, 0),
    "zeros": (bytes(64), "stays", INTERNAL, 0),
    "silence": (b"", "stays", None, 0),
    "half a header": (GOOD[:30], "stays", None, 0),
    "half a header, then the end": (GOOD[:30], "closes", SYSTEM, 0),
    "half a message": (GOOD[:100], "stays", None, 36),
    "half a message, then the end": (GOOD[:100], "closes", SYSTEM, 36),
    "half a message, then a reset": (GOOD[:100], "resets", SYSTEM, 36),
    "the end": (b"", "closes", SYSTEM, 0),
    "a reset": (b"", "resets", SYSTEM, 0),
    "a message too large": (header(0, ROOM + 1, 0, ROOM + 1) + b"x" * 101, "stays", INTERNAL, 0),
    "the largest message": (header(0, MOST, 0, 2**32 - 1) + b"x" * 200, "stays", INTERNAL, 0),
    "a piece behind the end": (header(0, ROOM, 60, 41) + b"x" * 41, "stays", INTERNAL, 0),
    "an offset behind the end": (header(0, ROOM, ROOM + 1, 1) + b"x", "stays", INTERNAL, 0),
    "an end that wraps around": (header(0, MOST, MOST, 2) + b"xx", "stays", INTERNAL, 0),
    "a wrap in a small message": (header(0, 50, MOST - 9, 20) + b"x" * 20, "stays", INTERNAL, 0),
    "two totals": (
        header(0, ROOM, 0, 10) + b"x" * 10 + header(0, 99, 10, 10) + b"x" * 10,
        "stays", INTERNAL, 10,
    ),
    "a piece twice": ((header(0, ROOM, 0, 60) + b"x" * 60) * 2, "stays", INTERNAL, 60),
    "an empty piece": (header(0, ROOM, 0, 0), "stays", INTERNAL, 0),
    "a spare byte": (GOOD[:63] + b"\1" + GOOD[64:], "stays", INTERNAL, 0),
    "a receive far ahead": (header(MOST, 10, 0, 10) + b"x" * 10, "stays", None, 0),
}  # fmt: skip


def watch(
    net: Net, traffic: Traffic, request: int | None, expected: int | None, at_most: int = ROUNDS
) -> None:
    """Both connections go on in turn, until the request fails as expected, or so many rounds."""
    code, rounds = SUCCESS, 0

    def over() -> bool:
        nonlocal code, rounds
        traffic.pump()
        code, done = net.test(request)
        assert not done, "a request of a hostile peer finished"
        rounds += 1
        return code != SUCCESS or (expected is None and rounds == at_most)

    until(over, "an error")
    assert code == (SUCCESS if expected is None else expected)
    if expected is not None:
        assert net.test(request) == (expected, False), "the error stays"


def end_of(peer: socket.socket, how: str) -> None:
    if how == "resets":
        reset(peer)
    elif how == "closes":
        peer.close()


def meet_a_sender(kind: str) -> None:
    said, how, expected, written = SENDERS[kind]
    net = Net()
    household = Household()
    traffic = Traffic(net)
    peer = FalseSender(net)
    target = Memory(b"p" * ROOM)
    mhandle = net.registered(peer.comm, target)
    code, request = net.irecv(peer.comm, target.address, ROOM, mhandle)
    assert code == SUCCESS
    peer.data[0].sendall(said)
    end_of(peer.data[0], how)
    watch(net, traffic, request, expected)
    if expected is not None:
        assert net.irecv(peer.comm, target.address, ROOM, mhandle)[0] == expected
    traffic.finish()
    assert net.table.close_recv(peer.comm) == SUCCESS
    # Only now: the buffer of a receive that stays pending is a worker's until its connection ends.
    assert target.content()[written:] == b"p" * (ROOM - written)
    peer.close()
    household.assert_same()


@pytest.mark.parametrize("kind", SENDERS)
@in_fresh_process()
def test_a_sender_that_lies_on_its_data_socket(kind: str) -> None:
    Net().started()
    meet_a_sender(kind)


@in_fresh_process(NCCL_SOCKET_NTHREADS="1")
def test_senders_that_lie_to_the_worker_of_sound_connections() -> None:
    Net().started()
    for kind in SENDERS:
        print(kind)
        meet_a_sender(kind)


@pytest.mark.parametrize("how", ["noise", "a credit", "closes", "resets"])
@in_fresh_process()
def test_a_sender_that_lies_on_its_control_socket(how: str) -> None:
    net = Net().started()
    household = Household()
    traffic = Traffic(net)
    peer = FalseSender(net)
    target = Memory(b"p" * ROOM)
    code, request = net.irecv(peer.comm, target.address, ROOM, net.registered(peer.comm, target))
    assert code == SUCCESS
    said = {"noise": b"x" * 5000, "a credit": credit(1)}.get(how, b"")
    peer.control.sendall(said)
    end_of(peer.control, how)
    watch(net, traffic, request, INTERNAL if said else SYSTEM)
    assert target.content() == b"p" * ROOM
    traffic.finish()
    assert net.table.close_recv(peer.comm) == SUCCESS
    peer.close()
    household.assert_same()


@in_fresh_process()
def test_after_an_error_of_the_control_socket_no_byte_is_written_any_more() -> None:
    net = Net().started()
    peer = FalseSender(net)
    target = Memory(b"p" * ROOM)
    _, request = net.irecv(peer.comm, target.address, ROOM, net.registered(peer.comm, target))
    peer.control.sendall(b"x")
    peer.data[0].sendall(GOOD)  # both are there before the first look
    assert net.code_of(request) == INTERNAL
    assert target.content() == b"p" * ROOM


@both_owners
@in_fresh_process()
def test_a_sender_that_is_only_slow_is_served(environ: dict[str, str]) -> None:
    net = Net().started()
    traffic = Traffic(net)
    peer = FalseSender(net)
    target = Memory(b"p" * ROOM)
    _, request = net.irecv(peer.comm, target.address, ROOM, net.registered(peer.comm, target))
    for k in range(len(GOOD)):
        assert net.test(request) == (SUCCESS, False)
        peer.data[0].sendall(GOOD[k : k + 1])
        traffic.pump()
    net.finish(request)
    assert target.content() == b"g" * ROOM
    traffic.finish()


@in_fresh_process(NCCL_NSOCKS_PERTHREAD="2")
def test_after_a_loss_bytes_that_still_come_are_waited_for_and_silence_is_not() -> None:
    """Longer than the second that silence is given: what counts is the last byte, not the loss."""
    net = Net().started()
    peer = FalseSender(net, sockets=2)
    room = 8 << 20  # more than what comes one by one
    target = Memory(room)
    mhandle = net.registered(peer.comm, target)
    _, request = net.irecv(peer.comm, target.address, room, mhandle)
    peer.data[0].close()
    peer.data[1].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.data[1].sendall(header(0, room, 0, room))
    sent, began = 0, time.monotonic()
    while time.monotonic() - began < 1.5 * QUIET_S:
        peer.data[1].sendall(b"g")
        sent += 1
        assert net.test(request) == (SUCCESS, False)
    assert sent < room
    rest = memoryview(b"g" * (room - sent))
    peer.data[1].setblocking(False)

    def done() -> bool:
        nonlocal rest
        with contextlib.suppress(BlockingIOError):
            rest = rest[peer.data[1].send(rest) :] if rest else rest
        code, done = net.test(request)
        assert code == SUCCESS
        return done

    until(done, "the rest")
    assert net.consumed(peer.comm, request) == SUCCESS
    assert target.content() == b"g" * room
    _, request = net.irecv(peer.comm, target.address, room, mhandle)
    assert net.code_of(request) == SYSTEM
    peer.close()


@in_fresh_process(NCCL_NSOCKS_PERTHREAD="2")
def test_after_a_loss_silence_counts_only_while_a_receive_is_posted() -> None:
    net = Net().started()
    peer = FalseSender(net, sockets=2)
    target = Memory(ROOM)
    mhandle = net.registered(peer.comm, target)
    peer.data[0].close()
    for sequence in range(2):
        _, request = net.irecv(peer.comm, target.address, ROOM, mhandle)
        assert net.test(request) == (SUCCESS, False)
        peer.data[1].sendall(header(sequence, ROOM, 0, ROOM) + b"g" * ROOM)
        net.finish(request)
        assert net.consumed(peer.comm, request) == SUCCESS
        began = time.monotonic()
        until(lambda since=began: time.monotonic() - since > 1.2 * QUIET_S, "silence")
    peer.close()


#: What a receiver says on its control socket to a sender that waits for credits, and the code of a
#: send that was posted (None: it stays pending).
RECEIVERS: dict[str, tuple[bytes, str, int | None]] = {
    "noise": (bytes(range(256)), "stays", INTERNAL),
    "zeros": (bytes(16), "stays", INTERNAL),
    "silence": (b"", "stays", None),
    "half a credit": (credit(1)[:15], "stays", None),
    "the end": (b"", "closes", SYSTEM),
    "a reset": (b"", "resets", SYSTEM),
    "a credit of nothing": (credit(0), "stays", INTERNAL),
    "a credit too many": (credit(17), "stays", INTERNAL),
    "the largest credit": (credit(MOST), "stays", INTERNAL),
    "a spare byte": (b"crdt\1" + credit(1)[5:], "stays", INTERNAL),
    "a hello": (greeting(HELLO, 0, 1, ATTEMPT), "stays", INTERNAL),
}


def meet_a_receiver(kind: str, threads: int) -> None:
    said, how, expected = RECEIVERS[kind]
    net = Net()
    household = Household()
    traffic = Traffic(net)
    peer = FalseReceiver(net, threads=threads, flags=1)
    source = Memory(b"s" * ROOM)
    mhandle = net.registered(peer.comm, source)
    code, request = net.isend(peer.comm, source.address, ROOM, mhandle)
    assert code == SUCCESS
    peer.control.sendall(said)
    end_of(peer.control, how)
    watch(net, traffic, request, expected)
    if how == "stays":
        with pytest.raises(BlockingIOError):
            peer.data[0].recv(1)  # nothing was sent without a credit
    traffic.finish()
    assert net.table.close_send(peer.comm) == SUCCESS
    peer.close()
    household.assert_same()


@pytest.mark.parametrize("kind", RECEIVERS)
@in_fresh_process(NCCL_GPUDIRECTTCPX_RECV_SYNC="1")
def test_a_receiver_that_lies_about_its_credits(kind: str) -> None:
    Net().started()
    meet_a_receiver(kind, threads=0)


@in_fresh_process(NCCL_GPUDIRECTTCPX_RECV_SYNC="1", NCCL_SOCKET_NTHREADS="1")
def test_receivers_that_lie_to_the_worker_of_sound_connections() -> None:
    Net().started()
    for kind in RECEIVERS:
        print(kind)
        meet_a_receiver(kind, threads=1)


@in_fresh_process(NCCL_GPUDIRECTTCPX_RECV_SYNC="1")
def test_a_credit_that_is_taken_back_ends_the_connection_after_what_it_allowed() -> None:
    net = Net().started()
    peer = FalseReceiver(net, flags=1)
    source = Memory(b"s" * ROOM)
    mhandle = net.registered(peer.comm, source)
    requests = [net.isend(peer.comm, source.address, ROOM, mhandle)[1] for _ in range(3)]
    for byte in credit(2):  # one at a time
        assert net.test(requests[0]) == (SUCCESS, False)
        peer.control.sendall(bytes([byte]))
    net.finish(requests[0])
    net.finish(requests[1])
    peer.control.sendall(credit(1))
    assert net.code_of(requests[2]) == INTERNAL


@both_owners
@pytest.mark.parametrize(
    "how", ["says a byte", "talks back on the data socket", "closes", "resets"]
)
@in_fresh_process()
def test_a_receiver_that_breaks_the_rules(how: str, environ: dict[str, str]) -> None:
    net = Net().started()
    household = Household()
    traffic = Traffic(net)
    peer = FalseReceiver(net, threads=len(environ))
    source = Memory(b"s" * (32 << 20))  # more than the buffers of the kernel hold
    code, request = net.isend(
        peer.comm, source.address, source.size, net.registered(peer.comm, source)
    )
    assert code == SUCCESS
    if how == "says a byte":
        peer.control.sendall(b"x")
    elif how == "talks back":
        with contextlib.suppress(BlockingIOError):
            while True:
                peer.data[0].send(b"x" * 65536)
    end_of(peer.data[0], how)
    expected = {"says a byte": INTERNAL, "closes": SYSTEM, "resets": SYSTEM}.get(how)
    watch(net, traffic, request, expected)  # talking back is never read, and does no harm
    traffic.finish()
    assert net.table.close_send(peer.comm) == SUCCESS
    peer.close()
    household.assert_same()
