"""softtcpx's handshake, recorded and said again: of use at no moment, and to neither side."""

from __future__ import annotations

import socket
from collections.abc import Mapping

import pytest
from ends import exchange
from handshakes import Host, Relay, meets_another_attempt, two_data_sockets, with_token
from hostile import Household, close_ends
from net_v7 import SUCCESS, Connecting, Net, handshake, until
from wire import ANSWER, GREETING_BYTES, address_of, greeting, secret_of, token_of

pytestmark = pytest.mark.only_softtcpx

#: Rounds in which something that must not happen has not happened.
ROUNDS = 300


class Replay:
    """All that a connecting side said, said again on sockets of our own."""

    def __init__(self, where: bytes, recorded: list[bytes]) -> None:
        self.peers = [socket.create_connection(address_of(where)) for _ in recorded]
        for peer, said in zip(self.peers, recorded, strict=True):
            peer.sendall(said)
            peer.setblocking(False)
        self._heard = [b"" for _ in recorded]
        self._open = set(range(len(recorded)))

    def refused(self) -> bool:
        """All are closed, with nothing said to them but a challenge."""
        for number in tuple(self._open):
            try:
                said = self.peers[number].recv(65536)
            except BlockingIOError:
                continue
            except ConnectionResetError:  # closed, before it read all
                said = b""
            self._heard[number] += said
            if not said:
                self._open.remove(number)
        for heard in self._heard:
            assert len(heard) <= GREETING_BYTES, "a replay was answered"
        return not self._open

    def close(self) -> None:
        for peer in self.peers:
            peer.close()


def say_all_but_the_last_proof(net: Net, listen_comm: int, connecting: Connecting,
                               relay: Relay) -> None:  # fmt: skip
    """An attempt up to the last word of its last socket, which the relay keeps."""
    relay.most = {2: GREETING_BYTES}

    def proofs_sent() -> bool:
        assert connecting.step() == (SUCCESS, None)
        relay.step()
        assert net.accept(listen_comm) == (SUCCESS, None)
        return relay.all_proofs_sent(sockets=2)

    until(proofs_sent, "all proofs")
    for _ in range(ROUNDS):
        assert net.accept(listen_comm) == (SUCCESS, None)


@two_data_sockets
def test_a_recorded_attempt_is_refused_while_the_original_lives() -> None:
    net = Net().started()
    household = Household()
    listen_comm, handle = net.listen()
    relay = Relay(handle)
    connecting = Connecting(net, relay.handle)
    say_all_but_the_last_proof(net, listen_comm, connecting, relay)
    replay = Replay(handle, relay.to_listener)

    def refused() -> bool:
        assert net.accept(listen_comm) == (SUCCESS, None)
        return replay.refused()

    until(refused, "refusals")
    relay.most = {}
    close_ends(net, *handshake(net, listen_comm, connecting, relay.step))
    relay.close()
    replay.close()
    household.assert_same()


@two_data_sockets
def test_a_recorded_attempt_is_refused_after_its_sockets_are_gone() -> None:
    net = Net().started()
    listen_comm, handle = net.listen()
    relay = Relay(handle)
    say_all_but_the_last_proof(net, listen_comm, Connecting(net, relay.handle), relay)
    relay.close()
    for _ in range(ROUNDS):
        assert net.accept(listen_comm) == (SUCCESS, None)
    replay = Replay(handle, relay.to_listener)

    def refused() -> bool:
        assert net.accept(listen_comm) == (SUCCESS, None)
        return replay.refused()

    until(refused, "refusals")
    replay.close()
    exchange(net, *handshake(net, listen_comm, Connecting(net, handle)))


@two_data_sockets
def test_a_recorded_attempt_is_refused_when_the_listener_has_its_connection() -> None:
    net = Net().started()
    household = Household()
    listen_comm, handle = net.listen()
    relay = Relay(handle)
    connecting = Connecting(net, relay.handle)
    say_all_but_the_last_proof(net, listen_comm, connecting, relay)
    replay = Replay(handle, relay.to_listener)  # in the backlog when the last proof comes
    relay.most = {}
    ends = handshake(net, listen_comm, connecting, relay.step)
    until(replay.refused, "refusals")
    with pytest.raises(ConnectionRefusedError):
        Replay(handle, relay.to_listener)
    close_ends(net, *ends)
    relay.close()
    replay.close()
    household.assert_same()


@pytest.mark.parametrize("names", ["the old attempt", "the new attempt"])
@two_data_sockets
def test_the_recorded_words_of_a_listener_convince_nobody(names: str) -> None:
    net = Net().started()
    listen_comm, handle = net.listen()
    relay = Relay(handle)
    close_ends(net, *handshake(net, listen_comm, Connecting(net, relay.handle), relay.step))
    relay.close()
    control, *data = relay.to_caller
    recorded = [control[:GREETING_BYTES], *data]
    assert [len(said) for said in relay.to_caller] == [2 * GREETING_BYTES, *[GREETING_BYTES] * 2]

    def challenging(honest: bytes) -> bytes:
        said = recorded[honest[13]]
        return said if names == "the old attempt" else with_token(honest, token_of(said))

    def answering(attempt: bytes, *_: Mapping[int, bytes]) -> bytes:
        return greeting(ANSWER, 0, 2, attempt, token_of(control[GREETING_BYTES:]))

    host = Host(2, secret=secret_of(handle), challenging=challenging, answering=answering)
    meets_another_attempt(host, Connecting(net, host.handle), names)
    assert host.answered == (names == "the new attempt")
    host.close()
