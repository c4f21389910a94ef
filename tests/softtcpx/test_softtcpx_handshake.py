"""softtcpx's handshake: whoever cannot prove that it has the handle comes to nothing.

Callers and listeners that know the secret and get one thing wrong, and what of it all can be read
on the wire. Words that were recorded are in test_softtcpx_replays.
"""

from __future__ import annotations

import functools
import os
import socket
from collections.abc import Callable, Mapping

import pytest
from fresh_process import in_fresh_process
from handshakes import (
    Caller,
    Host,
    Relay,
    meets_another_attempt,
    two_data_sockets,
    with_token,
)
from hostile import Household, Traffic
from net_v7 import SUCCESS, SYSTEM, Connecting, Net, handshake, made_by, until
from wire import (
    ANSWER,
    CHALLENGE,
    GREETING_BYTES,
    HELLO,
    NO_TOKEN,
    PROOF,
    TOKEN_BYTES,
    answer,
    elsewhere,
    greeting,
    proof,
    secret_of,
    token_of,
)

pytestmark = pytest.mark.only_softtcpx

#: Rounds in which something that must not happen has not happened.
ROUNDS = 300
#: No setting of the handle is 0.
all_settings = in_fresh_process(
    NCCL_NSOCKS_PERTHREAD="2", NCCL_SOCKET_NTHREADS="1", NCCL_GPUDIRECTTCPX_RECV_SYNC="1"
)


def changed(said: bytes, at: int, by: int = 1) -> bytes:
    """With the bits `by` of one byte the other way."""
    return said[:at] + bytes([said[at] ^ by]) + said[at + 1 :]


def meets_refusals(
    net: Net, listen_comm: int, caller: Caller, numbers: set[int], what: str
) -> None:
    """The listener closes these sockets of the caller and makes no connection."""

    def refused() -> bool:
        caller.step()
        assert net.accept(listen_comm) == (SUCCESS, None)
        return caller.refused >= numbers

    until(refused, what)
    for _ in range(ROUNDS):
        assert net.accept(listen_comm) == (SUCCESS, None)
        caller.step()
    assert caller.refused == numbers, what
    assert caller.answer is None, what


#: What is wrong with a hello.
HELLOS: dict[str, Callable[[bytes], bytes]] = {
    "another magic": lambda hello: changed(hello, 0),
    "another version": lambda hello: changed(hello, 8),
    "no kind": lambda hello: changed(hello, 12),
    "another kind": lambda hello: hello[:12] + bytes([PROOF]) + hello[13:],
    "no such socket": lambda hello: changed(hello, 13, by=8),
    "another number of sockets": lambda hello: changed(hello, 14),
    "an unused byte": lambda hello: changed(hello, 15),
    "a token": lambda hello: changed(hello, 40),
    "a spare byte": lambda hello: changed(hello, 63),
}
Proof = Callable[[bytes, int, bytes, bytes], bytes]
#: What is wrong with a proof, for (handle, socket, attempt, challenge).
PROOFS: dict[str, Proof] = {
    "another secret": lambda where, *claim: proof(changed(where, 39, by=128), *claim),
    "other threads": lambda where, *claim: proof(changed(where, 19), *claim),
    "other flags": lambda where, *claim: proof(changed(where, 20), *claim),
    "another socket": lambda where, n, a, c: with_token(
        proof(where, n, a, c), token_of(proof(where, (n + 1) % 3, a, c))
    ),
    "another attempt": lambda where, n, a, c: with_token(
        proof(where, n, a, c), token_of(proof(where, n, os.urandom(TOKEN_BYTES), c))
    ),
    "another challenge": lambda where, n, a, c: proof(where, n, a, changed(c, 15, by=128)),
    "the proof of a listener": lambda where, n, a, c: with_token(
        proof(where, n, a, c), token_of(answer(where, a, {n: c}))
    ),
    "the answer of a listener": lambda where, n, a, c: answer(where, a, {n: c}),
    "the challenge": lambda where, n, a, c: greeting(PROOF, n, 2, a, c),
    "the challenge as it was": lambda where, n, a, c: greeting(CHALLENGE, n, 2, a, c),
    "the secret": lambda where, n, a, c: greeting(PROOF, n, 2, a, secret_of(where)),
    "nothing": lambda where, n, a, c: greeting(PROOF, n, 2, a),
    "half of it": lambda where, *claim: proof(where, *claim)[:40] + bytes(24),
    "a bit": lambda where, *claim: changed(proof(where, *claim), 47, by=128),
    "a hello again": lambda where, n, a, c: greeting(HELLO, n, 2, a),
    "a socket's number": lambda where, *claim: changed(proof(where, *claim), 13, by=4),
    "the attempt's name": lambda where, *claim: changed(proof(where, *claim), 16),
    "another version": lambda where, *claim: changed(proof(where, *claim), 8),
    "a spare byte": lambda where, *claim: changed(proof(where, *claim), 63),
}


@two_data_sockets
def test_a_hello_with_one_thing_wrong_is_not_even_challenged() -> None:
    net = Net().started()
    listen_comm, handle = net.listen()
    for wrong, helloing in HELLOS.items():
        caller = Caller(handle, helloing=helloing)
        meets_refusals(net, listen_comm, caller, {0, 1, 2}, wrong)
        assert not caller.challenges, wrong
    admitted(net, listen_comm, Caller(handle))


@all_settings
def test_a_proof_with_one_thing_wrong_is_refused() -> None:
    net = Net().started()
    listen_comm, handle = net.listen()
    for wrong, proving in PROOFS.items():
        caller = Caller(handle, proving=functools.partial(proving, handle))
        meets_refusals(net, listen_comm, caller, {0, 1, 2}, wrong)
        assert len(caller.challenges) == 3, wrong
    admitted(net, listen_comm, Caller(handle))


@two_data_sockets
def test_every_socket_must_prove_for_itself() -> None:
    net = Net().started()
    listen_comm, handle = net.listen()
    foreign = changed(handle, 24)

    def all_but(wrong: int, number: int, *claim: bytes) -> bytes:
        return proof(foreign if number == wrong else handle, number, *claim)

    for number in range(3):
        caller = Caller(handle, proving=functools.partial(all_but, number))
        meets_refusals(net, listen_comm, caller, {number}, f"socket {number}")
    admitted(net, listen_comm, Caller(handle))


@two_data_sockets
def test_no_two_sockets_and_no_two_attempts_have_the_same_challenge() -> None:
    net = Net().started()
    listen_comm, handle = net.listen()
    seen: list[bytes] = []
    for _ in range(5):
        caller = Caller(handle, proving=lambda *_: bytes(GREETING_BYTES))
        meets_refusals(net, listen_comm, caller, {0, 1, 2}, "no proofs")
        seen += caller.challenges.values()
    assert len(set(seen)) == 15
    assert NO_TOKEN not in seen


@two_data_sockets
def test_a_second_socket_in_the_place_of_another_is_refused() -> None:
    net = Net(log=True).started()
    listen_comm, handle = net.listen()

    def all_but_the_last(number: int, *claim: bytes) -> bytes:
        return proof(handle, number, *claim) if number < 2 else b""

    first = Caller(handle, proving=all_but_the_last)
    second = Caller(
        handle, lambda hello: hello[:16] + first.attempt + hello[32:], proving=all_but_the_last
    )
    second.attempt = first.attempt

    def refused() -> bool:
        first.step()
        if len(first.challenges) == 3:
            second.step()
        assert net.accept(listen_comm) == (SUCCESS, None)
        return second.refused == {0, 1}

    until(refused, "refusals")
    assert not first.refused
    assert sum("a second socket in the place of another" in line for line in net.log_lines) == 2


def admitted(net: Net, listen_comm: int, caller: Caller) -> None:
    def poll() -> tuple[int, int | None]:
        caller.step()
        return net.accept(listen_comm)

    made_by(poll, "accept")


#: What is wrong with a challenge.
CHALLENGES: dict[str, Callable[[bytes], bytes]] = {
    "another magic": lambda said: changed(said, 0),
    "another version": lambda said: changed(said, 8),
    "another kind": lambda said: said[:12] + bytes([ANSWER]) + said[13:],
    "another socket": lambda said: changed(said, 13, by=4),
    "another number of sockets": lambda said: changed(said, 14),
    "another attempt": lambda said: changed(said, 16),
    "a spare byte": lambda said: changed(said, 63),
    "the hello": lambda said: said[:12] + bytes([HELLO]) + said[13:32] + bytes(32),
}
Answer = Callable[[bytes, bytes, Mapping[int, bytes], Mapping[int, bytes]], bytes]
#: What is wrong with an answer, for (handle, attempt, challenges, proofs).
ANSWERS: dict[str, Answer] = {
    "the proof sent back": lambda where, a, c, p: p[0],
    "the proof as an answer": lambda where, a, c, p: greeting(ANSWER, 0, 2, a, token_of(p[0])),
    "another challenge": lambda where, a, c, p: greeting(CHALLENGE, 0, 2, a, c[0]),
    "another secret": lambda where, a, c, p: answer(changed(where, 39), a, c),
    "other threads": lambda where, a, c, p: answer(changed(where, 19), a, c),
    "other flags": lambda where, a, c, p: answer(changed(where, 20), a, c),
    "another attempt": lambda where, a, c, p: with_token(
        answer(where, a, c), token_of(answer(where, changed(a, 0), c))
    ),
    "only one challenge": lambda where, a, c, p: answer(where, a, {0: c[0]}),
    "challenges changed about": lambda where, a, c, p: answer(
        where, a, {0: c[0], 1: c[2], 2: c[1]}
    ),
    "nothing": lambda where, a, c, p: greeting(ANSWER, 0, 2, a),
    "half of it": lambda where, a, c, p: answer(where, a, c)[:40] + bytes(24),
    "a bit": lambda where, a, c, p: changed(answer(where, a, c), 47, by=128),
    "the attempt's name": lambda where, a, c, p: changed(answer(where, a, c), 16),
    "a socket's number": lambda where, a, c, p: changed(answer(where, a, c), 13),
    "a spare byte": lambda where, a, c, p: changed(answer(where, a, c), 63),
}


@two_data_sockets
def test_a_challenge_with_one_thing_wrong_gets_no_proof() -> None:
    net = Net().started()
    for wrong, challenging in CHALLENGES.items():
        host = Host(2, challenging=challenging)
        meets_another_attempt(host, Connecting(net, host.handle), wrong)
        assert not host.proofs, wrong
        host.close()


@all_settings
def test_an_answer_with_one_thing_wrong_is_not_believed() -> None:
    net = Net().started()
    for wrong, answering in ANSWERS.items():
        host = Host(2, threads=1, flags=1)
        host.answering = functools.partial(answering, host.handle)
        meets_another_attempt(host, Connecting(net, host.handle), wrong)
        assert host.answered, wrong
        host.close()


@all_settings
def test_an_answer_that_is_not_whole_is_waited_for() -> None:
    net = Net().started()
    host = Host(2, threads=1, flags=1)
    host.answering = lambda attempt, said, _: answer(host.handle, attempt, said)[:-1]
    connecting = Connecting(net, host.handle)

    def answered() -> bool:
        assert connecting.step() == (SUCCESS, None)
        host.step()
        return host.answered

    until(answered, "most of the answer")
    for _ in range(ROUNDS):
        assert connecting.step() == (SUCCESS, None)
    host.sockets[0].sendall(bytes(1))
    made_by(connecting.step, "connect")
    host.close()


@pytest.mark.parametrize("sockets", [1, 2])
@in_fresh_process(SOFTTCPX_CONNECT_TIMEOUT_MS="200", SOFTTCPX_ANSWER_TIMEOUT_MS="200")
def test_a_listener_that_answers_with_floods_is_given_up(sockets: int) -> None:
    net = Net(log=True).started()
    household = Household()
    traffic = Traffic(net)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        genuine_listener, handle = net.listen()
        where = elsewhere(handle, server.getsockname()[1])
        connecting = Connecting(net, where[:18] + bytes([sockets]) + where[19:])
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
    assert not any(secret_of(handle).hex() in line for line in net.log_lines)
    household.assert_same()


@in_fresh_process(NCCL_NSOCKS_PERTHREAD="2")
def test_the_secret_of_a_handle_is_random_and_neither_logged_nor_sent() -> None:
    net = Net(log=True).started()
    _, other = net.listen()
    listen_comm, handle = net.listen()
    secret = secret_of(handle)
    assert secret != secret_of(other)
    refused = Caller(handle, proving=lambda *claim: proof(other, *claim))
    meets_refusals(net, listen_comm, refused, {0, 1, 2}, "a foreign secret")
    relay = Relay(handle)
    handshake(net, listen_comm, Connecting(net, relay.handle), relay.step)
    assert any("no proof of the handle's secret" in line for line in net.log_lines)
    text = "\n".join(net.log_lines)
    assert secret.hex() not in text.lower()
    assert secret.decode("latin-1") not in text
    assert relay.all_proofs_sent(sockets=2)
    for said in relay.to_listener + relay.to_caller:
        assert secret not in said
