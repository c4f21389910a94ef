"""Peers that mean harm: strangers at a listener's port, and peers that were admitted and lie."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections import deque
from collections.abc import Callable

from net_v7 import SLOTS, SUCCESS, Connecting, Memory, Net, until
from test_softtcpx_transfer import ends_of
from wire import (
    ANSWER,
    CONTROL,
    DATA,
    HELLO_BYTES,
    address_of,
    answer_of,
    handle,
    hello,
    secret_of,
)

CONNECTION = b"c" * 16
FLOOD = 1000
Step = Callable[[], bool]


def reset(peer: socket.socket) -> None:
    """Close with an RST, whatever is still on its way."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


class Traffic:
    """A sound connection on which bytes move, a little with each `pump`, the rest with `finish`."""

    SIZES = (0, 1, 5000, 70_000, 64, 333)

    def __init__(self, net: Net, count: int = 200) -> None:
        sizes = [self.SIZES[k % len(self.SIZES)] for k in range(count)]
        pieces = [(sum(sizes[:k]), size) for k, size in enumerate(sizes)]
        self.net = net
        self.source, self.target = Memory(os.urandom(sum(sizes))), Memory(sum(sizes))
        self.ends = ends_of(net, self.source, self.target)
        self._waiting = [deque(pieces), deque(pieces)]

    def pump(self, most: int = 1) -> bool:
        """Post up to `most` on each side and test the oldest; True when all have arrived."""
        for end, waiting in zip(self.ends, self._waiting, strict=True):
            for _ in range(most):
                if waiting and len(end.pending) < SLOTS:
                    assert end.post(*waiting.popleft()) == SUCCESS
            if end.pending:
                end.test_head()
        return not any(self._waiting) and not any(end.pending for end in self.ends)

    def finish(self) -> None:
        until(lambda: self.pump(SLOTS), "the traffic", seconds=60)
        assert self.target.content() == self.source.content()
        sender, receiver = self.ends
        assert self.net.table.close_send(sender.comm) == SUCCESS
        assert self.net.table.close_recv(receiver.comm) == SUCCESS


# Strangers ----------------------------------------------------------------------------------------


class Siege:
    """Strangers of one kind at a port: one more with every `act`."""

    def __init__(self, kind: str, where: bytes, recorded: list[bytes], foreign: bytes) -> None:
        good = hello(CONTROL, 0, 2, CONNECTION, secret_of(where))
        said = {
            "noise": [os.urandom(300)],
            "a hello of noise": [os.urandom(HELLO_BYTES)],
            "zeros": [bytes(4096)],
            "http": [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 4],
            "silence": [b""],
            "half a handshake": [good[:40]],
            "half a handshake, then the end": [good[:40]],
            "another version": [good[:8] + b"\2" + good[9:]],
            "another number of sockets": [hello(DATA, 0, 3, CONNECTION, secret_of(where))],
            "a socket too many": [hello(DATA, 2, 2, CONNECTION, secret_of(where))],
            "an answer": [hello(ANSWER, 0, 2, CONNECTION, secret_of(where))],
            "the answer for the secret": [hello(CONTROL, 0, 2, CONNECTION, answer_of(where))],
            "a foreign secret": [hello(CONTROL, 0, 2, CONNECTION, secret_of(foreign))],
            "recorded elsewhere": recorded,
            "a byte at a time": [good[:-1]],
            "reset": [good[:40]],
            "flood": [b""],
        }[kind]
        self.kind = kind
        self.acts = FLOOD if kind == "flood" else 40
        self._address = address_of(where)
        self._said = said
        self._strangers: list[socket.socket] = []
        self._slow: list[tuple[socket.socket, bytes]] = []

    def act(self) -> None:
        said = self._said[len(self._strangers) % len(self._said)]
        if self.kind == "flood":  # more than a backlog may hold
            stranger = socket.socket()
            stranger.setblocking(False)
            stranger.connect_ex(self._address)
        else:
            stranger = socket.create_connection(self._address, timeout=30)
            self._say(stranger, said)
            stranger.setblocking(False)
        if self.kind == "reset":
            reset(stranger)
        elif self.kind == "half a handshake, then the end":
            stranger.close()
        else:
            self._strangers.append(stranger)

    def _say(self, stranger: socket.socket, said: bytes) -> None:
        if self.kind == "a byte at a time":
            self._slow = [
                (each, rest[1:]) for each, rest in [*self._slow, (stranger, said)] if rest
            ]
            said = b""
            for each, rest in self._slow:
                with contextlib.suppress(OSError):  # refused meanwhile
                    each.send(said_byte(self._said[0], rest))
        with contextlib.suppress(ConnectionError):
            stranger.sendall(said)

    def lift(self) -> None:
        """Nobody was answered; all are gone afterwards."""
        for stranger in self._strangers:
            with contextlib.suppress(OSError):  # refused, or still unheard
                assert stranger.recv(1) == b"", "a stranger was answered"
            stranger.close()


def said_byte(whole: bytes, rest: bytes) -> bytes:
    """The byte in front of `rest` in `whole`."""
    at = len(whole) - len(rest) - 1
    return whole[at : at + 1]


class Relay:
    """Between a connecting side and its listener: records what goes to the listener."""

    def __init__(self, where: bytes, sockets: int) -> None:
        self._target = address_of(where)
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.setblocking(False)
        port = struct.pack(">H", self._server.getsockname()[1])
        self.handle = where[:16] + port + where[18:]
        self.recorded: list[bytes] = []
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self.held: set[int] = set()  # sockets, in their order, whose bytes go no further for now
        self._kept = [b""] * sockets

    def pump(self) -> None:
        with contextlib.suppress(BlockingIOError):
            near = self._server.accept()[0]
            self._pairs.append((near, socket.create_connection(self._target)))
            self.recorded.append(b"")
            for end in self._pairs[-1]:
                end.setblocking(False)
        for number, (near, far) in enumerate(self._pairs):
            with contextlib.suppress(BlockingIOError):
                said = near.recv(65536)
                self.recorded[number] += said
                self._kept[number] += said
            if number not in self.held:
                far.sendall(self._kept[number])
                self._kept[number] = b""
            with contextlib.suppress(BlockingIOError):
                near.sendall(far.recv(65536))

    def close(self) -> None:
        for pair in self._pairs:
            for end in pair:
                end.close()
        self._server.close()


# Peers that know the secret -----------------------------------------------------------------------


class FalseSender:
    """A connecting side of our own that a listener has admitted; `comm` is the plugin's end."""

    def __init__(self, net: Net, sockets: int = 1) -> None:
        listen_comm, where = net.listen()
        said = [hello(CONTROL, 0, sockets, CONNECTION, secret_of(where))]
        said += [hello(DATA, k, sockets, CONNECTION, secret_of(where)) for k in range(sockets)]
        self.control, *self.data = [socket.create_connection(address_of(where)) for _ in said]
        for peer, hello_ in zip([self.control, *self.data], said, strict=True):
            peer.sendall(hello_)
        made: list[int] = []

        def admitted() -> bool:
            code, comm = net.accept(listen_comm)
            assert code == SUCCESS
            made.extend([comm] if comm is not None else [])
            return bool(made)

        until(admitted, "accept")
        assert net.table.close_listen(listen_comm) == SUCCESS
        self.comm = made[0]
        answer = hello(ANSWER, 0, sockets, CONNECTION, answer_of(where))
        assert self.control.recv(HELLO_BYTES, socket.MSG_WAITALL) == answer

    def close(self) -> None:
        for peer in (self.control, *self.data):
            peer.close()


class FalseReceiver:
    """A listening side of our own that a connecting side has found; `comm` is the plugin's end."""

    def __init__(self, net: Net, sockets: int = 1, threads: int = 0, flags: int = 0) -> None:
        server = socket.create_server(("127.0.0.1", 0))
        server.setblocking(False)
        secret, answer = os.urandom(16), os.urandom(16)
        where = handle(server.getsockname()[:2], secret, answer, sockets, threads, flags)
        connecting = Connecting(net, where)
        peers: dict[tuple[int, int], socket.socket] = {}
        made: list[int] = []

        def connected() -> bool:
            code, comm = connecting.step()
            assert code == SUCCESS
            made.extend([comm] if comm is not None else [])
            with contextlib.suppress(BlockingIOError):
                peer = server.accept()[0]
                peer.setblocking(False)
                peers[(0, len(peers))] = peer  # not known yet
            for key in [key for key in peers if key[0] == 0]:
                with contextlib.suppress(BlockingIOError):
                    said = peers[key].recv(HELLO_BYTES)
                    assert said[32:48] == secret
                    peers[(said[12], said[13])] = peers.pop(key)
                    if len(peers) == 1 + sockets and not any(kind == 0 for kind, _ in peers):
                        reply = hello(ANSWER, 0, sockets, said[16:32], answer)
                        peers[(CONTROL, 0)].sendall(reply)
            return bool(made)

        until(connected, "connect")
        server.close()
        self.comm = made[0]
        self.control = peers.pop((CONTROL, 0))
        self.data = [peers[(DATA, k)] for k in range(sockets)]

    def close(self) -> None:
        for peer in (self.control, *self.data):
            peer.close()
