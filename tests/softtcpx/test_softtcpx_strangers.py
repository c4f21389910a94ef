"""softtcpx among strangers at a listener's port: each is refused, and nobody else notices.

By the moment of their coming: before accept, in a handshake, or while a sound connection of the
same process moves its bytes. A crash is the exit code of the test's own process, a blocking call is
its time limit.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import socket

import psutil
import pytest
from ends import exchange
from fresh_process import in_fresh_process
from handshakes import Relay
from hostile import FLOOD, Household, Siege, Traffic, close_ends
from net_v7 import SUCCESS, Connecting, Net, handshake
from own_process import data_sockets, open_descriptors
from wire import address_of

pytestmark = pytest.mark.only_softtcpx

#: Strangers that wait at a listener at once, at most, and what a connection and a poller need.
MOST_DESCRIPTORS = 64 + 16


def with_room_for_a_flood() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert hard >= 3 * FLOOD, "the tests need a higher limit of open files (ulimit -Hn)"
    resource.setrlimit(resource.RLIMIT_NOFILE, (3 * FLOOD, hard))


def recorded_callers(net: Net) -> list[bytes]:
    """What a sound connecting side said on its sockets, in order, to a listener now closed."""
    listen_comm, handle = net.listen()
    relay = Relay(handle)
    close_ends(net, *handshake(net, listen_comm, Connecting(net, relay.handle), relay.step))
    relay.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address_of(handle))
    assert relay.all_proofs_sent(sockets=2)
    return relay.to_listener


@pytest.mark.parametrize("moment", ["before accept", "in a handshake", "in a transfer"])
@pytest.mark.parametrize("kind", Siege.KINDS)
@in_fresh_process(NCCL_NSOCKS_PERTHREAD="2")
def test_a_stranger_at_the_port_disturbs_nobody_and_leaves_nothing(kind: str, moment: str) -> None:
    with_room_for_a_flood()
    net = Net().started()
    household = Household()
    recorded = recorded_callers(net) if kind == "recorded elsewhere" else []
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
        siege.reply()
        if moment != "in a handshake":
            assert net.accept(listen_comm) == (SUCCESS, None)
    assert household.new_descriptors() - mine <= MOST_DESCRIPTORS, "strangers are bounded"
    ends = handshake(net, listen_comm, connecting, siege.reply)
    exchange(net, *ends)
    close_ends(net, *ends)
    siege.lift()
    assert net.table.close_listen(other_listener) == SUCCESS
    household.assert_same()


@pytest.mark.parametrize("kind", ["silence", "noise"])
@in_fresh_process()
def test_strangers_that_take_the_last_descriptors_give_way_which_is_said_once(kind: str) -> None:
    with_room_for_a_flood()
    net = Net(log=True).started()
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
    said = [line for line in net.log_lines if "Too many open files" in line]
    assert said == ["accept on lo: Too many open files; who waits longest gives way"]


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


def listened_at() -> set[tuple[str, int]]:
    """The addresses at which this process listens."""
    return {
        (each.laddr.ip, each.laddr.port)
        for each in psutil.net_connections("tcp")
        if (each.pid, each.status) == (os.getpid(), psutil.CONN_LISTEN)
    }


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
            # The kernel may have given a port that is free again to another process.
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(port).close()
            traffic.pump()
    assert ports.isdisjoint(listened_at())
    traffic.finish()
    household.assert_same()
