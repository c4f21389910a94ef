"""softtcpx's small copies out of a GPU by a kernel that stays (SOFTTCPX_STAY_US).

On the driver of test_softtcpx_gpu.py, where the kernel's own source runs on the CPU.
"""

from __future__ import annotations

import os

import pytest
from fresh_process import in_fresh_process
from gpu import Driver, GpuPair, only_the_fake_driver
from net_v7 import SUCCESS, Net, until

CUDA_ERROR = 1
KIB = 1024
KERNEL, TELL = "stay_and_copy", "cuStreamWriteValue32"
ALONE, TOGETHER = "cuMemcpyDtoHAsync", "cuMemcpyBatchAsync"
STAYS = {"SOFTTCPX_STAY_US": "100000", "SOFTTCPX_WORKERS": "1"}

pytestmark = [
    pytest.mark.only_softtcpx,
    pytest.mark.usefixtures("driver_of_the_test_bodies"),
    only_the_fake_driver,
]


def _moved(pair: GpuPair, number: int, offset: int, size: int) -> None:
    """Message `number` of the connection, from there, and every byte of it looked at."""
    request = pair.post_receive(0, size)
    assert pair.post_send(offset, size)
    pair.finish(request)
    assert pair.queue.unpacked(number, size) == pair.source.content()[offset:][:size]
    assert pair.net.consumed(pair.recv, request) == SUCCESS


@in_fresh_process(**STAYS)
def test_small_copies_of_any_size_and_place_go_without_a_call_each() -> None:
    net, driver = Net().started(), Driver()
    pair = GpuPair(net, driver, os.urandom(256 * KIB))
    sizes = [1, 7, 8, 16, 4095, 4096, 4097, 30_001, 64 * KIB]
    for number, size in enumerate(sizes * 10):  # more than letters have places
        _moved(pair, number, 1 + 977 * number % (128 * KIB), size)
    assert (driver.calls(ALONE), driver.calls(TELL)) == (0, 0)
    assert 1 <= driver.calls(KERNEL) < len(sizes * 10)
    pair.close()
    assert driver.pinned_bytes() == 0


@in_fresh_process(**STAYS)
def test_large_copies_go_by_the_engine_and_none_overtakes_another() -> None:
    net, driver = Net().started(), Driver()
    pair = GpuPair(net, driver, os.urandom(1024 * KIB))
    sizes = [8, 200 * KIB, 8, 8, 300 * KIB, 64 * KIB, 200 * KIB, 100]
    requests = [pair.post_receive(0, size) for size in sizes]
    for number, size in enumerate(sizes):
        assert pair.post_send(number * 64 * KIB, size)
    pair.finish(*requests)
    for number, (size, request) in enumerate(zip(sizes, requests, strict=True)):
        sent = pair.source.content()[number * 64 * KIB :][:size]
        assert pair.queue.unpacked(number, size) == sent
        assert net.consumed(pair.recv, request) == SUCCESS
    assert driver.calls(ALONE) + driver.calls(TOGETHER) > 0
    assert driver.calls(KERNEL) > 0


@in_fresh_process(**STAYS)
def test_the_engine_gets_nothing_while_a_small_copy_before_it_has_not_landed() -> None:
    net, driver = Net().started(), Driver()
    pair = GpuPair(net, driver, os.urandom(512 * KIB))
    requests = [pair.post_receive(0, size) for size in (8, 200 * KIB)]
    driver.hold(True)
    assert pair.post_send(0, 8)
    assert pair.post_send(KIB, 200 * KIB)
    for _ in range(1000):
        assert net.test(pair.sends[0]) == (SUCCESS, False)
    assert (driver.calls(ALONE), driver.calls(TOGETHER), driver.calls(TELL)) == (0, 0, 0)
    driver.hold(False)
    pair.finish(*requests)
    assert pair.queue.unpacked(1, 200 * KIB) == pair.source.content()[KIB:][: 200 * KIB]


@in_fresh_process(SOFTTCPX_STAY_US="1000", SOFTTCPX_WORKERS="1")
def test_whoever_waits_for_the_gpu_gets_through_and_the_next_copy_has_a_kernel_again() -> None:
    net, driver = Net().started(), Driver()
    pair = GpuPair(net, driver, os.urandom(4 * KIB))
    for number in range(3):
        _moved(pair, number, number, 100)
        driver.call("cuCtxSynchronize")  # for the kernel, too: it is gone then
    assert driver.calls(KERNEL) == 3


@in_fresh_process(FAKECUDA_FAIL="cuLaunchKernel:1:1", **STAYS)
def test_a_kernel_that_cannot_be_launched_ends_the_connection_by_name() -> None:
    net, driver = Net(log=True).started(), Driver()
    pair = GpuPair(net, driver, os.urandom(4 * KIB))
    assert pair.post_send(0, 100)
    code = SUCCESS

    def failed() -> bool:
        nonlocal code
        code, _ = net.test(pair.sends[0])
        return code != SUCCESS

    until(failed, "an error")
    assert code == CUDA_ERROR
    assert any("cuLaunchKernel: CUDA_ERROR_INVALID_VALUE" in line for line in net.log_lines)


@in_fresh_process(FAKECUDA_FAIL="cuModuleLoadData:1:200", **STAYS)
def test_where_the_driver_takes_no_kernel_the_engine_copies() -> None:
    net, driver = Net(log=True).started(), Driver()
    pair = GpuPair(net, driver, os.urandom(4 * KIB))
    _moved(pair, 0, 5, 100)
    assert (driver.calls(ALONE), driver.calls(KERNEL)) == (1, 0)
    wanted = "no kernel stays on GPU 0 for small copies: cuModuleLoadData: "
    assert any(wanted in line for line in net.log_lines)
