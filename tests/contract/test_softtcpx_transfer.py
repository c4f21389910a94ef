"""softtcpx: every byte of every message arrives, in order, and none behind its receive."""

from __future__ import annotations

import os
import random
import threading
from collections import deque

import pytest
from ends import End, ends_of, every_owner, one_after_another, transfer
from fresh_process import in_fresh_process
from net_v7 import INTERNAL, SLOTS, SUCCESS, Memory, Net, until


@every_owner
@in_fresh_process()
def test_every_byte_arrives_whatever_the_size(environ: dict[str, str]) -> None:
    net = Net().started()
    sizes = [0, 1, 2, 63, 64, 65, 4095, 4096, 4097, 8191, 8192, 8193, 8255, 8256, 8257, 8320, 0]
    sizes += [65535, 65536, 65537, 524287, 524288, 524289, 0, 1 << 20, (1 << 21) + 4097, 3]
    pieces, whole = one_after_another(sizes)
    source, target = Memory(os.urandom(whole)), Memory(whole)
    transfer(*ends_of(net, source, target), pieces)
    assert target.content() == source.content()


@every_owner
@in_fresh_process()
def test_more_than_ten_thousand_messages_keep_their_order(environ: dict[str, str]) -> None:
    net = Net().started()
    choose = random.Random(5)
    pieces, whole = one_after_another(choose.choice([0, 1, 7, 64, 100, 333]) for _ in range(12_000))
    source, target = Memory(os.urandom(whole)), Memory(whole)
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
        pieces, whole = one_after_another(
            choose.choice([0, 1, 5000, 70_000, choose.randrange(20_000)]) for _ in range(40)
        )
        pair = ends_of(net, Memory(os.urandom(whole)), Memory(whole))
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
                pieces, whole = one_after_another(
                    choose.choice([0, 10, 100_000]) for _ in range(30)
                )
                sender, receiver = ends_of(net, Memory(os.urandom(whole)), Memory(whole))
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


@pytest.mark.parametrize(
    "environ", [{}, {"SOFTTCPX_TRAP_POLLS": "8"}], ids=["softtcpx", "as slow as TCPX"]
)
@in_fresh_process()
def test_a_smaller_message_than_the_posted_receive_is_fine_and_writes_nothing_behind_it(
    environ: dict[str, str],
) -> None:
    net = Net().started()
    source, target = Memory(b"s" * 24), Memory(b"p" * 100)
    sender, receiver = ends_of(net, source, target)
    receiver.post(0, 100)
    sender.post(0, 24)
    transfer(sender, receiver, [])
    assert target.content() == b"s" * 24 + b"p" * 76


@pytest.mark.only_softtcpx
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
