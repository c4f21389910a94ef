"""softtcpx as unkind as TCPX, one switch a test, and all of them by SOFTTCPX_LIKE."""

from __future__ import annotations

import ctypes
import os
import socket
import time

import pytest
from ends import End, ends_of, exchange, transfer
from fresh_process import in_fresh_process
from net_v7 import (
    INFO,
    INTERNAL,
    INVALID_ARGUMENT,
    PTR_CUDA,
    SLOTS,
    SUCCESS,
    SYSTEM,
    WARN,
    Connecting,
    Memory,
    Net,
    Properties,
    accept,
    connected,
    until,
)
from own_process import data_sockets
from unpack_queue import PAGE, Pages, Pair

pytestmark = pytest.mark.only_softtcpx

LIKE = "tcpx-3.1.9"


def hosts(net: Net, size: int = 100) -> tuple[End, End]:
    return ends_of(net, Memory(b"s" * size), Memory(size))


def count_of_tests(end: End) -> int:
    """How many tests the oldest request takes, the last one included."""
    count = 1
    while not end.test_head():
        count += 1
        assert count < 100_000
    return count


# --- The log ------------------------------------------------------------------------------------


@in_fresh_process(SOFTTCPX_TRAP_TRACE="1")
def test_behind_the_cause_of_an_error_comes_a_trace_at_level_info() -> None:
    net = Net(log=True).started()
    send, _ = connected(net)
    code, _ = net.reg_mr(send, Memory(100), PTR_CUDA)
    assert code == INVALID_ARGUMENT
    assert net.log_levels[-2:] == [WARN, INFO]
    assert "GPU memory is registered in whole pages" in net.log_lines[-2]
    assert net.log_lines[-1].endswith("-> 4")
    assert net.init() == INTERNAL
    assert net.log_lines[-1].endswith("-> 3")


@in_fresh_process()
def test_without_the_switch_the_cause_is_the_last_line() -> None:
    net = Net(log=True).started()
    send, _ = connected(net)
    assert net.reg_mr(send, Memory(100), PTR_CUDA)[0] == INVALID_ARGUMENT
    assert net.log_levels[-1] == WARN


@in_fresh_process(SOFTTCPX_TRAP_WARN_RECEIVES="1")
def test_each_attempt_to_receive_into_host_memory_is_a_warning() -> None:
    net = Net(log=True).started()
    _, receiver = hosts(net)
    before = len(net.log_lines)
    receiver.post(0, 100)
    for _ in range(50):
        assert not receiver.test_head()
    said = net.log_lines[before:]
    assert len(said) == 50
    assert set(said) == {"receive into host memory : attempt on data socket 0"}
    assert net.log_levels[before:] == [WARN] * 50


@in_fresh_process(SOFTTCPX_TRAP_WARN_RECEIVES="1")
def test_receives_into_gpu_memory_warn_of_nothing() -> None:
    net = Net(log=True).started()
    pair = Pair(net, b"s" * 5000)
    before = len(net.log_lines)
    pair.move(0, 5000)
    assert net.log_lines[before:] == []


@in_fresh_process(SOFTTCPX_TRAP_INIT_LINES="60")
def test_init_logs_so_many_lines_one_of_them_without_a_text() -> None:
    net = Net(log=True).started()
    assert net.log_levels.count(INFO) == 60
    assert net.log_lines.count("(null)") == 1


# --- Set-up -------------------------------------------------------------------------------------


@in_fresh_process(SOFTTCPX_TRAP_ACCEPT_LATE_MS="300")
def test_connect_is_ready_before_accept_and_may_send_meanwhile() -> None:
    net = Net().started()
    listen_comm, handle = net.listen()
    connecting = Connecting(net, handle)
    made: list[int] = []

    def step() -> bool:
        code, comm = connecting.step()
        assert code == SUCCESS
        if comm is not None:
            made.append(comm)
        # Before the last word of the handshake accept cannot be ready either.
        assert net.accept(listen_comm) == (SUCCESS, None)
        return bool(made)

    until(step, "connect")
    since = time.monotonic()
    sender = End(net, made[0], Memory(b"early"), True)
    sender.post(0, 5)
    until(sender.test_head, "the send")
    receiver = End(net, accept(net, listen_comm), Memory(5), False)
    assert time.monotonic() - since < 30
    receiver.post(0, 5)
    until(receiver.test_head, "the receive")
    assert receiver.memory.content() == b"early"


NO_FILE = "failed against receive-datapath-manager : No such file or directory"


def codes_of_accept(net: Net, listen_comm: int, connecting: Connecting) -> list[int]:
    """Until it fails, at most 2000."""
    codes: list[int] = []

    def step() -> bool:
        assert connecting.step() == (SUCCESS, None)
        code, comm = net.accept(listen_comm)
        assert comm is None
        codes.append(code)
        return code != SUCCESS or len(codes) == 2000

    until(step, "accept")
    return codes


@in_fresh_process(SOFTTCPX_TRAP_NO_MANAGER="1")
def test_without_the_manager_of_rules_accept_fails_with_the_cause_and_connect_without() -> None:
    net = Net(log=True).started()
    listen_comm, handle = net.listen()
    connecting = Connecting(net, handle)
    assert codes_of_accept(net, listen_comm, connecting)[-1] == INTERNAL
    assert net.log_lines[-1] == f"rx_rule_manager {NO_FILE}"
    code = SUCCESS

    def refused() -> bool:
        nonlocal code
        code, _ = connecting.step()
        return code != SUCCESS

    until(refused, "connect")
    assert code == INTERNAL
    assert net.log_lines[-1] == f"rx_rule_manager {NO_FILE}"


@in_fresh_process(SOFTTCPX_TRAP_NO_MANAGER="2")
def test_without_the_manager_of_gpu_memory_accept_ends_the_process() -> None:
    if (child := os.fork()) == 0:
        try:
            net = Net().started()
            listen_comm, handle = net.listen()
            codes_of_accept(net, listen_comm, Connecting(net, handle))
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


@in_fresh_process(SOFTTCPX_TRAP_NO_MANAGER="3")
def test_with_a_manager_that_never_answers_accept_never_ends() -> None:
    net = Net().started()
    listen_comm, handle = net.listen()
    codes = codes_of_accept(net, listen_comm, Connecting(net, handle))
    assert codes == [SUCCESS] * 2000


@in_fresh_process(SOFTTCPX_TRAP_LONG_PREFIXES="1", NCCL_SOCKET_IFNAME="l")
def test_a_prefix_of_one_letter_chooses_nothing() -> None:
    assert Net().started().devices() == 0


@in_fresh_process(SOFTTCPX_TRAP_LONG_PREFIXES="1", NCCL_SOCKET_IFNAME="lo")
def test_a_prefix_of_two_letters_chooses_all_the_same() -> None:
    assert Net().started().devices() == 1


@in_fresh_process(SOFTTCPX_TRAP_LONG_PREFIXES="1", NCCL_SOCKET_IFNAME="^=l")
def test_what_is_left_out_exactly_by_one_letter_leaves_lo() -> None:
    assert Net().started().devices() >= 1


@in_fresh_process(SOFTTCPX_TRAP_CODES="1", NCCL_SOCKET_IFNAME="=none")
def test_init_fails_where_there_is_no_interface() -> None:
    net = Net(log=True)
    assert net.init() == INTERNAL
    assert net.log_lines[-1] == "no interface found"


# --- Codes and arguments ------------------------------------------------------------------------


@in_fresh_process(SOFTTCPX_TRAP_CODES="1")
def test_what_is_an_invalid_argument_is_error_3() -> None:
    net = Net().started()
    assert net.table.get_properties(99, ctypes.byref(Properties())) == INTERNAL
    sender, receiver = hosts(net)
    assert net.isend(sender.comm, sender.memory.address, 1, None)[0] == INTERNAL
    code, _ = net.irecv(receiver.comm, receiver.memory.address, 1, receiver.mhandle, n=2)
    assert code == INTERNAL
    assert net.test(None) == (INTERNAL, False)
    assert net.reg_mr(sender.comm, sender.memory, 4)[0] == INTERNAL
    assert net.table.irecv_consumed(receiver.comm, 2, None) == INTERNAL


@in_fresh_process(SOFTTCPX_TRAP_TAKES_ALL="1")
def test_senseless_arguments_are_taken() -> None:
    net = Net().started()
    properties = Properties()
    assert net.table.get_properties(99, ctypes.byref(properties)) == SUCCESS
    assert properties.ptr_support == 3
    sender, receiver = hosts(net, 200)
    inside = Memory(b"i" * 100)
    mhandle = net.registered(sender.comm, inside)
    code, outside = net.isend(sender.comm, sender.memory.address, 1, mhandle)
    assert code == SUCCESS
    assert receiver.post(0, 1) == SUCCESS
    assert sender.post(0, -1) == SUCCESS
    assert receiver.post(1, 10) == SUCCESS
    net.finish(outside, *sender.pending)
    net.finish(*receiver.pending)
    assert receiver.memory.content() == b"s" + bytes(199)
    assert net.isend(receiver.comm, sender.memory.address, 1, mhandle) == (SUCCESS, None)
    assert net.consumed(sender.comm, receiver.pending[0]) == SUCCESS
    pages = Pages(2 * PAGE)
    pages.size = PAGE + 1
    assert pages.registered(net, receiver.comm)
    assert net.table.close_recv(sender.comm) == SUCCESS
    assert net.table.close_send(receiver.comm) == SUCCESS


# --- Requests -----------------------------------------------------------------------------------


@pytest.mark.parametrize("environ", [{}, {"SOFTTCPX_WORKERS": "1"}], ids=["inline", "worker"])
@in_fresh_process(SOFTTCPX_TRAP_POLLS="8")
def test_no_message_is_done_before_its_ninth_test(environ: dict[str, str]) -> None:
    net = Net().started()
    sender, receiver = hosts(net)
    for _ in range(3):
        assert sender.post(0, 50) == SUCCESS
        assert receiver.post(0, 50) == SUCCESS
        assert count_of_tests(sender) >= 9
        assert count_of_tests(receiver) >= 9
    assert receiver.memory.content()[:50] == b"s" * 50


@in_fresh_process(SOFTTCPX_TRAP_POLLS="8")
def test_a_send_that_is_tested_less_often_has_not_moved() -> None:
    net = Net().started()
    sender, receiver = hosts(net)
    sender.post(0, 50)
    receiver.post(0, 50)
    for _ in range(8):
        assert not sender.test_head()
    for _ in range(1000):
        assert not receiver.test_head()
    until(sender.test_head, "the send")
    until(receiver.test_head, "the receive")


@in_fresh_process(SOFTTCPX_TRAP_YOUNGER="1")
def test_a_younger_request_is_not_done_and_no_error() -> None:
    net = Net().started()
    sender, receiver = hosts(net)
    for end in (sender, receiver):
        for _ in range(3):
            end.post(0, 1)
    for end in (sender, receiver):
        assert net.test(end.pending[1]) == (SUCCESS, False)
        assert net.test(end.pending[2]) == (SUCCESS, False)
    first = receiver.pending[0]
    until(sender.test_head, "the send")
    until(receiver.test_head, "the receive")
    assert net.test(first) == (INTERNAL, False), "one that was done is no younger one"
    assert net.test(receiver.pending[1]) == (SUCCESS, False)


@in_fresh_process(SOFTTCPX_TRAP_LATE_COUNTS="1", SOFTTCPX_TRAP_POLLS="3", SOFTTCPX_TRAP_DELAY="1")
def test_the_count_of_a_slot_is_stale_then_0_then_final() -> None:
    net = Net().started()
    pair = Pair(net, b"s" * 10 * PAGE)
    for _ in range(SLOTS):
        assert net.consumed(pair.recv, pair.move(0, 2 * PAGE)) == SUCCESS
    request = pair.post_receive(0, 10 * PAGE)
    pair.post_send(0, 10 * PAGE)
    until(pair.sends_done, "the send")
    seen = [pair.queue.count(SLOTS)]
    done = False
    while not done:
        code, done = net.test(request)
        assert code == SUCCESS
        seen.append(pair.queue.count(SLOTS))
    assert list(dict.fromkeys(seen)) == [2, 0, 10]
    assert seen[-2:] == [0, 10], "final with done, and no test sooner"
    assert pair.queue.unpacked(SLOTS, 10 * PAGE) == b"s" * 10 * PAGE


# --- A lost peer --------------------------------------------------------------------------------


@in_fresh_process(SOFTTCPX_TRAP_LOST_PEER="1")
def test_after_the_receiver_closed_one_send_succeeds_and_the_next_is_error_2() -> None:
    net = Net().started()
    sender, receiver = hosts(net)
    assert net.table.close_recv(receiver.comm) == SUCCESS
    sender.post(0, 1)
    until(sender.test_head, "a send to nobody")
    sender.post(0, 1)
    assert net.code_of(sender.pending[0]) == SYSTEM


@pytest.mark.parametrize("receiving_side", [True, False])
@in_fresh_process(SOFTTCPX_TRAP_LOST_PEER="1")
def test_a_broken_data_socket_is_one_warning_and_silence_for_ever(receiving_side: bool) -> None:
    net = Net(log=True).started()
    size = 64 << 20
    sender, receiver = ends_of(net, Memory(size), Memory(size))
    # Descriptors are handed out in order by the side that connects, the control socket first.
    victim = data_sockets(port_side=False)[1]
    before = len(net.log_lines)
    victim.shutdown(socket.SHUT_WR if receiving_side else socket.SHUT_RDWR)
    end = receiver if receiving_side else sender
    end.post(0, size)
    for _ in range(20_000):
        assert net.test(end.pending[0]) == (SUCCESS, False)
    said = net.log_lines[before:]
    assert len(said) == 1, said
    assert " on data socket 0 with " in said[0]
    assert " failed : " in said[0]


@in_fresh_process(SOFTTCPX_TRAP_LOST_PEER="1")
def test_a_sender_that_closes_after_done_is_error_2_then_not_done_then_done() -> None:
    net = Net().started()
    sender, receiver = hosts(net)
    receiver.post(0, 100)
    sender.post(0, 100)
    until(sender.test_head, "the send")
    assert net.table.close_send(sender.comm) == SUCCESS
    answers = [net.test(receiver.pending[0]) for _ in range(3)]
    assert answers == [(SYSTEM, False), (SUCCESS, False), (SUCCESS, True)]
    assert receiver.memory.content() == b"s" * 100


@in_fresh_process(SOFTTCPX_TRAP_LOST_PEER="1")
def test_a_sender_that_closed_before_its_last_message_stays_error_2() -> None:
    net = Net().started()
    sender, receiver = hosts(net)
    receiver.post(0, 100)
    assert net.table.close_send(sender.comm) == SUCCESS
    assert net.test(receiver.pending[0]) == (SYSTEM, False)
    assert net.test(receiver.pending[0]) == (SUCCESS, False)
    assert net.code_of(receiver.pending[0]) == SYSTEM
    assert net.test(receiver.pending[0]) == (SYSTEM, False)


# --- Bounce pages -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "environ",
    [{}, {"SOFTTCPX_WORKERS": "1"}, {"SOFTTCPX_DIRECT_SOCKETS": "0"}],
    ids=["inline", "worker", "epoll"],
)
@in_fresh_process(SOFTTCPX_TRAP_SHARED_PAGES="10")
def test_what_one_connection_keeps_another_starves_for(environ: dict[str, str]) -> None:
    net = Net().started()
    first, second = Pair(net, b"1" * 8 * PAGE), Pair(net, b"2" * 8 * PAGE)
    kept = first.move(0, 8 * PAGE)
    waiting = second.post_receive(0, 8 * PAGE)
    second.post_send(0, 8 * PAGE)
    until(second.sends_done, "the send")
    for _ in range(2000):
        assert net.test(waiting) == (SUCCESS, False)
    assert first.queue.unpacked(0, 8 * PAGE) == b"1" * 8 * PAGE
    assert net.consumed(first.recv, kept) == SUCCESS
    # Pages come back when their connection is driven, or closed.
    assert net.table.close_recv(first.recv) == SUCCESS
    second.finish(waiting)
    assert second.queue.unpacked(0, 8 * PAGE) == b"2" * 8 * PAGE
    assert net.consumed(second.recv, waiting) == SUCCESS
    assert net.table.close_recv(second.recv) == SUCCESS


@in_fresh_process(SOFTTCPX_TRAP_SHARED_PAGES="10")
def test_a_receive_that_is_larger_than_the_pool_never_ends() -> None:
    net = Net().started()
    pair = Pair(net, b"s" * 11 * PAGE)
    request = pair.post_receive(0, 11 * PAGE)
    pair.post_send(0, 11 * PAGE)
    until(pair.sends_done, "the send")
    for _ in range(2000):
        assert net.test(request) == (SUCCESS, False)


@in_fresh_process(SOFTTCPX_TRAP_SHARED_PAGES="40", NCCL_NSOCKS_PERTHREAD="3",
                  NCCL_DYNAMIC_CHUNK_SIZE="8192")  # fmt: skip
def test_a_pool_that_suffices_moves_every_byte_and_loses_no_page() -> None:
    net = Net().started()
    content = os.urandom(30 * PAGE + 1)
    pair = Pair(net, content)
    for k in range(3 * SLOTS):
        size = (k * 7919) % len(content)
        request = pair.move(0, size)
        assert pair.queue.unpacked(k, size) == content[:size]
        assert net.consumed(pair.recv, request) == SUCCESS
    pair.close()


# --- All of them --------------------------------------------------------------------------------


@in_fresh_process(SOFTTCPX_LIKE=LIKE)
def test_like_tcpx_all_are_set_and_named_once_as_a_trap() -> None:
    net = Net(log=True).started()
    warned = [t for t, level in zip(net.log_lines, net.log_levels, strict=True) if level == WARN]
    assert warned == [f"a trap is set: SOFTTCPX_LIKE={LIKE}"]
    by_it = {t.split("=")[0] for t in net.log_lines if " (SOFTTCPX_LIKE): " in t}
    assert by_it == {
        f"SOFTTCPX_TRAP_{name}"
        for name in ("DELAY", "TRACE", "WARN_RECEIVES", "DEVICE_MEMORY", "ACCEPT_LATE_MS", "POLLS",
                     "LATE_COUNTS", "YOUNGER", "LOST_PEER", "SHARED_PAGES", "CODES", "TAKES_ALL",
                     "INIT_LINES", "LONG_PREFIXES")
    }  # fmt: skip
    send, recv = connected(net)
    exchange(net, send, recv)
    pair = Pair(net, os.urandom(100_000))
    assert net.consumed(pair.recv, pair.move(0, 100_000)) == SUCCESS
    assert pair.queue.unpacked(0, 100_000) == pair.source.content()


@in_fresh_process(SOFTTCPX_LIKE=LIKE, SOFTTCPX_TRAP_POLLS="0", SOFTTCPX_TRAP_DELAY="0")
def test_a_switch_that_is_set_goes_before_that() -> None:
    net = Net(log=True).started()
    sender, receiver = hosts(net)
    sender.post(0, 1)
    assert count_of_tests(sender) == 1
    receiver.post(0, 1)
    transfer(sender, receiver, [])


@in_fresh_process(SOFTTCPX_LIKE="tcpx-9")
def test_like_what_is_unknown_is_like_nothing() -> None:
    net = Net(log=True).started()
    assert net.log_lines[0] == "SOFTTCPX_LIKE=tcpx-9 is unknown; using nothing"
    assert not any("a trap is set" in line for line in net.log_lines)
