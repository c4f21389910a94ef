"""softtcpx: requests, bytes, limits and errors, as the contract of TCPX has them."""

from __future__ import annotations

import ctypes
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import threading
from collections import deque

import pytest
from fresh_process import (
    LIMIT_S,
    OTHER,
    Line,
    Other,
    clean_environment,
    command_of,
    in_fresh_process,
)
from net_v7 import (
    INTERNAL,
    INVALID_ARGUMENT,
    SLOTS,
    SUCCESS,
    SYSTEM,
    Memory,
    Net,
    accept,
    connect,
    connected,
    until,
)

OWNERS = [
    {},
    {"NCCL_NSOCKS_PERTHREAD": "3"},
    {"NCCL_NSOCKS_PERTHREAD": "8", "NCCL_DYNAMIC_CHUNK_SIZE": "1000"},
    {"NCCL_SOCKET_NTHREADS": "2"},
    {"NCCL_SOCKET_NTHREADS": "2", "SOFTTCPX_SPIN_US": "0", "NCCL_DYNAMIC_CHUNK_SIZE": "5000"},
    {"SOFTTCPX_DIRECT_SOCKETS": "0"},
    {"SOFTTCPX_DIRECT_SOCKETS": "0", "NCCL_NSOCKS_PERTHREAD": "2", "SOFTTCPX_SNDBUF": "4096"},
]
every_owner = pytest.mark.parametrize(
    "environ", OWNERS, ids=lambda environ: ",".join(f"{k}={v}" for k, v in environ.items()) or "-"
)


class End:
    """One end of a connection with one registered block, and its requests in order."""

    def __init__(self, net: Net, comm: int, memory: Memory, sends: bool) -> None:
        self.net, self.comm, self.memory, self.sends = net, comm, memory, sends
        self.mhandle = net.registered(comm, memory)
        self.pending: deque[int | None] = deque()

    def post(self, offset: int, size: int) -> int:
        act = self.net.isend if self.sends else self.net.irecv
        code, request = act(self.comm, self.memory.address + offset, size, self.mhandle)
        if code == SUCCESS:
            self.pending.append(request)
        return code

    def test_head(self) -> bool:
        """Test the oldest request; when done, free its slot."""
        code, done = self.net.test(self.pending[0])
        assert code == SUCCESS, f"test returned {code}"
        if done:
            request = self.pending.popleft()
            if not self.sends:
                assert self.net.consumed(self.comm, request) == SUCCESS
        return done


def ends_of(net: Net, source: Memory, target: Memory) -> tuple[End, End]:
    send, recv = connected(net)
    return End(net, send, source, True), End(net, recv, target, False)


def transfer(sender: End, receiver: End, pieces: list[tuple[int, int]]) -> None:
    """Move every (offset, size), both windows always as full as they may be."""
    waiting = {id(end): deque(pieces) for end in (sender, receiver)}

    def step() -> bool:
        for end in (sender, receiver):
            todo = waiting[id(end)]
            while todo and len(end.pending) < SLOTS:
                assert end.post(*todo[0]) == SUCCESS
                todo.popleft()
            while end.pending and end.test_head():
                pass
        return not any(waiting.values()) and not sender.pending and not receiver.pending

    until(step, "the transfer", seconds=100)


@every_owner
@in_fresh_process()
def test_every_byte_arrives_whatever_the_size(environ: dict[str, str]) -> None:
    net = Net().started()
    sizes = [0, 1, 2, 63, 64, 65, 4095, 4096, 4097, 8191, 8192, 8193, 8255, 8256, 8257, 8320, 0]
    sizes += [65535, 65536, 65537, 524287, 524288, 524289, 0, 1 << 20, (1 << 21) + 4097, 3]
    pieces, offset = [], 0
    for size in sizes:
        pieces.append((offset, size))
        offset += size
    source, target = Memory(os.urandom(offset)), Memory(offset)
    transfer(*ends_of(net, source, target), pieces)
    assert target.content() == source.content()


@every_owner
@in_fresh_process()
def test_more_than_ten_thousand_messages_keep_their_order(environ: dict[str, str]) -> None:
    net = Net().started()
    choose = random.Random(5)
    pieces, offset = [], 0
    for _ in range(12_000):
        size = choose.choice([0, 1, 7, 64, 100, 333])
        pieces.append((offset, size))
        offset += size
    source, target = Memory(os.urandom(offset)), Memory(offset)
    transfer(*ends_of(net, source, target), pieces)
    assert target.content() == source.content()


@every_owner
@in_fresh_process()
def test_many_connections_at_once_each_keep_their_own_bytes(environ: dict[str, str]) -> None:
    net = Net().started()
    choose = random.Random(7)
    ends: list[tuple[End, End]] = []
    todo: list[tuple[End, deque[tuple[int, int]]]] = []
    for _ in range(12):
        pieces: deque[tuple[int, int]] = deque()
        offset = 0
        for _ in range(40):
            size = choose.choice([0, 1, 5000, 70_000, choose.randrange(20_000)])
            pieces.append((offset, size))
            offset += size
        pair = ends_of(net, Memory(os.urandom(offset)), Memory(offset))
        ends.append(pair)
        todo += [(pair[0], deque(pieces)), (pair[1], deque(pieces))]

    def step() -> bool:
        choose.shuffle(todo)
        for end, pieces in todo:
            for _ in range(choose.randrange(4)):
                if pieces and len(end.pending) < SLOTS:
                    assert end.post(*pieces[0]) == SUCCESS
                    pieces.popleft()
            if end.pending:
                end.test_head()
        return not any(pieces or end.pending for end, pieces in todo)

    until(step, "all transfers", seconds=100)
    for sender, receiver in ends:
        assert receiver.memory.content() == sender.memory.content()


@every_owner
@in_fresh_process()
def test_connections_may_be_driven_by_different_threads_and_closed_meanwhile(
    environ: dict[str, str],
) -> None:
    net = Net().started()
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            choose = random.Random(seed)
            for _ in range(4):
                pieces, offset = [], 0
                for _ in range(30):
                    size = choose.choice([0, 10, 100_000])
                    pieces.append((offset, size))
                    offset += size
                sender, receiver = ends_of(net, Memory(os.urandom(offset)), Memory(offset))
                transfer(sender, receiver, pieces)
                assert receiver.memory.content() == sender.memory.content()
                assert net.table.close_send(sender.comm) == SUCCESS
                assert net.table.close_recv(receiver.comm) == SUCCESS
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures, failures[0]


@in_fresh_process()
def test_a_smaller_message_than_the_posted_receive_is_fine_and_writes_nothing_behind_it() -> None:
    net = Net().started()
    source, target = Memory(b"s" * 24), Memory(b"p" * 100)
    sender, receiver = ends_of(net, source, target)
    receiver.post(0, 100)
    sender.post(0, 24)
    until(receiver.test_head if sender.test_head() else lambda: False, "the message")
    assert target.content() == b"s" * 24 + b"p" * 76


@pytest.mark.parametrize("size", [26, 5000, 600_000])
@every_owner
@in_fresh_process()
def test_a_larger_message_than_the_posted_receive_is_error_3_and_overflows_nothing(
    environ: dict[str, str], size: int
) -> None:
    net = Net(log=True).started()
    source, target = Memory(b"s" * size), Memory(b"p" * 25)
    sender, receiver = ends_of(net, source, target)
    receiver.post(0, 25)
    sender.post(0, size)
    if "NCCL_SOCKET_NTHREADS" not in environ:
        net.test(sender.pending[0])
    assert net.code_of(receiver.pending[0]) == INTERNAL
    assert target.content() == b"p" * 25
    assert net.code_of(receiver.pending[0]) == INTERNAL, "the error stays"
    assert receiver.post(0, 25) == INTERNAL
    assert any("larger than the receive" in line for line in net.log_lines)


@every_owner
@in_fresh_process()
def test_the_17th_send_and_receive_are_error_3_and_leave_the_request_as_it_was(
    environ: dict[str, str],
) -> None:
    net = Net().started()
    source, target = Memory(b"s" * SLOTS), Memory(SLOTS)
    sender, receiver = ends_of(net, source, target)
    for end in (sender, receiver):
        for k in range(SLOTS):
            assert end.post(k, 1) == SUCCESS
        act = net.isend if end.sends else net.irecv
        canary = 0xDEAD0
        assert act(end.comm, end.memory.address, 1, end.mhandle, canary) == (INTERNAL, canary)
    transfer(sender, receiver, [])
    assert target.content() == source.content()


@in_fresh_process()
def test_a_receive_keeps_its_slot_until_it_is_consumed_and_a_send_only_until_done() -> None:
    net = Net().started()
    source, target = Memory(b"s" * 100), Memory(100)
    sender, receiver = ends_of(net, source, target)
    for k in range(SLOTS):
        assert sender.post(k, 1) == SUCCESS
        assert receiver.post(k, 1) == SUCCESS
    for k in range(SLOTS):
        net.finish(sender.pending[k])
    for k in range(SLOTS):
        net.finish(receiver.pending[k])
    assert sender.post(16, 1) == SUCCESS
    assert receiver.post(16, 1) == INTERNAL, "16 are finished, none is consumed"
    assert net.consumed(receiver.comm, receiver.pending[0]) == SUCCESS
    assert receiver.post(16, 1) == SUCCESS
    assert receiver.post(17, 1) == INTERNAL
    net.finish(sender.pending[SLOTS])
    net.finish(receiver.pending[SLOTS])


@pytest.mark.parametrize("size", [0, 10])
@in_fresh_process()
def test_consuming_out_of_order_twice_or_before_done_is_error_3_and_harms_nothing(
    size: int,
) -> None:
    net = Net().started()
    source, target = Memory(b"s" * 100), Memory(100)
    sender, receiver = ends_of(net, source, target)
    for k in range(4):
        sender.post(10 * k, size)
        receiver.post(10 * k, size)
    first, second, third, _ = receiver.pending
    assert net.consumed(receiver.comm, first) == INTERNAL, "before done"
    until(sender.test_head, "the first send")
    net.finish(first)
    assert net.consumed(receiver.comm, second) == INTERNAL, "not done"
    net.finish(second)
    assert net.consumed(receiver.comm, second) == INTERNAL, "out of order"
    assert net.consumed(receiver.comm, first) == SUCCESS
    assert net.consumed(receiver.comm, first) == INTERNAL, "twice"
    assert net.consumed(receiver.comm, second) == SUCCESS
    assert net.consumed(receiver.comm, third) == INTERNAL
    assert net.table.irecv_consumed(receiver.comm, 2, third) == INVALID_ARGUMENT
    net.finish(third)
    assert net.consumed(receiver.comm, third) == SUCCESS
    assert net.consumed(sender.comm, third) == INVALID_ARGUMENT


@in_fresh_process()
def test_only_the_oldest_request_may_be_tested_and_never_again_after_done() -> None:
    net = Net().started()
    source, target = Memory(b"s" * 100), Memory(100)
    sender, receiver = ends_of(net, source, target)
    for k in range(3):
        sender.post(k, 1)
        receiver.post(k, 1)
    assert net.test(receiver.pending[1]) == (INTERNAL, False)
    assert net.test(sender.pending[2]) == (INTERNAL, False)
    net.finish(sender.pending[0])
    net.finish(receiver.pending[0])
    assert net.test(receiver.pending[0]) == (INTERNAL, False)
    assert net.test(sender.pending[0]) == (INTERNAL, False)
    net.finish(receiver.pending[1])
    assert net.test(None) == (INVALID_ARGUMENT, False)
    assert net.table.test(receiver.pending[2], None, None) == INVALID_ARGUMENT


@in_fresh_process()
def test_request_pointers_repeat_every_16_posts() -> None:
    net = Net().started()
    source, target = Memory(b"s" * 8), Memory(8)
    sender, receiver = ends_of(net, source, target)
    seen: dict[bool, list[int | None]] = {True: [], False: []}
    for k in range(40):
        for end in (sender, receiver):
            assert end.post(0, k % 3) == SUCCESS
            seen[end.sends].append(end.pending[0])
        until(sender.test_head, "the send")
        until(receiver.test_head, "the receive")
    for pointers in seen.values():
        assert len(set(pointers)) == SLOTS
        assert pointers[SLOTS:] == pointers[:-SLOTS]


@in_fresh_process()
def test_sizes_are_never_written() -> None:
    net = Net().started()
    source, target = Memory(b"s" * 8), Memory(8)
    sender, receiver = ends_of(net, source, target)
    sender.post(0, 8)
    receiver.post(0, 8)
    until(sender.test_head, "the send")
    done, sizes = ctypes.c_int(), ctypes.c_int(-77)

    def finished() -> bool:
        table = net.table
        code = table.test(receiver.pending[0], ctypes.byref(done), ctypes.byref(sizes))
        assert code == SUCCESS
        return done.value == 1

    until(finished, "the receive")
    assert sizes.value == -77


@in_fresh_process()
def test_data_outside_its_registration_and_senseless_arguments_are_refused() -> None:
    net = Net().started()
    source, target = Memory(100), Memory(100)
    sender, receiver = ends_of(net, source, target)
    for end in (sender, receiver):
        assert end.post(1, 100) == INVALID_ARGUMENT
        assert end.post(-1, 10) == INVALID_ARGUMENT
        assert end.post(101, 1) == INVALID_ARGUMENT
        assert end.post(0, -1) == INVALID_ARGUMENT
        assert end.post(100, 0) == SUCCESS
        act = net.isend if end.sends else net.irecv
        other = net.irecv if end.sends else net.isend
        assert act(end.comm, end.memory.address, 1, None)[0] == INVALID_ARGUMENT
        assert other(end.comm, end.memory.address, 1, end.mhandle)[0] == INVALID_ARGUMENT
        assert act(0, end.memory.address, 1, end.mhandle)[0] == INVALID_ARGUMENT
    for n in (0, 2):
        code, _ = net.irecv(receiver.comm, target.address, 1, receiver.mhandle, n=n)
        assert code == INVALID_ARGUMENT


@in_fresh_process()
def test_flush_has_nothing_to_wait_for_in_host_memory() -> None:
    net = Net().started()
    _, recv = connected(net)
    request = ctypes.c_void_p(0xDEAD0)
    assert net.table.iflush(recv, 1, None, None, None, ctypes.byref(request)) == SUCCESS
    assert request.value is None


# Losing a peer ------------------------------------------------------------------------------------


def receiver_that_never_receives(line: Line) -> None:
    net = Net().started()
    listen_comm, handle = net.listen()
    line.tell(handle)
    accept(net, listen_comm)
    line.tell(b"ready")
    line.hear()


@every_owner
@in_fresh_process()
def test_a_sender_whose_peer_is_killed_gets_code_2(environ: dict[str, str]) -> None:
    net = Net(log=True).started()
    with Other(receiver_that_never_receives) as other:
        send = connect(net, other.line.hear())
        other.line.hear()
        source = Memory(32 << 20)  # more than the kernel buffers
        end = End(net, send, source, True)
        for _ in range(SLOTS):
            assert end.post(0, 32 << 20) == SUCCESS
        for _ in range(1000):
            end.test_head()
        os.kill(other.process.pid, signal.SIGKILL)
        assert net.code_of(end.pending[0]) == SYSTEM
        assert end.post(0, 1) == SYSTEM, "the error stays"
        assert net.table.close_send(send) == SUCCESS


def sender_of_two_messages(line: Line) -> None:
    net = Net().started()
    source = Memory(bytes(range(256)) * 512)
    end = End(net, connect(net, line.hear()), source, True)
    for size in (source.size, 5000):
        assert end.post(0, size) == SUCCESS
    until(lambda: end.test_head() and not end.pending, "both sends")
    line.tell(b"sent")
    line.hear()


@pytest.mark.parametrize("posted_before", [True, False])
@every_owner
@in_fresh_process()
def test_what_a_killed_sender_had_sent_still_arrives_and_then_comes_code_2(
    environ: dict[str, str], posted_before: bool
) -> None:
    net = Net(log=True).started()
    expected = bytes(range(256)) * 512
    target = Memory(3 * len(expected))
    with Other(sender_of_two_messages) as other:
        listen_comm, handle = net.listen()
        other.line.tell(handle)
        end = End(net, accept(net, listen_comm), target, False)
        offsets = [0, len(expected), 2 * len(expected)]
        if posted_before:
            for offset in offsets:
                end.post(offset, len(expected))
        other.line.hear()
        os.kill(other.process.pid, signal.SIGKILL)
        other.process.wait()
        if not posted_before:
            for offset in offsets:
                assert end.post(offset, len(expected)) == SUCCESS
        until(lambda: end.test_head() and len(end.pending) == 1, "what was sent")
        assert net.code_of(end.pending[0]) == SYSTEM
        content = target.content()
        assert content[: len(expected)] == expected
        assert content[len(expected) : len(expected) + 5000] == expected[:5000]
        assert net.table.close_recv(end.comm) == SUCCESS


@every_owner
@in_fresh_process()
def test_an_idle_receiver_learns_that_its_peer_closed(environ: dict[str, str]) -> None:
    net = Net().started()
    sender, receiver = ends_of(net, Memory(10), Memory(10))
    receiver.post(0, 10)
    for _ in range(200):
        assert net.test(receiver.pending[0]) == (SUCCESS, False)
    assert net.table.close_send(sender.comm) == SUCCESS
    assert net.code_of(receiver.pending[0]) == SYSTEM


def data_sockets(port_side: bool) -> list[socket.socket]:
    """Duplicates of this process's connected TCP sockets, one side of each connection."""
    found = []
    for name in sorted(os.listdir("/proc/self/fd"), key=int):
        try:
            descriptor = os.dup(int(name))
        except OSError:  # what listed them
            continue
        try:
            duplicate = socket.socket(fileno=descriptor)
        except OSError:  # no socket
            os.close(descriptor)
            continue
        try:
            duplicate.getpeername()
            own, peer = duplicate.getsockname()[1], duplicate.getpeername()[1]
        except OSError:
            duplicate.close()
            continue
        found.append((own, peer, duplicate))
    ports = {own for own, _, _ in found}
    listener_port = max(ports, key=lambda port: sum(own == port for own, _, _ in found))
    return [s for own, _, s in found if (own == listener_port) == port_side]


@pytest.mark.parametrize("environ", [{}, {"SOFTTCPX_DIRECT_SOCKETS": "0"}], ids=["direct", "epoll"])
@in_fresh_process()
def test_the_end_of_a_data_socket_right_behind_its_last_byte_is_noticed(
    environ: dict[str, str],
) -> None:
    net = Net(log=True).started()
    sender, receiver = ends_of(net, Memory(b"s" * 5000), Memory(5000))
    control_and_data = data_sockets(port_side=False)
    receiver.post(0, 5000)
    for _ in range(100):  # the first looks, that find nothing yet
        assert net.test(receiver.pending[0]) == (SUCCESS, False)
    sender.post(0, 5000)
    until(sender.test_head, "the send")
    # Descriptors are handed out in order: the control socket is the older one.
    control_and_data[1].shutdown(socket.SHUT_WR)
    receiver.post(0, 5000)
    until(receiver.test_head, "what was sent")
    assert net.code_of(receiver.pending[0]) == SYSTEM


@pytest.mark.parametrize("victim", [0, 1, 2])
@pytest.mark.parametrize("receiving_side", [True, False])
@pytest.mark.parametrize("environ", [{}, {"SOFTTCPX_DIRECT_SOCKETS": "0"}], ids=["direct", "epoll"])
@in_fresh_process(NCCL_NSOCKS_PERTHREAD="2")
def test_a_broken_socket_ends_the_pending_requests_with_code_2(
    environ: dict[str, str], victim: int, receiving_side: bool
) -> None:
    net = Net(log=True).started()
    sender, receiver = ends_of(net, Memory(64 << 20), Memory(64 << 20))
    receiver.post(0, 64 << 20)
    sockets = data_sockets(port_side=receiving_side)
    assert len(sockets) == 3
    sockets[victim].shutdown(socket.SHUT_RDWR)
    # A connection of which one socket is gone: more is sent than its buffers hold.
    sender.post(0, 64 << 20)
    codes: dict[bool, int] = {}

    def both_failed() -> bool:
        for end in (sender, receiver):
            code, done = net.test(end.pending[0])
            assert not done
            if code != SUCCESS:
                codes[end.sends] = code
                if len(codes) == 1:  # as a caller does: the first error closes that side
                    close = net.table.close_send if end.sends else net.table.close_recv
                    assert code == SYSTEM
                    assert close(end.comm) == SUCCESS
                    survivors.remove(end)
                    return True
        return False

    survivors = [sender, receiver]
    until(both_failed, "the first error")
    assert net.code_of(survivors[0].pending[0]) == SYSTEM


# Cost ---------------------------------------------------------------------------------------------

IDLE_CONNECTIONS, IDLE_ROUNDS = 100, 1000


def idle_receivers(line: Line) -> None:
    net = Net().started()
    ends = [ends_of(net, Memory(8), Memory(8))[1] for _ in range(IDLE_CONNECTIONS)]
    for end in ends:
        end.post(0, 8)
    os.write(2, b"idle from here\n")
    for _ in range(IDLE_ROUNDS):
        for end in ends:
            assert net.test(end.pending[0]) == (SUCCESS, False)
    os.write(2, b"idle until here\n")


def test_a_round_over_100_idle_connections_costs_about_one_system_call() -> None:
    strace = shutil.which("strace")
    if strace is None or subprocess.run([strace, "-qq", "true"], capture_output=True).returncode:
        pytest.skip("needs strace: system calls are counted with it")
    result = subprocess.run(
        [
            strace,
            "-f",
            "-e",
            "trace=network,read,readv,epoll_wait",
            *command_of(idle_receivers, OTHER),
        ],
        env=clean_environment({}),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    between = re.search(r"idle from here(.*)idle until here", result.stderr, re.DOTALL)
    assert between is not None
    # A first try of its sockets each, then one question about all of them a round.
    calls = between.group(1).count("\n") - 2 * IDLE_CONNECTIONS
    assert IDLE_ROUNDS / 2 < calls < 1.1 * IDLE_ROUNDS, f"{calls} system calls"
