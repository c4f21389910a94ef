"""Any plugin: init, how a connection is made and closed, and registration."""

from __future__ import annotations

import ctypes
import itertools
import os
import threading
from typing import Any

import pytest
from any_net import AnyNet
from net_v7 import HANDLE_BYTES, SUCCESS, Memory, until
from own_process import open_descriptors, threads, until_threads_are
from subjects import on_subject
from talk import End, ends_of

PAGE = 4096
#: Of many calls of an accept that does not wait.
TIME_TO_RETURN_S = 1.0


def exchange(net: AnyNet, message: bytes = b"Hello, plugin!") -> tuple[End, End]:
    """The ends of a connection over which a message went."""
    source, target = Memory(message), Memory(len(message))
    sender, receiver = ends_of(net, source, target)
    move(sender, receiver, len(message))
    assert target.content() == message
    return sender, receiver


def move(sender: End, receiver: End, size: int, offset: int = 0) -> None:
    assert receiver.post(offset, size)
    assert sender.post(offset, size)
    until(lambda: sender.drained() & receiver.drained(), "the message")


@pytest.mark.quick
@on_subject
def test_a_second_init_harms_nothing(subject: dict[str, Any]) -> None:
    net = AnyNet()
    devices = net.devices()
    assert devices > 0
    first, net._context = net._context, ctypes.c_void_p()
    code = net.init()
    assert code == SUCCESS or net.abi < 11, "from v11 on it is another communicator's"
    net._context = first
    assert net.devices() == devices
    exchange(net)


@on_subject
def test_a_device_has_a_name_host_memory_and_a_receive_a_call(subject: dict[str, Any]) -> None:
    net = AnyNet()
    for device in range(net.devices()):
        found = net.properties(device)
        assert found.name
        assert found.ptr_support & 1
        assert found.max_recvs >= 1
        assert found.max_comms >= 1


@on_subject
def test_connect_and_accept_without_a_peer_come_to_no_comm(subject: dict[str, Any]) -> None:
    net = AnyNet()
    listener, handle = net.listen()
    block, nothing = net.block(), (SUCCESS, None)
    answers: list[tuple[int, int | None]] = []

    def accept() -> None:
        while len(answers) < 100 and all(answer == nothing for answer in answers[-1:]):
            answers.append(net.accept(listener, block))

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    thread.join(TIME_TO_RETURN_S)
    waits = thread.is_alive()  # as accept of some does until somebody connects
    assert all(answer == nothing for answer in answers)
    assert waits or len(answers) == 100
    buffer = ctypes.create_string_buffer(handle, HANDLE_BYTES)
    send = [net.connect(buffer)[1] for _ in range(100)][-1]  # some are ready before accept is
    thread.join()
    if (recv := answers[-1][1]) is not None:
        assert net.table.close_recv(recv) == SUCCESS
    if send is not None:
        assert net.table.close_send(send) == SUCCESS
    assert net.table.close_listen(listener) == SUCCESS
    exchange(net)


@on_subject
def test_both_ends_and_the_listener_close_in_any_order(subject: dict[str, Any]) -> None:
    net = AnyNet()
    calls = ("close_send", "close_recv", "close_listen")
    for order in itertools.permutations(calls):
        comms = dict(zip(calls, net.opened(), strict=True))
        for call in order:
            assert getattr(net.table, call)(comms[call]) == SUCCESS, order


@on_subject
def test_closing_gives_back_descriptors_and_threads(subject: dict[str, Any]) -> None:
    net = AnyNet()
    for end in exchange(net):  # what a plugin makes once for all it may keep
        end.close()
    descriptors, count = len(open_descriptors()), threads()
    pairs = [exchange(net) for _ in range(5)]
    assert len(open_descriptors()) > descriptors
    for pair in pairs:
        for end in pair:
            end.close()
    assert len(open_descriptors()) == descriptors
    until_threads_are(count)


@on_subject
def test_memory_of_any_size_and_place_is_registered_on_both_ends(subject: dict[str, Any]) -> None:
    net = AnyNet()
    memory = Memory(16 * PAGE)
    for comm in net.connected():
        for offset, size in itertools.product((0, 1, 63), (1, 7, PAGE, PAGE + 1, 15 * PAGE)):
            code, mhandle = net.reg_mr(comm, memory.address + offset, size)
            assert code == SUCCESS, (offset, size)
            assert net.table.dereg_mr(comm, mhandle) == SUCCESS, (offset, size)


@on_subject
def test_a_message_may_lie_anywhere_in_its_registration(subject: dict[str, Any]) -> None:
    net = AnyNet()
    source, target = Memory(os.urandom(3 * PAGE)), Memory(3 * PAGE)
    sender, receiver = ends_of(net, source, target)
    expected = bytearray(3 * PAGE)
    for offset, size in ((0, 1), (1, 62), (PAGE - 1, 2), (2 * PAGE + 3, PAGE - 3)):
        move(sender, receiver, size, offset)
        expected[offset : offset + size] = source.content()[offset : offset + size]
    assert target.content() == bytes(expected)


@on_subject
def test_a_registration_outlives_another_of_the_same_memory(subject: dict[str, Any]) -> None:
    net = AnyNet()
    source, target = Memory(b"s" * 5000), Memory(5000)
    sender, receiver = ends_of(net, source, target)
    for end in (sender, receiver):
        code, second = net.reg_mr(end.comm, end.memory.address, end.memory.size)
        assert code == SUCCESS
        assert net.table.dereg_mr(end.comm, second) == SUCCESS
    move(sender, receiver, 5000)
    assert target.content() == source.content()
