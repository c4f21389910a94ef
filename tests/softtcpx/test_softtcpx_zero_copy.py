"""softtcpx's sends out of GPU memory without a copy: pieces lie where they are until they are read.

One side is a peer of our own, which reads and says what it likes.
"""

from __future__ import annotations

import contextlib
import os
import random
import resource
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from fresh_process import in_fresh_process
from gpu import Driver, GpuMemory, GpuPair
from hostile import FalseReceiver, FalseSender, Household
from net_v7 import INTERNAL, SLOTS, SUCCESS, SYSTEM, Memory, Net, until
from own_process import data_sockets
from wire import credit, header, returned

PIECE = 65536  # the least that is lent
MORE_THAN_SOCKETS_HOLD = 64 << 20
HEADER = len(header(0, 0, 0, 0))
WORKER = {"SOFTTCPX_WORKERS": "1"}
#: A ring with room for two pieces.
TWO = {"SOFTTCPX_COPY_BYTES": str(PIECE), "SOFTTCPX_COPIES": "2"}
#: Tests in which something that must not happen has not happened.
ROUNDS = 20_000

pytestmark = [
    pytest.mark.only_softtcpx,
    pytest.mark.usefixtures("driver_of_the_test_bodies"),
]


class Lending:
    """Sends out of GPU memory to a receiver of our own."""

    def __init__(self, content: bytes, threads: int = 1, sockets: int = 1, flags: int = 0) -> None:
        self.net, driver = Net(log=True).started(), Driver()
        self.peer = FalseReceiver(self.net, sockets, threads, flags)
        self.content = content
        source = GpuMemory(driver, content)
        self._address = source.address
        self._mhandle = source.registered(self.net, self.peer.comm)
        self._sends: list[int | None] = []
        self._sent = 0

    def send(self, size: int) -> None:
        """The next bytes of the content."""
        code, request = self.net.isend(
            self.peer.comm, self._address + self._sent, size, self._mhandle
        )
        assert code == SUCCESS
        assert request is not None
        self._sends.append(request)
        self._sent += size

    def done(self) -> int:
        """Sends that are done; each look is one test of the oldest other one."""
        while self._sends and self.net.test(self._sends[0]) == (SUCCESS, True):
            self._sends.pop(0)
        return -len(self._sends)

    def all_done(self) -> bool:
        return self.done() == 0

    def piece(self, number: int = 0) -> tuple[int, int, bytes]:
        """The next one in a data socket: flags, offset in its message, bytes."""
        head = self._read(number, HEADER)
        length, _, _, offset, flags = struct.unpack("<IQQQI", head[4:36])
        assert head == header(*struct.unpack("<QQQ", head[8:32]), length, flags)
        return flags, offset, self._read(number, length)

    def _read(self, number: int, count: int) -> bytes:
        heard = bytearray()

        def is_complete() -> bool:
            self.done()
            try:
                heard.extend(self.peer.data[number].recv(count - len(heard)))
            except BlockingIOError:
                return False
            return len(heard) == count

        until(is_complete, f"{count} bytes")
        return bytes(heard)

    def code(self) -> int:
        return self.net.code_of(self._sends[0])


@in_fresh_process(**TWO)
def test_nothing_is_copied_to_where_a_piece_lies_that_was_not_read() -> None:
    content = os.urandom(6 * PIECE)
    lending = Lending(content)
    for _ in range(6):
        lending.send(PIECE)
    until(lambda: lending.done() == -4, "the ring to be full")
    for _ in range(ROUNDS):
        assert lending.done() == -4
    # The kernel says that the peer has them, which has not looked at one.
    for k in range(2):
        assert lending.piece() == (1, 0, content[k * PIECE :][:PIECE])
    for _ in range(ROUNDS):
        assert lending.done() == -4, "read is what was told to be read"
    lending.peer.control.sendall(returned(0, 1))
    until(lambda: lending.done() == -3, "one more")
    for _ in range(ROUNDS):
        assert lending.done() == -3
    assert lending.piece()[2] == content[2 * PIECE :][:PIECE]
    lending.peer.control.sendall(returned(0, 3))
    until(lambda: lending.done() == -1, "two more at once")
    for k in (3, 4):
        assert lending.piece()[2] == content[k * PIECE :][:PIECE]
    lending.peer.control.sendall(returned(0, 5))
    until(lending.all_done, "the last one")
    assert lending.piece()[2] == content[5 * PIECE :]
    assert lending.net.table.close_send(lending.peer.comm) == SUCCESS


@in_fresh_process(NCCL_NSOCKS_PERTHREAD="3", NCCL_DYNAMIC_CHUNK_SIZE=str(PIECE), **TWO)
def test_each_socket_has_its_own_count() -> None:
    content = os.urandom(12 * PIECE)
    lending = Lending(content, sockets=3)
    lending.send(12 * PIECE)
    heard, counts = {}, [0, 0, 0]
    while len(heard) < 12:
        for number, peer in enumerate(lending.peer.data):
            lending.done()
            try:
                peer.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                continue
            flags, offset, body = lending.piece(number)
            assert flags == 1
            heard[offset] = body
            counts[number] += 1
            lending.peer.control.sendall(returned(number, counts[number]))
    assert b"".join(heard[k * PIECE] for k in range(12)) == content
    until(lending.all_done, "the end")


@pytest.mark.parametrize(
    ("environ", "threads"),
    [({}, 0), ({"SOFTTCPX_ZERO_COPY": "0"}, 1)],
    ids=["nobody but the caller", "not wanted"],
)
@in_fresh_process()
def test_otherwise_pieces_are_copied(environ: dict[str, str], threads: int) -> None:
    content = os.urandom(2 * PIECE)
    lending = Lending(content + bytes(MORE_THAN_SOCKETS_HOLD), threads)
    lending.send(2 * PIECE)
    assert lending.piece() == (0, 0, content)
    until(lending.all_done, "the end")
    lending.send(MORE_THAN_SOCKETS_HOLD)
    lending.peer.control.sendall(returned(0, 1))
    assert lending.code() == INTERNAL, "nothing was lent"


@in_fresh_process()
def test_small_pieces_are_copied_among_lent_ones() -> None:
    sizes = [PIECE - 1, PIECE, 0, 100, PIECE + 1, 4096, 0, 3 * PIECE]
    content = os.urandom(sum(sizes))
    lending = Lending(content)
    for size in sizes:
        lending.send(size)
    at = 0
    for size in sizes:
        flags, offset, body = lending.piece()
        assert (flags, offset, len(body)) == (int(size >= PIECE), 0, size)
        assert body == content[at : at + size]
        at += size
    until(lending.all_done, "the end")


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    open_files = max(int(name) for name in os.listdir("/proc/self/fd"))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def small_pipes() -> Iterator[None]:
    """Those of a user who has more than Linux gives a user without privileges."""
    limit = int(Path("/proc/sys/fs/pipe-user-pages-soft").read_text())
    assert 0 < limit <= 1 << 14, f"needs the usual fs.pipe-user-pages-soft; found {limit}"
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if os.getuid() == 0:
        os.setuid(65534)
    pipes = [os.pipe() for _ in range(limit // 16 + 1)]
    yield
    for ends in pipes:
        os.close(ends[0])
        os.close(ends[1])


@pytest.mark.parametrize("lack", ["no_descriptors", "small_pipes"])
@in_fresh_process()
def test_where_no_good_pipe_is_to_be_had_pieces_are_copied(lack: str) -> None:
    content = os.urandom(PIECE)
    net, driver = Net(log=True).started(), Driver()
    source = GpuMemory(driver, content)
    peer = FalseReceiver(net, threads=1)
    with {"no_descriptors": no_descriptors, "small_pipes": small_pipes}[lack]():
        mhandle = source.registered(net, peer.comm)
    assert any("are copied from data socket 0 on" in line for line in net.log_lines)
    code, request = net.isend(peer.comm, source.address, PIECE, mhandle)
    assert code == SUCCESS
    net.finish(request)
    heard = bytearray()

    def is_complete() -> bool:
        try:
            heard.extend(peer.data[0].recv(HEADER + PIECE))
        except BlockingIOError:
            return False
        return len(heard) == HEADER + PIECE

    until(is_complete, "the piece")
    assert bytes(heard) == header(0, PIECE, 0, PIECE) + content


@in_fresh_process(**WORKER)
def test_pipes_are_closed_with_their_connection() -> None:
    net, driver = Net().started(), Driver()
    for _ in range(3):  # the first one loads what the rest need
        household = Household()
        pair = GpuPair(net, driver, os.urandom(4 * PIECE))
        pair.exchange([PIECE] * 4)
        pair.close()
    household.assert_same()


#: What a receiver says of four pieces that were sent, of which it has told that one is read; and
#: the code of the sends behind them.
LIES = {
    "one again": (returned(0, 1), INTERNAL),
    "one less": (returned(0, 0), INTERNAL),
    "one more than there are": (returned(0, 5), INTERNAL),
    "the most": (returned(0, 2**64 - 1), INTERNAL),
    "of another socket": (returned(1, 1), INTERNAL),
    "of the last socket": (returned(2**32 - 1, 1), INTERNAL),
    "a credit": (credit(1), INTERNAL),
    "noise": (bytes(range(16)), INTERNAL),
    "half a return": (returned(0, 4)[:8], None),
    "the end": (b"", SYSTEM),
}


@pytest.mark.parametrize("lie", LIES)
@in_fresh_process(SOFTTCPX_COPY_BYTES=str(PIECE), SOFTTCPX_COPIES="3")
def test_a_receiver_that_lies_about_what_it_has_read(lie: str) -> None:
    said, expected = LIES[lie]
    content = os.urandom(6 * PIECE)
    lending = Lending(content)
    for _ in range(6):
        lending.send(PIECE)
    for k in range(4):
        assert lending.piece()[2] == content[k * PIECE :][:PIECE]
        if k == 0:
            lending.peer.control.sendall(returned(0, 1))
    if said:
        lending.peer.control.sendall(said)
    else:
        lending.peer.control.close()
    if expected is None:
        for _ in range(ROUNDS):
            assert lending.done() == -2
    else:
        assert lending.code() == expected
    lending.net.table.close_send(lending.peer.comm)
    lending.peer.close()


# The receiver -------------------------------------------------------------------------------------


def _hears(peer: FalseSender, expected: bytes) -> None:
    assert peer.control.recv(len(expected), socket.MSG_WAITALL) == expected


@pytest.mark.parametrize("environ", [{}, WORKER], ids=["caller", "worker"])
@in_fresh_process()
def test_a_receiver_tells_of_a_lent_piece_once_its_last_byte_is_read(
    environ: dict[str, str],
) -> None:
    net = Net().started()
    peer = FalseSender(net)
    target = Memory(4 * PIECE)
    mhandle = net.registered(peer.comm, target)
    body = os.urandom(4 * PIECE)
    code, request = net.irecv(peer.comm, target.address, 2 * PIECE, mhandle)
    assert code == SUCCESS
    peer.data[0].sendall(header(0, 2 * PIECE, 0, 2 * PIECE, 1) + body[: 2 * PIECE - 1])
    peer.control.setblocking(False)
    for _ in range(ROUNDS):
        assert net.test(request) == (SUCCESS, False)
    with pytest.raises(BlockingIOError):
        peer.control.recv(1)
    peer.control.setblocking(True)
    peer.data[0].sendall(body[2 * PIECE - 1 : 2 * PIECE])
    net.finish(request)
    _hears(peer, returned(0, 1))
    assert net.consumed(peer.comm, request) == SUCCESS
    # One that is not lent, and one that is.
    peer.data[0].sendall(header(1, 2 * PIECE, 0, PIECE) + body[2 * PIECE : 3 * PIECE])
    peer.data[0].sendall(header(1, 2 * PIECE, PIECE, PIECE, 1) + body[3 * PIECE :])
    code, request = net.irecv(peer.comm, target.address + 2 * PIECE, 2 * PIECE, mhandle)
    net.finish(request)
    _hears(peer, returned(0, 2))
    assert net.consumed(peer.comm, request) == SUCCESS
    assert target.content() == body
    peer.close()


@in_fresh_process()
def test_a_receiver_tells_of_all_where_it_could_not_tell_of_each() -> None:
    """The sender hears nothing until no notice has room any more."""
    net = Net().started()
    peer = FalseSender(net)
    peer.control.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    for its_own in data_sockets(port_side=True):
        its_own.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    target = Memory(64)
    mhandle = net.registered(peer.comm, target)
    sent = 0

    def message() -> None:
        nonlocal sent
        code, request = net.irecv(peer.comm, target.address, 1, mhandle)
        assert code == SUCCESS
        peer.data[0].sendall(header(sent, 1, 0, 1, 1) + b"x")
        sent += 1
        net.finish(request)
        assert net.consumed(peer.comm, request) == SUCCESS

    for _ in range(20_000):
        message()
    heard = bytearray()

    def caught_up() -> bool:
        message()  # what was not told is told with what comes
        heard.extend(peer.control.recv(1 << 20))
        return bytes(heard[-16:]) == returned(0, sent) and len(heard) % 16 == 0

    until(caught_up, "the newest count", seconds=60)
    counts = [struct.unpack("<IQ", heard[k + 4 : k + 16])[1] for k in range(0, len(heard), 16)]
    assert counts == sorted(set(counts))
    assert len(counts) < sent, "there was room for all"
    peer.close()


@pytest.mark.parametrize("slots", [1, SLOTS])
@in_fresh_process(SOFTTCPX_POISON="1", **WORKER, **TWO)
def test_both_ends_move_every_byte_through_a_small_ring(slots: int) -> None:
    net, driver = Net().started(), Driver()
    sizes = [PIECE, PIECE - 1, 5 * PIECE, 0, 3 * PIECE + 1, PIECE + 4096, 1, 2 * PIECE] * 8
    pair = GpuPair(net, driver, os.urandom(sum(sizes)))
    pair.exchange(sizes, slots)
    pair.close()


#: Sockets that are full time and again, so that pieces are sent in parts.
FULL = {"SOFTTCPX_SNDBUF": "65536", **WORKER}


@pytest.mark.parametrize(
    "environ",
    [
        FULL,
        {**FULL, "SOFTTCPX_DIRECT_SOCKETS": "0", "SOFTTCPX_SPIN_US": "0"},
        {**FULL, "NCCL_NSOCKS_PERTHREAD": "3", "NCCL_DYNAMIC_CHUNK_SIZE": str(PIECE)},
        {**FULL, "NCCL_GPUDIRECTTCPX_RECV_SYNC": "1"},
    ],
    ids=["-", "by epoll, asleep", "3 sockets", "credits"],
)
@in_fresh_process(SOFTTCPX_POISON="1")
def test_both_ends_move_every_byte_through_full_sockets(environ: dict[str, str]) -> None:
    net, driver = Net().started(), Driver()
    draw = random.Random(1)
    sizes = [
        draw.choice([draw.randrange(5000), PIECE + draw.randrange(3 * PIECE)]) for _ in range(200)
    ]
    pair = GpuPair(net, driver, os.urandom(sum(sizes)))
    pair.exchange(sizes)
    pair.close()
