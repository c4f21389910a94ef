"""A witness of v7 that shares nothing with the engine: the table as ctypes has it (`net_v7`).

What any plugin has to do is asked by `conform`, which calls plugins by the engine's own
declarations. Were those wrong, softtcpx would be wrong in the same way, and this would be red.
"""

from __future__ import annotations

import os
import random
import threading

import pytest
from ends import OWNERS, ends_of, one_after_another, transfer
from fresh_process import in_fresh_process
from net_v7 import SUCCESS, Memory, Net

#: The caller moves the bytes, or workers do; `conform` asks for each way.
TWO = (OWNERS[0], OWNERS[4])
SIZES = (
    0, 1, 2, 63, 64, 65, 4095, 4096, 4097, 8191, 8192, 8193, 8255, 8256, 8257, 8320, 0, 65535,
    65536, 65537, 524287, 524288, 524289, 0, 1 << 20, (1 << 21) + 4097, 3,
)  # fmt: skip


@pytest.mark.parametrize("environ", TWO, ids=["caller", "workers"])
@in_fresh_process()
def test_every_byte_arrives_whatever_the_size(environ: dict[str, str]) -> None:
    net = Net().started()
    pieces, whole = one_after_another(SIZES)
    source, target = Memory(os.urandom(whole)), Memory(whole)
    transfer(*ends_of(net, source, target), pieces)
    assert target.content() == source.content()


@pytest.mark.parametrize("environ", TWO, ids=["caller", "workers"])
@in_fresh_process()
def test_connections_may_be_driven_by_different_threads_and_closed_meanwhile(
    environ: dict[str, str],
) -> None:
    net = Net().started()
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        choose = random.Random(seed)
        try:
            for _ in range(4):
                sizes = (choose.choice([0, 10, 100_000]) for _ in range(30))
                pieces, whole = one_after_another(sizes)
                source, target = Memory(os.urandom(whole)), Memory(whole)
                sender, receiver = ends_of(net, source, target)
                transfer(sender, receiver, pieces)
                assert target.content() == source.content()
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
