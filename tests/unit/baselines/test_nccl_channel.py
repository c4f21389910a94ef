"""Messages between a rank and its companion: whole, in order, and never waited for too long."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from tcpx_mpi.baselines.nccl.channel import Channel, Closed

Ends = tuple[Channel, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """A channel, and the bare socket of the other side."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Channel(ours), theirs


def test_messages_come_in_order_and_whatever_they_are(ends: Ends) -> None:
    channel, other = ends
    sender = Channel(other)
    for message in (("run", (1, None)), {"a": 2.5}, b"\0" * 100):
        sender.send(message)
    assert channel.receive(1) == ("run", (1, None))
    assert channel.receive(None) == {"a": 2.5}
    assert channel.receive(0) == b"\0" * 100
    assert channel.receive(0) is None


def test_one_larger_than_the_sockets_take_at_once_arrives(ends: Ends) -> None:
    channel, other = ends
    stamps = np.arange(1 << 20)
    sender = threading.Thread(target=Channel(other).send, args=(stamps,))
    sender.start()
    assert (channel.receive(10) == stamps).all()
    sender.join()


def test_a_part_of_a_message_is_waited_for_without_blocking(ends: Ends) -> None:
    channel, other = ends
    ours, theirs = socket.socketpair()
    with ours, theirs:
        Channel(ours).send("whole")
        text = theirs.recv(1000)
    for part in (text[:3], text[3:8], text[8:-1]):
        other.sendall(part)
        assert channel.receive(0) is None
    other.sendall(text[-1:] + text[:1])
    assert channel.receive(0) == "whole"
    assert channel.receive(0) is None
    other.sendall(text[1:])
    assert channel.receive(0) == "whole"


def test_the_end_of_the_other_side_is_told_and_what_it_said_before_is_not_lost(ends: Ends) -> None:
    channel, other = ends
    Channel(other).send("last")
    other.close()
    assert channel.receive(None) == "last"
    with pytest.raises(Closed):
        channel.receive(None)
    with pytest.raises(Closed):
        channel.send("nobody hears this")
