"""Any plugin: every byte of every message arrives, in order, and none behind its receive."""

from __future__ import annotations

import os
import random
import threading
from typing import Any

import pytest
from any_net import AnyNet
from net_v7 import Memory, until
from subjects import on_subject
from talk import End, Transfer, ends_of, one_after_another, transfer


@pytest.mark.quick
@pytest.mark.owners
@on_subject
def test_every_byte_arrives_whatever_the_size(subject: dict[str, Any]) -> None:
    net = AnyNet()
    sizes = [0, 1, 2, 63, 64, 65, 4095, 4096, 4097, 8191, 8192, 8193, 8255, 8256, 8257, 8320, 0]
    sizes += [65535, 65536, 65537, 524287, 524288, 524289, 0, 1 << 20, (1 << 21) + 4097, 3]
    pieces, whole = one_after_another(sizes)
    source, target = Memory(os.urandom(whole)), Memory(whole)
    transfer(*ends_of(net, source, target), pieces)
    assert target.content() == source.content()


@pytest.mark.owners
@on_subject
def test_more_than_ten_thousand_messages_keep_their_order(subject: dict[str, Any]) -> None:
    net = AnyNet()
    choose = random.Random(5)
    pieces, whole = one_after_another(choose.choice([0, 1, 7, 64, 100, 333]) for _ in range(12_000))
    source, target = Memory(os.urandom(whole)), Memory(whole)
    transfer(*ends_of(net, source, target), pieces)
    assert target.content() == source.content()


@pytest.mark.owners
@on_subject
def test_many_connections_at_once_each_keep_their_own_bytes(subject: dict[str, Any]) -> None:
    net = AnyNet()
    choose = random.Random(7)
    ends: list[tuple[End, End]] = []
    todo: list[Transfer] = []
    for _ in range(12):
        pieces, whole = one_after_another(
            choose.choice([0, 1, 5000, 70_000, choose.randrange(20_000)]) for _ in range(40)
        )
        ends.append(ends_of(net, Memory(os.urandom(whole)), Memory(whole)))
        todo.append(Transfer(*ends[-1], pieces))

    def step() -> bool:
        choose.shuffle(todo)
        return sum(not one.step() for one in todo) == 0  # a step of each

    until(step, "all transfers", seconds=100)
    for sender, receiver in ends:
        assert receiver.memory.content() == sender.memory.content()


@pytest.mark.owners
@on_subject
def test_connections_may_be_driven_by_different_threads_and_closed_meanwhile(
    subject: dict[str, Any],
) -> None:
    net = AnyNet()
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
                sender.close()
                receiver.close()
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures, failures[0]


@on_subject
def test_a_smaller_message_than_the_posted_receive_is_fine_and_writes_nothing_behind_it(
    subject: dict[str, Any],
) -> None:
    net = AnyNet()
    source, target = Memory(b"s" * 24), Memory(b"p" * 100)
    sender, receiver = ends_of(net, source, target)
    assert receiver.post(0, 100)
    assert sender.post(0, 24)
    until(lambda: sender.drained() & receiver.drained(), "the message")
    assert target.content() == b"s" * 24 + b"p" * 76
