"""The two sides of softtcpx's handshake by hand, honest or with a lie, and who listens in between.

Each moves by `step`, beside the plugin's own connect or accept in the same process.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Mapping

from fresh_process import in_fresh_process
from net_v7 import SUCCESS, Connecting, until
from wire import (
    CHALLENGE,
    GREETING_BYTES,
    HELLO,
    TOKEN_BYTES,
    address_of,
    answer,
    attempt_of,
    elsewhere,
    greeting,
    handle,
    proof,
    token_of,
)

#: What to say on a socket (0: control) of this attempt that was so challenged.
Proving = Callable[[int, bytes, bytes], bytes]
#: What to answer an attempt whose sockets were so challenged and have said these proofs.
Answering = Callable[[bytes, Mapping[int, bytes], Mapping[int, bytes]], bytes]


two_data_sockets = in_fresh_process(NCCL_NSOCKS_PERTHREAD="2")


def with_token(said: bytes, token: bytes) -> bytes:
    return said[:32] + token + said[48:]


class Words:
    """Greetings that arrive on a socket, whole ones only."""

    def __init__(self, peer: socket.socket) -> None:
        peer.setblocking(False)
        self.peer = peer
        self._come = b""

    def next(self) -> bytes | None:
        """One greeting, or None while it is not whole. ConnectionError: there will be none."""
        with contextlib.suppress(BlockingIOError):
            came = self.peer.recv(GREETING_BYTES - len(self._come))
            if not came:
                raise ConnectionResetError("the other side has closed")
            self._come += came
        if len(self._come) < GREETING_BYTES:
            return None
        whole, self._come = self._come, b""
        return whole


class Caller:
    """The connecting side: hello on every socket, and a proof for each challenge."""

    def __init__(
        self,
        where: bytes,
        helloing: Callable[[bytes], bytes] = lambda said: said,
        proving: Proving | None = None,
    ) -> None:
        numbers = range(1 + where[18])
        self.attempt = os.urandom(TOKEN_BYTES)
        self._proving = proving or (lambda *claim: proof(where, *claim))
        hellos = [greeting(HELLO, number, where[18], self.attempt) for number in numbers]
        self.words: dict[int, Words] = {}
        self.challenges: dict[int, bytes] = {}
        self.answer: bytes | None = None
        self.refused: set[int] = set()  # sockets that the listener has closed
        for number, said in enumerate(hellos):
            peer = socket.create_connection(address_of(where))
            peer.sendall(helloing(said))
            self.words[number] = Words(peer)

    def step(self) -> None:
        for number, words in self.words.items():
            with contextlib.suppress(ConnectionError):
                if number not in self.refused:
                    self.refused.add(number)  # unless all goes well
                    self._hear(number, words)
                    self.refused.remove(number)

    def _hear(self, number: int, words: Words) -> None:
        said = words.next()
        if said is None:
            return
        if number in self.challenges:
            assert number == 0, "a word too many"
            self.answer = said
            return
        self.challenges[number] = token_of(said)
        sockets = len(self.words) - 1
        assert said == greeting(CHALLENGE, number, sockets, self.attempt, token_of(said))
        words.peer.sendall(self._proving(number, self.attempt, token_of(said)))

    def close(self) -> None:
        for words in self.words.values():
            words.peer.close()


class Host:
    """The listening side: a challenge for every hello, and an answer once all have proved."""

    def __init__(
        self,
        sockets: int = 1,
        threads: int = 0,
        flags: int = 0,
        secret: bytes = b"",
        challenging: Callable[[bytes], bytes] = lambda said: said,
        answering: Answering | None = None,
    ) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.setblocking(False)
        where = self._server.getsockname()[:2]
        self.handle = handle(where, secret or os.urandom(TOKEN_BYTES), sockets, threads, flags)
        self._challenging = challenging
        self.answering = answering or (lambda attempt, challenges, _: answer(
            self.handle, attempt, challenges
        ))  # fmt: skip
        self.answered = False
        self._strangers: list[Words] = []
        self._attempts: dict[bytes, Attempt] = {}

    def step(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._strangers.append(Words(self._server.accept()[0]))
        for words in tuple(self._strangers):
            with contextlib.suppress(ConnectionError):
                if (said := words.next()) is not None:
                    self._strangers.remove(words)
                    self._attempts.setdefault(attempt_of(said), Attempt()).challenge(
                        said, words, self._challenging
                    )
        for name, attempt in self._attempts.items():
            with contextlib.suppress(ConnectionError):  # given up by the other side
                if attempt.hear(self.handle):
                    self.answered = True
                    said = self.answering(name, attempt.challenges, attempt.proofs)
                    attempt.words[0].peer.sendall(said)

    @property
    def sockets(self) -> dict[int, socket.socket]:
        """Those of the only attempt, by number."""
        (attempt,) = self._attempts.values()
        return {number: words.peer for number, words in attempt.words.items()}

    @property
    def proofs(self) -> list[bytes]:
        """All that were said in any attempt."""
        return [said for attempt in self._attempts.values() for said in attempt.proofs.values()]

    @property
    def attempts(self) -> int:
        return len(self._attempts)

    def close(self) -> None:
        self._server.close()
        for words in self._strangers:
            words.peer.close()
        for attempt in self._attempts.values():
            for words in attempt.words.values():
                words.peer.close()


class Attempt:
    """What a host has heard of one attempt."""

    def __init__(self) -> None:
        self.words: dict[int, Words] = {}
        self.challenges: dict[int, bytes] = {}
        self.proofs: dict[int, bytes] = {}
        self._answered = False

    def challenge(self, hello: bytes, words: Words, changed: Callable[[bytes], bytes]) -> None:
        number, sockets = hello[13], hello[14]
        assert hello == greeting(HELLO, number, sockets, attempt_of(hello))
        assert number not in self.words
        honest = greeting(CHALLENGE, number, sockets, attempt_of(hello), os.urandom(TOKEN_BYTES))
        said = changed(honest)
        self.words[number], self.challenges[number] = words, token_of(said)
        words.peer.sendall(said)

    def hear(self, where: bytes) -> bool:
        """True once: all sockets have proved that they have the handle."""
        for number, words in self.words.items():
            if number not in self.proofs and (said := words.next()) is not None:
                attempt, challenge = attempt_of(said), self.challenges[number]
                assert said == proof(where, number, attempt, challenge), "no honest proof"
                self.proofs[number] = said
        if self._answered or len(self.proofs) < 1 + where[18]:
            return False
        self._answered = True
        return True


def meets_another_attempt(host: Host, connecting: Connecting, what: str) -> None:
    """The plugin does not believe the host, and tries anew."""

    def again() -> bool:
        assert connecting.step() == (SUCCESS, None)
        host.step()
        return host.attempts > 1

    until(again, what)


class Relay:
    """Between a connecting side and its listener: records what either says, by socket.

    `most` bounds how many bytes of a socket go on to the listener for now.
    """

    def __init__(self, where: bytes) -> None:
        self._target = address_of(where)
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.setblocking(False)
        self.handle = elsewhere(where, self._server.getsockname()[1])
        self.to_listener: list[bytes] = []
        self.to_caller: list[bytes] = []
        self.most: dict[int, int] = {}
        self._sent: list[int] = []
        self._pairs: list[tuple[socket.socket, socket.socket]] = []

    def step(self) -> None:
        with contextlib.suppress(BlockingIOError):
            near = self._server.accept()[0]
            self._pairs.append((near, socket.create_connection(self._target)))
            self.to_listener.append(b"")
            self.to_caller.append(b"")
            self._sent.append(0)
            for end in self._pairs[-1]:
                end.setblocking(False)
        for number, (near, far) in enumerate(self._pairs):
            with contextlib.suppress(BlockingIOError):
                self.to_listener[number] += near.recv(65536)
            goes_on = self.to_listener[number][: self.most.get(number)]
            far.sendall(goes_on[self._sent[number] :])
            self._sent[number] = len(goes_on)
            with contextlib.suppress(BlockingIOError):
                said = far.recv(65536)
                self.to_caller[number] += said
                near.sendall(said)

    def all_proofs_sent(self, sockets: int) -> bool:
        """Hello and proof of every socket are recorded, whether or not they went on."""
        return [len(said) for said in self.to_listener] == [2 * GREETING_BYTES] * (1 + sockets)

    def close(self) -> None:
        for pair in self._pairs:
            for end in pair:
                end.close()
        self._server.close()
