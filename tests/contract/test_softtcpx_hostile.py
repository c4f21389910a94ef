"""softtcpx among peers that mean harm: each is refused, and nobody else notices.

Three tables: strangers at a listener's port by the moment of their coming; senders and receivers
that were admitted and then break the rules on their control or data socket. Beside each a sound
connection of the same process moves its bytes. A crash is the exit code of the test's own process,
a blocking call is its time limit.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import socket
from collections.abc import Callable

import pytest
from fresh_process import in_fresh_process
from hostile import (
    CONNECTION,
    FLOOD,
    FalseReceiver,
    FalseSender,
    Relay,
    Siege,
    Traffic,
    reset,
)
from net_v7 import INTERNAL, SUCCESS, SYSTEM, Connecting, Memory, Net, until
from test_softtcpx_setup import exchange, open_descriptors, threads
from test_softtcpx_transfer import data_sockets
from wire import CONTROL, address_of, answer_of, credit, header, hello, secret_of

#: Strangers that wait at a listener at once, at most, and what a connection and a poller need.
MOST_DESCRIPTORS = 64 + 16
#: Rounds in which something that must not happen has not happened.
ROUNDS = 300


class Household:
    """What this process had before; `same` says that it has no more and no less now."""

    def __init__(self) -> None:
        self._before = (open_descriptors(), threads())

    def new_descriptors(self) -> int:
        return len(open_descriptors()) - len(self._before[0])

    def assert_same(self) -> None:
        descriptors, threads_now = open_descriptors(), threads()
        if "TSAN_OPTIONS" in os.environ:  # libtsan starts a thread of its own
            threads_now = self._before[1]
        assert (descriptors, threads_now) == self._before


def with_room_for_a_flood() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard >= 3 * FLOOD, "the tests need a higher limit of open files (ulimit -Hn)"
    resource.setrlimit(resource.RLIMIT_NOFILE, (3 * FLOOD, hard))


def handshake(
    net: Net, listen_comm: int, connecting: Connecting, meanwhile: Callable[[], None] = int
) -> tuple[int, int]:
    """Connect and accept in turn, and `meanwhile`, until both ends are there."""
    ends: dict[str, int] = {}

    def step() -> bool:
        meanwhile()
        for name, poll in (("send", connecting.step), ("recv", lambda: net.accept(listen_comm))):
            if name not in ends:
                code, comm = poll()
                assert code == SUCCESS, f"{name} side: {code}"
                if comm is not None:
                    ends[name] = comm
        return len(ends) == 2

    until(step, "the handshake")
    assert net.table.close_listen(listen_comm) == SUCCESS
    return ends["send"], ends["recv"]


def close_both(net: Net, send: int, recv: int) -> None:
    assert net.table.close_send(send) == SUCCESS
    assert net.table.close_recv(recv) == SUCCESS


def recorded_hellos(net: Net) -> list[bytes]:
    """What a sound connecting side said on its sockets, in order, to a listener now closed."""
    listen_comm, handle = net.listen()
    relay = Relay(handle, sockets=3)
    close_both(net, *handshake(net, listen_comm, Connecting(net, relay.handle), relay.pump))
    relay.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address_of(handle))
    assert [len(said) for said in relay.recorded] == [64, 64, 64]
    return relay.recorded


STRANGERS = [
    "noise",
    "a hello of noise",
    "zeros",
    "http",
    "silence",
    "half a handshake",
    "half a handshake, then the end",
    "another version",
    "another number of sockets",
    "a socket too many",
    "an answer",
    "the answer for the secret",
    "a foreign secret",
    "recorded elsewhere",
    "a byte at a time",
    "reset",
    "flood",
]


@pytest.mark.parametrize("moment", ["before accept", "in a handshake", "in a transfer"])
@pytest.mark.parametrize("kind", STRANGERS)
@in_fresh_process(NCCL_NSOCKS_PERTHREAD="2")
def test_a_stranger_at_the_port_disturbs_nobody_and_leaves_nothing(kind: str, moment: str) -> None:
    with_room_for_a_flood()
    net = Net().started()
    household = Household()
    recorded = recorded_hellos(net) if kind == "recorded elsewhere" else []
    other_listener, foreign = net.listen()
    listen_comm, handle = net.listen()
    siege = Siege(kind, handle, recorded, foreign)
    connecting = Connecting(net, handle)
    if moment == "before accept":
        for _ in range(siege.acts):
            siege.act()
        mine = household.new_descriptors()
    elif moment == "in a handshake":
        for number in range(siege.acts):
            siege.act()
            if number % 10 == 3:
                assert connecting.step() == (SUCCESS, None)
        mine = household.new_descriptors()
    else:
        traffic = Traffic(net)
        mine = household.new_descriptors() + siege.acts
        for _ in range(siege.acts):
            siege.act()
            assert net.accept(listen_comm) == (SUCCESS, None)
            traffic.pump()
        traffic.finish()
    for _ in range(FLOOD // 10):
        if moment != "in a handshake":
            assert net.accept(listen_comm) == (SUCCESS, None)
    assert household.new_descriptors() - mine <= MOST_DESCRIPTORS, "strangers are bounded"
    ends = handshake(net, listen_comm, connecting)
    exchange(net, *ends)
    close_both(net, *ends)
    siege.lift()
    assert net.table.close_listen(other_listener) == SUCCESS
    household.assert_same()


@pytest.mark.parametrize("kind", ["silence", "noise"])
@in_fresh_process()
def test_strangers_that_take_the_last_descriptors_give_way(kind: str) -> None:
    with_room_for_a_flood()
    net = Net().started()
    listen_comm, handle = net.listen()
    siege = Siege(kind, handle, [], handle)
    connecting = Connecting(net, handle)
    for number in range(siege.acts):
        siege.act()
        if number in (10, 20):  # connect, and say hello
            assert connecting.step() == (SUCCESS, None)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    last = max(map(int, open_descriptors()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (last + 4, hard))
    exchange(net, *handshake(net, listen_comm, connecting))


class Mallinfo2(ctypes.Structure):
    """malloc.h's, of which we want one of ten numbers."""

    _fields_ = [("fields", ctypes.c_size_t * 10)]  # noqa: RUF012 (ctypes reads it so)


@in_fresh_process()
def test_floods_leave_no_memory_behind() -> None:
    with_room_for_a_flood()
    net = Net().started()
    listen_comm, handle = net.listen()

    mallinfo2 = ctypes.CDLL(None).mallinfo2
    mallinfo2.restype = Mallinfo2

    def flooded() -> int:
        """Bytes that malloc has given out, after one more flood."""
        siege = Siege("flood", handle, [], handle)
        for _ in range(siege.acts):
            siege.act()
            assert net.accept(listen_comm) == (SUCCESS, None)
        siege.lift()
        for _ in range(10):
            assert net.accept(listen_comm) == (SUCCESS, None)
        gc.collect()
        return int(mallinfo2().fields[7])  # uordblks

    flooded()
    first = flooded()
    assert flooded() - first < 16 * FLOOD, "bytes a stranger"


@in_fresh_process(NCCL_NSOCKS_PERTHREAD="2")
def test_the_recorded_hellos_of_a_handshake_under_way_are_refused() -> None:
    net = Net(log=True).started()
    household = Household()
    listen_comm, handle = net.listen()
    relay = Relay(handle, sockets=3)
    relay.held = {2}  # the last data socket: the handshake is not whole
    connecting = Connecting(net, relay.handle)

    def all_said() -> bool:
        assert connecting.step() == (SUCCESS, None)
        relay.pump()
        assert net.accept(listen_comm) == (SUCCESS, None)
        return [len(said) for said in relay.recorded] == [64, 64, 64]

    until(all_said, "three hellos")
    for _ in range(ROUNDS):
        assert net.accept(listen_comm) == (SUCCESS, None)
    replays = [socket.create_connection(address_of(handle)) for _ in range(2)]
    for replay, said in zip(replays, relay.recorded[:2], strict=True):
        replay.sendall(said)
        replay.setblocking(False)

    def refused() -> bool:
        assert net.accept(listen_comm) == (SUCCESS, None)
        return sum("replayed" in line for line in net.log_lines) == 2

    until(refused, "two refusals")
    for replay in replays:
        assert replay.recv(1) == b""
        replay.close()
    relay.held = set()
    close_both(net, *handshake(net, listen_comm, connecting, relay.pump))
    relay.close()
    household.assert_same()


@in_fresh_process(NCCL_NSOCKS_PERTHREAD="2")
def test_no_port_of_a_running_connection_takes_another() -> None:
    net = Net().started()
    household = Household()
    traffic = Traffic(net)
    traffic.pump()
    ports = {end.getsockname() for side in (True, False) for end in data_sockets(side)}
    assert len(ports) == 1 + 3, "the listener's, and those of control and data sockets"
    for port in ports:
        for _ in range(20):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(port)
            traffic.pump()
    traffic.finish()
    household.assert_same()


# Peers that were admitted -------------------------------------------------------------------------

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
    assert target.content()[written:] == b"p" * (ROOM - written)
    if expected is not None:
        assert net.irecv(peer.comm, target.address, ROOM, mhandle)[0] == expected
    traffic.finish()
    assert net.table.close_recv(peer.comm) == SUCCESS
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
    "a hello": (hello(CONTROL, 0, 1, CONNECTION, bytes(16)), "stays", INTERNAL),
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


@pytest.mark.parametrize("sockets", [1, 2])
@in_fresh_process(SOFTTCPX_CONNECT_TIMEOUT_MS="200", SOFTTCPX_ANSWER_TIMEOUT_MS="200")
def test_a_listener_that_answers_with_floods_is_given_up(sockets: int) -> None:
    net = Net(log=True).started()
    household = Household()
    traffic = Traffic(net)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        genuine_listener, handle = net.listen()
        where = (
            handle[:16]
            + server.getsockname()[1].to_bytes(2, "big")
            + bytes([sockets])
            + handle[19:]
        )
        connecting = Connecting(net, where)
        arrived: list[socket.socket] = []

        def given_up() -> bool:
            traffic.pump()
            code, comm = connecting.step()
            assert comm is None
            try:
                arrived.append(server.accept()[0])
                arrived[-1].sendall(bytes(range(256)) * 16)
            except (BlockingIOError, ConnectionError):
                pass
            return code == SYSTEM

        until(given_up, "code 2")
        for peer in arrived:
            peer.close()
    traffic.finish()
    assert net.table.close_listen(genuine_listener) == SUCCESS
    for secret in (secret_of(handle), answer_of(handle)):
        assert not any(secret.hex() in line for line in net.log_lines)
    household.assert_same()


@pytest.mark.parametrize(
    "wrong", ["secret", "answer as secret", "version", "sockets", "index", "kind", "spare"]
)
@in_fresh_process(NCCL_NSOCKS_PERTHREAD="2")
def test_a_whole_handshake_that_is_not_for_this_listener_is_closed(wrong: str) -> None:
    net = Net().started()
    listen_comm, handle = net.listen()
    secret, answer = handle[24:40], handle[40:56]
    proof = {"secret": secret[:15] + bytes([secret[15] ^ 1]), "answer as secret": answer}
    strangers = []
    for kind, index in ((1, 0), (2, 0), (2, 1)):
        said = bytearray(hello(kind, index, 2, b"c" * 16, proof.get(wrong, secret)))
        if wrong == "version":
            said[8] += 1
        elif wrong == "kind":
            said[12] = 3
        elif wrong == "index":
            said[13] = 9
        elif wrong == "sockets":
            said[14] = 3
        elif wrong == "spare":
            said[63] = 1
        stranger = socket.create_connection(address_of(handle))
        stranger.sendall(said)
        stranger.setblocking(False)
        strangers.append(stranger)

    def all_closed() -> bool:
        assert net.accept(listen_comm) == (SUCCESS, None)
        for stranger in tuple(strangers):
            try:
                assert stranger.recv(64) == b"", "a stranger was answered"
            except BlockingIOError:
                continue
            except ConnectionResetError:
                pass
            strangers.remove(stranger)
        return not strangers

    until(all_closed, "refusals")


@in_fresh_process()
def test_the_secret_of_a_handle_is_random_and_appears_in_no_log_line() -> None:
    net = Net(log=True).started()
    _, first = net.listen()
    listen_comm, second = net.listen()
    assert first[24:40] != second[24:40]
    assert first[40:56] != second[40:56]
    stranger = socket.create_connection(address_of(second))
    stranger.sendall(hello(2, 7, 1, b"c" * 16, second[24:40]))
    until(lambda: net.accept(listen_comm) == (0, None) and len(net.log_lines) > 0, "a refusal")
    until(
        lambda: net.accept(listen_comm) == (0, None) and any("refused" in s for s in net.log_lines),
        "a refusal",
    )
    text = "\n".join(net.log_lines)
    for secret in (second[24:40], second[40:56]):
        assert secret.hex() not in text.lower()
        assert secret.decode("latin-1") not in text
