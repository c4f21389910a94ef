"""Peers that mean harm: strangers at a listener's port, and peers that were admitted and lie."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import struct
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ends import ends_of, one_after_another
from handshakes import Caller, Host, Words
from net_v7 import HANDLE_BYTES, SLOTS, SUCCESS, Connecting, Memory, Net, until
from own_process import open_descriptors, threads, until_threads_are
from wire import (
    ANSWER,
    CHALLENGE,
    GREETING_BYTES,
    HELLO,
    NO_TOKEN,
    PROOF,
    address_of,
    answer,
    attempt_of,
    greeting,
    proof,
    token_of,
)

ATTEMPT = b"c" * 16
FLOOD = 1000


def reset(peer: socket.socket) -> None:
    """Close with an RST, whatever is still on its way."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def close_ends(net: Net, send: int, recv: int) -> None:
    assert net.table.close_send(send) == SUCCESS
    assert net.table.close_recv(recv) == SUCCESS


class Household:
    """What this process had before; `assert_same` says that it has no more and no less now."""

    def __init__(self) -> None:
        self._before = (open_descriptors(), threads())

    def new_descriptors(self) -> int:
        return len(open_descriptors()) - len(self._before[0])

    def assert_same(self) -> None:
        descriptors, threads_before = self._before
        if "TSAN_OPTIONS" not in os.environ:  # libtsan starts a thread of its own
            until_threads_are(threads_before)
        assert open_descriptors() == descriptors


def with_room_for_a_flood() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard >= 3 * FLOOD, "the tests need a higher limit of open files (ulimit -Hn)"
    resource.setrlimit(resource.RLIMIT_NOFILE, (3 * FLOOD, hard))


class Traffic:
    """A sound connection on which bytes move, a little with each `pump`, the rest with `finish`."""

    SIZES = (0, 1, 5000, 70_000, 64, 333)

    def __init__(self, net: Net, count: int = 200) -> None:
        pieces, whole = one_after_another(self.SIZES[k % len(self.SIZES)] for k in range(count))
        self.net = net
        self.source, self.target = Memory(os.urandom(whole)), Memory(whole)
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


@dataclass(frozen=True)
class Stranger:
    """What a stranger says, and to the challenge that a proper hello earns."""

    says: bytes
    replies: Callable[[bytes], bytes] | None = None


def strangers(where: bytes, recorded: list[bytes], foreign: bytes) -> dict[str, list[Stranger]]:
    """By kind, those that come in turn to the listener of `where`, which wants two data sockets."""
    good = greeting(HELLO, 0, 2, ATTEMPT)

    def proved(challenge: bytes) -> bytes:
        return proof(where, 0, ATTEMPT, token_of(challenge))

    return {
        "noise": [Stranger(os.urandom(300))],
        "a hello of noise": [Stranger(os.urandom(GREETING_BYTES))],
        "zeros": [Stranger(bytes(4096))],
        "http": [Stranger(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" * 4)],
        "silence": [Stranger(b"")],
        "half a handshake": [Stranger(good[:40])],
        "half a handshake, then the end": [Stranger(good[:40])],
        "another version": [Stranger(good[:8] + b"\1" + good[9:])],
        "another number of sockets": [Stranger(greeting(HELLO, 1, 3, ATTEMPT))],
        "a socket too many": [Stranger(greeting(HELLO, 3, 2, ATTEMPT))],
        "an answer": [Stranger(greeting(ANSWER, 0, 2, ATTEMPT))],
        "a proof unasked for": [Stranger(proof(where, 0, ATTEMPT, NO_TOKEN))],
        "silence when challenged": [Stranger(good, lambda _: b"")],
        "a challenge sent back": [Stranger(good, lambda challenge: challenge)],
        "a challenge as a proof": [
            Stranger(good, lambda challenge: greeting(PROOF, 0, 2, ATTEMPT, token_of(challenge)))
        ],
        "half a proof": [Stranger(good, lambda challenge: proved(challenge)[:40])],
        "half a proof, then zeros": [
            Stranger(good, lambda challenge: proved(challenge)[:40] + bytes(24))
        ],
        "a foreign secret": [
            Stranger(good, lambda challenge: proof(foreign, 0, ATTEMPT, token_of(challenge)))
        ],
        "recorded elsewhere": [Stranger(said, lambda _: b"") for said in recorded],
        "a byte at a time": [Stranger(good[:-1])],
        "reset": [Stranger(good[:40])],
        "flood": [Stranger(b"")],
    }


class Siege:
    """Strangers of one kind at a port: one more with every `act`."""

    KINDS = tuple(strangers(bytes(HANDLE_BYTES), [], bytes(HANDLE_BYTES)))

    def __init__(self, kind: str, where: bytes, recorded: list[bytes], foreign: bytes) -> None:
        self.kind = kind
        self.acts = FLOOD if kind == "flood" else 40
        self._address = address_of(where)
        self._kinds = strangers(where, recorded, foreign)[kind]
        self._there: list[socket.socket] = []
        self._unchallenged: list[tuple[Words, Stranger]] = []
        self._slow: list[tuple[socket.socket, bytes]] = []

    def act(self) -> None:
        self.reply()
        stranger = self._kinds[len(self._there) % len(self._kinds)]
        if self.kind == "flood":  # more than a backlog may hold
            peer = socket.socket()
            peer.setblocking(False)
            peer.connect_ex(self._address)
        else:
            peer = socket.create_connection(self._address, timeout=30)
            self._say(peer, stranger.says)
            peer.setblocking(False)
        if self.kind == "reset":
            reset(peer)
        elif self.kind == "half a handshake, then the end":
            peer.close()
        else:
            self._there.append(peer)
            if stranger.replies is not None:
                self._unchallenged.append((Words(peer), stranger))

    def reply(self) -> None:
        """To the challenges that have come."""
        for words, stranger in tuple(self._unchallenged):
            with contextlib.suppress(ConnectionError):  # it gave way to others
                if (said := words.next()) is None:
                    continue
                assert stranger.replies is not None
                assert said == greeting(
                    CHALLENGE, stranger.says[13], 2, attempt_of(stranger.says), token_of(said)
                )
                words.peer.sendall(stranger.replies(said))
            self._unchallenged.remove((words, stranger))

    def _say(self, peer: socket.socket, said: bytes) -> None:
        if self.kind == "a byte at a time":
            self._slow = [(each, rest[1:]) for each, rest in [*self._slow, (peer, said)] if rest]
            said = b""
            for each, rest in self._slow:
                with contextlib.suppress(OSError):  # refused meanwhile
                    each.send(byte_before(self._kinds[0].says, rest))
        with contextlib.suppress(ConnectionError):
            peer.sendall(said)

    def lift(self) -> None:
        """Nobody was told more than a challenge; all are gone afterwards."""
        self.reply()
        for peer in self._there:
            with contextlib.suppress(OSError):  # refused, or still unheard
                assert peer.recv(1) == b"", "a stranger was answered"
            peer.close()


def byte_before(whole: bytes, rest: bytes) -> bytes:
    """The byte in front of `rest` in `whole`."""
    at = len(whole) - len(rest) - 1
    return whole[at : at + 1]


# Peers that know the secret -----------------------------------------------------------------------


class FalseSender:
    """A connecting side of our own that a listener has admitted; `comm` is the plugin's end."""

    def __init__(self, net: Net, sockets: int = 1) -> None:
        listen_comm, where = net.listen()
        assert where[18] == sockets
        self._caller = Caller(where)
        made: list[int] = []

        def admitted() -> bool:
            self._caller.step()
            code, comm = net.accept(listen_comm)
            assert code == SUCCESS
            made.extend([comm] if comm is not None else [])
            return bool(made)

        until(admitted, "accept")
        assert net.table.close_listen(listen_comm) == SUCCESS
        self.comm = made[0]
        self._caller.step()
        honest = answer(where, self._caller.attempt, self._caller.challenges)
        assert self._caller.answer == honest
        self.control, *self.data = [words.peer for words in self._caller.words.values()]
        for peer in (self.control, *self.data):
            peer.setblocking(True)

    def close(self) -> None:
        self._caller.close()


class FalseReceiver:
    """A listening side of our own that a connecting side has found; `comm` is the plugin's end."""

    def __init__(self, net: Net, sockets: int = 1, threads: int = 0, flags: int = 0) -> None:
        self._host = Host(sockets, threads, flags)
        connecting = Connecting(net, self._host.handle)
        made: list[int] = []

        def connected() -> bool:
            code, comm = connecting.step()
            assert code == SUCCESS
            made.extend([comm] if comm is not None else [])
            self._host.step()
            return bool(made)

        until(connected, "connect")
        self.comm = made[0]
        peers = self._host.sockets
        self.control = peers[0]
        self.data = [peers[number] for number in range(1, 1 + sockets)]

    def close(self) -> None:
        self._host.close()
