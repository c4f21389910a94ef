"""softtcpx: the library, init, devices, and how a connection is made or refused."""

from __future__ import annotations

import os
import resource
import socket
import time

import pytest
from ends import exchange
from fresh_process import Line, Other, in_fresh_process
from net_v7 import (
    HANDLE_BYTES,
    INVALID_ARGUMENT,
    INVALID_USAGE,
    SUCCESS,
    SYSTEM,
    Connecting,
    Memory,
    Net,
    accept,
    connect,
    connected,
    handshake,
    until,
)
from own_process import open_descriptors, threads, until_threads_are
from wire import ANSWER, NO_TOKEN, address_of, greeting


@pytest.mark.only_softtcpx
@in_fresh_process()
def test_connect_changes_only_its_own_part_of_the_handle() -> None:
    net = Net().started()
    listen_comm, handle = net.listen()
    connecting = Connecting(net, handle)
    assert connecting.step() == (SUCCESS, None)
    changed = [i for i in range(HANDLE_BYTES) if connecting.handle.raw[i] != handle[i]]
    assert changed, "connect keeps its state in the handle"
    assert min(changed) >= 40
    assert max(changed) < 48
    assert net.table.close_listen(listen_comm) == SUCCESS


@pytest.mark.only_softtcpx
@in_fresh_process()
def test_a_copy_of_a_handle_in_use_and_a_used_up_handle_are_refused() -> None:
    net = Net().started()
    listen_comm, handle = net.listen()
    connecting = Connecting(net, handle)
    assert connecting.step() == (SUCCESS, None)
    assert Connecting(net, connecting.handle.raw).step()[0] == INVALID_USAGE
    accepted: list[int] = []
    made: list[int] = []

    def connected() -> bool:
        for act, ends in ((connecting.step, made), (lambda: net.accept(listen_comm), accepted)):
            if not ends:
                code, comm = act()
                assert code == SUCCESS
                ends.extend([comm] if comm is not None else [])
        return bool(made and accepted)

    until(connected, "a connection")
    assert connecting.step()[0] == INVALID_USAGE
    assert net.accept(listen_comm)[0] == INVALID_USAGE


@pytest.mark.only_softtcpx
@pytest.mark.parametrize("damaged_byte", [0, 8, 16, 18, 19])
@in_fresh_process()
def test_a_damaged_handle_is_an_invalid_argument(damaged_byte: int) -> None:
    net = Net().started()
    listen_comm, handle = net.listen()
    damaged = bytearray(handle)
    if damaged_byte == 16:
        damaged[16:18] = b"\0\0"  # no port
    else:
        damaged[damaged_byte] ^= 0xA5
    assert Connecting(net, bytes(damaged)).step()[0] == INVALID_ARGUMENT
    assert net.table.close_listen(listen_comm) == SUCCESS


@pytest.mark.only_softtcpx
@in_fresh_process(SOFTTCPX_CONNECT_TIMEOUT_MS="300")
def test_connect_to_a_closed_port_gives_code_2_after_its_deadline() -> None:
    net = Net().started()
    listen_comm, handle = net.listen()
    assert net.table.close_listen(listen_comm) == SUCCESS
    before = open_descriptors()
    connecting = Connecting(net, handle)
    began = time.monotonic()
    codes: list[int] = []

    def step() -> bool:
        code, comm = connecting.step()
        assert comm is None
        codes.append(code)
        return code != SUCCESS

    until(step, "code 2", seconds=20)
    assert codes[-1] == SYSTEM
    assert time.monotonic() - began >= 0.3
    assert open_descriptors() == before


@pytest.mark.only_softtcpx
@in_fresh_process()
def test_connect_finds_a_listener_that_opens_its_port_late() -> None:
    net = Net().started()
    listen_comm, handle = net.listen()
    address = address_of(handle)
    assert net.table.close_listen(listen_comm) == SUCCESS
    reopened = socket.socket()  # bound, the port is nobody else's, and closed until it listens
    reopened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reopened.bind(address)
    reopened.setblocking(False)
    connecting = Connecting(net, handle)
    for _ in range(50):
        assert connecting.step() == (SUCCESS, None)
    reopened.listen()
    arrived: list[socket.socket] = []

    def step() -> bool:
        assert connecting.step() == (SUCCESS, None)
        try:
            arrived.append(reopened.accept()[0])
        except BlockingIOError:
            return False
        return True

    until(step, "a new attempt")


@pytest.mark.only_softtcpx
@in_fresh_process()
def test_connect_says_once_that_there_are_too_many_open_files_and_goes_on_when_there_are_not() -> (
    None
):
    net = Net(log=True).started()
    listen_comm, handle = net.listen()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(open_descriptors()), hard))
    connecting = Connecting(net, handle)
    began = time.monotonic()

    def several_attempts() -> bool:
        assert connecting.step() == (SUCCESS, None)
        return time.monotonic() - began > 0.1  # there is one each 20 ms

    until(several_attempts, "some attempts")
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    exchange(net, *handshake(net, listen_comm, connecting))
    (line,) = [line for line in net.log_lines if "Too many open files" in line]
    assert line.startswith("connect to 127.0.0.1:")


@pytest.mark.only_softtcpx
@in_fresh_process(SOFTTCPX_CONNECT_TIMEOUT_MS="300", SOFTTCPX_ANSWER_TIMEOUT_MS="0")
def test_an_accept_may_be_waited_for_without_a_limit_but_a_port_that_is_gone_may_not() -> None:
    net = Net(log=True).started()
    assert any(line.startswith("SOFTTCPX_ANSWER_TIMEOUT_MS=0 (env") for line in net.log_lines)
    listen_comm, handle = net.listen()
    connecting = Connecting(net, handle)
    for _ in range(100):  # a deadline of 0 would have come
        assert connecting.step() == (SUCCESS, None)
    assert net.table.close_listen(listen_comm) == SUCCESS
    until(lambda: connecting.step() == (SYSTEM, None), "code 2", seconds=20)
    assert net.log_lines[-1].endswith("Connection refused; given up")


def impostor(handle: bytes, answer: bytes) -> None:
    """Connect to what now owns the listener's port and answers every hello with `answer`."""
    net = Net().started()
    listen_comm, handle = net.listen()
    assert net.table.close_listen(listen_comm) == SUCCESS
    with socket.create_server(address_of(handle)) as server:
        server.setblocking(False)
        connecting = Connecting(net, handle)
        arrived: list[socket.socket] = []

        def step() -> bool:
            code, comm = connecting.step()
            assert comm is None, "connected to an impostor"
            try:
                stranger = server.accept()[0]
                arrived.append(stranger)
                stranger.sendall(answer)
            except (BlockingIOError, ConnectionError):
                pass
            return code == SYSTEM

        until(step, "code 2")
        assert arrived


@pytest.mark.only_softtcpx
@pytest.mark.parametrize("kind", ["noise", "hello without the secret", "nothing"])
@in_fresh_process(SOFTTCPX_CONNECT_TIMEOUT_MS="300", SOFTTCPX_ANSWER_TIMEOUT_MS="300")
def test_whoever_owns_a_stale_port_cannot_pass_for_the_listener(kind: str) -> None:
    answer = {
        "noise": bytes(range(200)),
        "hello without the secret": greeting(ANSWER, 0, 1, NO_TOKEN),
        "nothing": b"",
    }[kind]
    impostor(b"", answer)


@pytest.mark.only_softtcpx
@in_fresh_process()
def test_a_listener_closes_its_port_once_its_connection_is_made() -> None:
    net = Net().started()
    listen_comm, handle = net.listen()
    connecting = Connecting(net, handle)
    made: list[int] = []

    def step() -> bool:
        code, _ = connecting.step()
        assert code == SUCCESS
        code, comm = net.accept(listen_comm)
        assert code == SUCCESS
        made.extend([comm] if comm is not None else [])
        return bool(made)

    until(step, "accept")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(address_of(handle))


@pytest.mark.only_softtcpx
@in_fresh_process()
def test_a_peer_that_closes_right_after_accept_leaves_a_send_comm_that_fails_with_code_2() -> None:
    net = Net().started()
    listen_comm, handle = net.listen()
    connecting = Connecting(net, handle)
    accepted: list[int] = []

    def accepts() -> bool:
        if not accepted:
            assert connecting.step() == (SUCCESS, None)
            code, comm = net.accept(listen_comm)
            assert code == SUCCESS
            accepted.extend([comm] if comm is not None else [])
        return bool(accepted)

    until(accepts, "accept")
    assert net.table.close_recv(accepted[0]) == SUCCESS
    code, send = connecting.step()
    assert code == SUCCESS
    assert send is not None
    source = Memory(64 << 20)
    code, request = net.isend(send, source.address, source.size, net.registered(send, source))
    assert code == SUCCESS
    assert net.code_of(request) == SYSTEM
    assert net.table.close_send(send) == SUCCESS


@pytest.mark.only_softtcpx
@in_fresh_process()
def test_close_listen_while_an_accept_is_pending_is_safe() -> None:
    net = Net().started()
    before = open_descriptors()
    listen_comm, handle = net.listen()
    stranger = socket.create_connection(address_of(handle))
    assert net.accept(listen_comm) == (SUCCESS, None)
    assert net.table.close_listen(listen_comm) == SUCCESS
    stranger.close()
    assert open_descriptors() == before


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"NCCL_NSOCKS_PERTHREAD": "8"},
        {"NCCL_SOCKET_NTHREADS": "2"},
        {"NCCL_SOCKET_NTHREADS": "2", "NCCL_NSOCKS_PERTHREAD": "4"},
    ],
)
@in_fresh_process()
def test_closing_gives_back_every_descriptor_and_thread(environ: dict[str, str]) -> None:
    net = Net().started()
    before, threads_before = open_descriptors(), threads()
    pairs = [connected(net) for _ in range(5)]
    for send, recv in pairs:
        exchange(net, send, recv)
    assert len(open_descriptors()) > len(before)
    assert (threads() > threads_before) == ("NCCL_SOCKET_NTHREADS" in environ)
    for send, recv in pairs:
        assert net.table.close_send(send) == SUCCESS
        assert net.table.close_recv(recv) == SUCCESS
    assert open_descriptors() == before
    until_threads_are(threads_before)


@pytest.mark.only_softtcpx
@in_fresh_process()
def test_closing_nothing_is_fine_and_closing_the_wrong_thing_is_refused() -> None:
    net = Net().started()
    for close in (net.table.close_send, net.table.close_recv, net.table.close_listen):
        assert close(None) == SUCCESS
    assert net.table.dereg_mr(None, None) == SUCCESS
    send, recv = connected(net)
    assert net.table.close_send(recv) == INVALID_ARGUMENT
    assert net.table.close_recv(send) == INVALID_ARGUMENT
    assert net.table.close_listen(send) == INVALID_ARGUMENT
    exchange(net, send, recv)


@pytest.mark.only_softtcpx
@pytest.mark.parametrize(
    ("environ", "sockets"),
    [
        ({}, 1),
        ({"NCCL_NSOCKS_PERTHREAD": "3"}, 3),
        ({"NCCL_NSOCKS_PERTHREAD": "8"}, 8),
        ({"NCCL_NSOCKS_PERTHREAD": "9"}, 1),
        ({"NCCL_NSOCKS_PERTHREAD": "0x4"}, 4),
        ({"NCCL_SOCKET_NTHREADS": "17", "NCCL_NSOCKS_PERTHREAD": "4x"}, 4),
        ({"NCCL_SOCKET_NTHREADS": "3", "NCCL_NSOCKS_PERTHREAD": "4"}, 6),
        ({"NCCL_SOCKET_NTHREADS": "9"}, 8),
        ({"NCCL_SOCKET_NTHREADS": "9", "NCCL_NSOCKS_PERTHREAD": "9"}, 8),
    ],
)
@in_fresh_process()
def test_the_number_of_data_sockets_is_the_product_within_8_of_what_is_within_its_limit(
    environ: dict[str, str], sockets: int
) -> None:
    net = Net().started()
    _, handle = net.listen()
    assert handle[18] == sockets
    exchange(net, *connected(net))


def listener_of_three(line: Line) -> None:
    net = Net().started()
    listen_comm, handle = net.listen()
    line.tell(handle)
    recv = accept(net, listen_comm)
    target = Memory(5000)
    _, request = net.irecv(recv, target.address, 5000, net.registered(recv, target))
    net.finish(request)
    line.tell(target.content())


@in_fresh_process(NCCL_NSOCKS_PERTHREAD="1", NCCL_DYNAMIC_CHUNK_SIZE="700")
def test_the_listeners_socket_and_thread_counts_hold_for_both_sides() -> None:
    net = Net().started()
    message = os.urandom(5000)
    with Other(listener_of_three, NCCL_NSOCKS_PERTHREAD="3", NCCL_SOCKET_NTHREADS="1") as other:
        handle = other.line.hear()
        before, threads_before = open_descriptors(), threads()
        send = connect(net, handle)
        new = {fd: what for fd, what in open_descriptors().items() if fd not in before}
        sockets = [fd for fd, what in new.items() if what.startswith("socket:")]
        assert len(sockets) == 1 + 3
        assert threads() == threads_before + 1
        source = Memory(message)
        _, request = net.isend(send, source.address, 5000, net.registered(send, source))
        net.finish(request)
        assert other.line.hear() == message


@pytest.mark.only_softtcpx
@in_fresh_process()
def test_memory_of_another_kind_or_size_is_refused_at_registration() -> None:
    net = Net().started()
    send, _ = connected(net)
    memory = Memory(100)
    assert net.reg_mr(send, memory, kind=2)[0] == INVALID_ARGUMENT
    assert net.reg_mr(send, memory, kind=0)[0] == INVALID_ARGUMENT
    assert net.table.reg_mr(send, memory.address, -1, 1, None) == INVALID_ARGUMENT
    assert net.table.reg_mr(None, memory.address, 100, 1, None) == INVALID_ARGUMENT
    code, mhandle = net.reg_mr(send, memory)
    assert code == SUCCESS
    assert net.table.get_device_mr(send, mhandle, None) == SUCCESS
    assert net.table.dereg_mr(send, mhandle) == SUCCESS
