"""softtcpx's bounce pages in a GPU's own memory (SOFTTCPX_GPU_PAGES_MIB).

Who reads them there finds what has arrived, once test has said done.

On the driver of test_softtcpx_gpu.py.
"""

from __future__ import annotations

import ctypes
import os
import random

import pytest
from fresh_process import in_fresh_process
from gpu import Driver, GpuPair, only_the_fake_driver
from net_v7 import SUCCESS, Net, until
from unpack_queue import DeviceBlock, Queue

CUDA_ERROR = 1
KIB = 1024
PAGES = {"SOFTTCPX_GPU_PAGES_MIB": "128"}

pytestmark = [
    pytest.mark.only_softtcpx,
    pytest.mark.usefixtures("driver_of_the_test_bodies"),
]
every_owner = pytest.mark.parametrize(
    "environ",
    [
        PAGES,
        {"SOFTTCPX_WORKERS": "1", **PAGES},
        {"SOFTTCPX_FRAGMENTS": "random", "NCCL_NSOCKS_PERTHREAD": "2", **PAGES},
    ],
    ids=["inline", "worker", "random"],
)


class QueueOfGpuPages(Queue):
    """Pages by copies out of the GPU: the CPU cannot follow their address."""

    def __init__(self, block: DeviceBlock) -> None:
        super().__init__(block)
        self._driver = Driver()

    def at(self, address: int, size: int) -> bytes:
        copy = ctypes.create_string_buffer(size)
        self._driver.call("cuMemcpyDtoH_v2", copy, ctypes.c_uint64(address), ctypes.c_size_t(size))
        return copy.raw


def _pair(net: Net, driver: Driver, size: int) -> GpuPair:
    return GpuPair(net, driver, os.urandom(size), QueueOfGpuPages)


@every_owner
@in_fresh_process()
def test_all_that_arrives_is_in_the_gpus_pages_when_it_is_done(environ: dict[str, str]) -> None:
    del environ
    net, driver = Net().started(), Driver()
    pair = _pair(net, driver, 4096 * KIB)
    sizes = [1, 4096, 4097, 30_001, 64 * KIB, 1, 400 * KIB + 3, 7, 20_000]
    random.Random(5).shuffle(sizes)
    pair.exchange(sizes * 4)
    pair.close()


@only_the_fake_driver
@in_fresh_process(SOFTTCPX_WORKERS="1", **PAGES)
def test_it_is_not_done_before_its_pages_have_landed() -> None:
    net, driver = Net().started(), Driver()
    pair = _pair(net, driver, 64 * KIB)
    request = pair.post_receive(0, 20_000)
    assert pair.post_send(0, 20_000)
    until(pair.sends_done, "the send")
    driver.hold(True)
    until(lambda: pair.queue.count(0) == 5, "all bytes at the host")
    for _ in range(2000):
        assert net.test(request) == (SUCCESS, False)
    driver.hold(False)
    pair.finish(request)
    assert pair.queue.unpacked(0, 20_000) == pair.source.content()[:20_000]


@only_the_fake_driver
@in_fresh_process(SOFTTCPX_WORKERS="1", FAKECUDA_FAIL="cuMemcpyHtoDAsync:1:1", **PAGES)
def test_a_copy_that_fails_ends_the_connection_by_name() -> None:
    net, driver = Net(log=True).started(), Driver()
    pair = _pair(net, driver, 64 * KIB)
    request = pair.post_receive(0, 100)
    assert pair.post_send(0, 100)
    code = SUCCESS

    def failed() -> bool:
        nonlocal code
        code, _ = net.test(request)
        return code != SUCCESS

    until(failed, "an error")
    assert code == CUDA_ERROR, (code, net.log_lines)
    assert any("cuMemcpyHtoDAsync: CUDA_ERROR_INVALID_VALUE" in line for line in net.log_lines)
