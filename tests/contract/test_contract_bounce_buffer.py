"""Any plugin that unpacks: its offsets of one connection hold in the bounce buffer of another."""

from __future__ import annotations

import os
from typing import Any

import pytest
from any_net import AnyNet
from gpu import Driver, GpuMemory, GpuQueue
from net_v7 import SUCCESS, Memory, until
from subjects import not_its_kind, on_subject
from unpack_queue import PAGE, DeviceBlock, Pages, Queue

CONNECTIONS = 3
#: Several pages, the last one not whole.
SIZE = 3 * PAGE + 1000


class Received:
    """A connection over which a message has come that is not consumed yet."""

    def __init__(self, net: AnyNet, block: DeviceBlock, target: Pages | GpuMemory) -> None:
        self.content = os.urandom(SIZE)
        source, self.target = Memory(self.content), target
        send, recv = net.connected(block)
        self.queue = Queue(block) if isinstance(target, Pages) else GpuQueue(block)
        _, received = net.irecv(recv, target.address, SIZE, target.registered(net, recv))
        _, sent = net.isend(send, source.address, SIZE, net.registered(send, source))
        pending = [sent, received]

        def done() -> bool:
            for request in tuple(pending):
                code, is_done, _ = net.test(request)
                assert code == SUCCESS, f"test returned {code}"
                pending.remove(request) if is_done else None
            return not pending

        until(done, "the message")


@pytest.mark.usefixtures("driver_of_the_test_bodies")
@pytest.mark.parametrize("memory", ["pages of the host", "of a GPU"])
@on_subject
def test_a_connection_can_be_read_through_the_bounce_buffer_of_another(
    subject: dict[str, Any], memory: str
) -> None:
    if memory == "pages of the host" and not subject.get("unpacks"):
        not_its_kind("needs emulated memory: it does not take pages of the host for a GPU's")
    driver = Driver() if memory == "of a GPU" else None
    net, all_ends = AnyNet(), []
    for _ in range(CONNECTIONS):
        if (block := net.block()) is None:
            not_its_kind("needs unpack: its netDeviceType is another")
        target = Pages(SIZE) if driver is None else GpuMemory(driver, SIZE)
        all_ends.append(Received(net, block, target))
    for ends in all_ends:
        for other in all_ends:
            assert ends.queue.through(other.queue, 0) == ends.content
