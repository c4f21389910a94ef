"""softtcpx with its device block and bounce buffer where TCPX has them: in a GPU's memory."""

from __future__ import annotations

import ctypes
import functools
import os
import signal

import pytest
from fresh_process import in_fresh_process
from gpu import Driver, GpuMemory, GpuQueue, inline_and_worker, only_the_fake_driver
from net_v7 import INVALID_ARGUMENT, PTR_CUDA, SLOTS, SUCCESS, Net
from unpack_queue import PAGE, Pages, UnpackPair, connected_with_queue

pytestmark = [
    pytest.mark.only_softtcpx,
    pytest.mark.usefixtures("driver_of_the_test_bodies"),
]


@inline_and_worker
@in_fresh_process(SOFTTCPX_TRAP_DEVICE_MEMORY="1", SOFTTCPX_POISON="1", SOFTTCPX_FRAGMENTS="random")
def test_every_byte_is_in_the_gpu_when_a_receive_is_done(environ: dict[str, str]) -> None:
    net, driver = Net().started(), Driver()
    content = os.urandom(20 * PAGE)
    pair = UnpackPair(net, GpuMemory(driver, content), GpuMemory(driver, len(content)), GpuQueue)
    for k in range(SLOTS + 2):
        size = (7919 * k) % len(content)
        request = pair.move(0, size)
        fragments = pair.queue.fragments(k)
        assert pair.queue.unpacked(k, size) == content[:size]
        assert net.consumed(pair.recv, request) == SUCCESS
        assert all(set(pair.queue.bytes_of(f)) == {0xDB} for f in fragments), (
            "late unpacks are seen"
        )
    pair.close()


@pytest.mark.parametrize("environ", [{}, {"SOFTTCPX_TRAP_SHARED_PAGES": "8192"}], ids=str)
@in_fresh_process(SOFTTCPX_TRAP_DEVICE_MEMORY="1")
def test_connections_of_a_gpu_have_one_bounce_buffer_there(environ: dict[str, str]) -> None:
    net, driver = Net().started(), Driver()
    found = []
    for device in range(min(driver.devices, 2)):  # each has one of its own
        driver.make_current(device)
        pairs, received = [], []
        for _ in range(2):
            content = os.urandom(5 * PAGE)
            memory = GpuMemory(driver, content, device), GpuMemory(driver, len(content), device)
            pairs.append(UnpackPair(net, *memory, functools.partial(GpuQueue, device=device)))
            received.append(pairs[-1].move(0, len(content)))
        for pair in pairs:
            for other in pairs:
                assert pair.queue.through(other.queue, 0) == pair.source.content()
        for pair, request in zip(pairs, received, strict=True):
            assert net.consumed(pair.recv, request) == SUCCESS
        found += pairs
    for pair in found:
        pair.close()


@only_the_fake_driver
@pytest.mark.parametrize("what", ["block", "bounce"])
@in_fresh_process(SOFTTCPX_TRAP_DEVICE_MEMORY="1")
def test_a_cpu_that_follows_its_address_crashes(what: str) -> None:
    net, _ = Net().started(), Driver()
    _, _, queue = connected_with_queue(net, GpuQueue)
    assert isinstance(queue, GpuQueue)
    address = queue.handle if what == "block" else queue.unpack.bounce
    if (child := os.fork()) == 0:
        ctypes.string_at(address, 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGSEGV


@in_fresh_process(SOFTTCPX_TRAP_DEVICE_MEMORY="1")
def test_host_pages_cannot_stand_for_gpu_memory_then() -> None:
    net, _ = Net(log=True).started(), Driver()
    _, recv, _ = connected_with_queue(net, GpuQueue)
    pages = Pages(PAGE)
    mhandle = ctypes.c_void_p()
    code = net.table.reg_mr(recv, pages.address, pages.size, PTR_CUDA, ctypes.byref(mhandle))
    assert code == INVALID_ARGUMENT
    assert "SOFTTCPX_TRAP_DEVICE_MEMORY keeps bounce pages from the CPU" in net.log_lines[-1]
