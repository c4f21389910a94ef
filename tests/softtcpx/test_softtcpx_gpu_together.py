"""softtcpx's copies out of a GPU that go to the copy engine together, of one connection or several.

On the driver of test_softtcpx_gpu.py; what is counted, on the fake one alone.
"""

from __future__ import annotations

import ctypes
import os
import random
import threading

import pytest
from fresh_process import in_fresh_process
from gpu import Driver, GpuPair, only_the_fake_driver
from net_v7 import SUCCESS, Net, until

CUDA_ERROR = 1
KIB = 1024
SIZE = 64 * KIB
TOGETHER, ALONE = "cuMemcpyBatchAsync", "cuMemcpyDtoHAsync"
TELL = "cuStreamWriteValue32"

pytestmark = [
    pytest.mark.only_softtcpx,
    pytest.mark.usefixtures("driver_of_the_test_bodies"),
]


def _two_held_back(net: Net, driver: Driver) -> list[GpuPair]:
    """Connections with four sends each, of which the first two are under way."""
    pairs = [GpuPair(net, driver, os.urandom(4 * SIZE)) for _ in range(2)]
    driver.hold(True)
    for k in range(4):
        for pair in pairs:
            assert pair.post_send(k * SIZE, SIZE)
    assert (driver.calls(ALONE), driver.calls(TELL)) == (2, 2)
    return pairs


def _receive(pair: GpuPair) -> None:
    """All that was sent, and every byte of it looked at."""
    requests = [pair.post_receive(k * SIZE, SIZE) for k in range(4)]
    pair.finish(*requests)
    for k, request in enumerate(requests):
        assert pair.queue.unpacked(k, SIZE) == pair.source.content()[k * SIZE :][:SIZE]
        assert pair.net.consumed(pair.recv, request) == SUCCESS


def _error_of(pair: GpuPair) -> int:
    """What test returns of the oldest send that does not end well."""
    code = SUCCESS

    def failed() -> bool:
        nonlocal code
        code, done = pair.net.test(pair.sends[0])
        if done:
            pair.sends.popleft()
        return code != SUCCESS

    until(failed, "an error")
    return code


@only_the_fake_driver
@in_fresh_process(SOFTTCPX_WORKERS="2")
def test_what_waits_for_the_engine_goes_to_it_together() -> None:
    net, driver = Net().started(), Driver()
    pairs = _two_held_back(net, driver)
    driver.hold(False)
    for pair in pairs:
        _receive(pair)
    assert (driver.calls(ALONE), driver.calls(TOGETHER), driver.calls(TELL)) == (2, 1, 3)
    for pair in pairs:
        pair.close()
    assert driver.pinned_bytes() == 0


@only_the_fake_driver
@in_fresh_process(SOFTTCPX_COPIES="64", SOFTTCPX_WORKERS="1")
def test_no_more_go_together_than_the_sockets_can_wait_for() -> None:
    net, driver, size = Net().started(), Driver(), 6 << 20
    pair = GpuPair(net, driver, os.urandom(size))
    driver.hold(True)
    request = pair.post_receive(0, size)
    pair.post_send(0, size)  # 12 copies of half a MiB: two alone, then two a MiB
    driver.hold(False)
    pair.finish(request)
    assert pair.queue.unpacked(0, size) == pair.source.content()
    assert (driver.calls(ALONE), driver.calls(TOGETHER), driver.calls(TELL)) == (2, 5, 7)


@only_the_fake_driver
@in_fresh_process(FAKECUDA_FAIL=f"{TOGETHER}:1:1", SOFTTCPX_WORKERS="1")
def test_where_they_are_refused_together_they_go_one_by_one() -> None:
    net, driver = Net().started(), Driver()
    pairs = _two_held_back(net, driver)
    driver.hold(False)
    for pair in pairs:
        _receive(pair)
    assert (driver.calls(ALONE), driver.calls(TOGETHER), driver.calls(TELL)) == (8, 1, 3)


@only_the_fake_driver
@in_fresh_process(SOFTTCPX_WORKERS="1")
def test_a_copy_that_cannot_be_is_the_failure_of_its_own_connection_alone() -> None:
    net, driver = Net(log=True).started(), Driver()
    good, bad = (GpuPair(net, driver, os.urandom(4 * SIZE)) for _ in range(2))
    driver.call("cuMemFree_v2", ctypes.c_uint64(bad.source.allocation))
    driver.hold(True)
    for pair, k in [(good, 0), (good, 1), (bad, 0), (good, 2), (bad, 1), (good, 3)]:
        assert pair.post_send(k * SIZE, SIZE)
    driver.hold(False)
    _receive(good)
    arriving = bad.post_receive(0, SIZE)
    assert _error_of(bad) == CUDA_ERROR
    assert len(bad.sends) == 2
    for _ in range(20_000):  # what lay in the ring before is nobody's message
        assert net.test(arriving) == (SUCCESS, False)
    assert any(f"{ALONE}: CUDA_ERROR_INVALID_VALUE; error 1" in line for line in net.log_lines)
    assert driver.calls(TOGETHER) == 1
    assert good.post_send(0, SIZE)
    until(good.sends_done, "the good connection to go on")


@only_the_fake_driver
@in_fresh_process(FAKECUDA_FAIL=f"{TELL}:3", SOFTTCPX_WORKERS="1")
def test_what_still_waits_when_no_number_is_told_has_failed_too() -> None:
    net, driver = Net().started(), Driver()
    first, behind = (GpuPair(net, driver, bytes(2 << 20)) for _ in range(2))
    driver.hold(True)
    for size in (SIZE, SIZE, 1 << 20):  # the last one is as much as goes together
        assert first.post_send(0, size)
    assert behind.post_send(0, SIZE)
    driver.hold(False)
    assert _error_of(first) == CUDA_ERROR
    assert _error_of(behind) == CUDA_ERROR
    assert driver.calls(TELL) == 3


@only_the_fake_driver
@in_fresh_process(
    FAKECUDA_FAIL=f"{TELL}:3",
    SOFTTCPX_COPIES="64",
    SOFTTCPX_COPY_BYTES=str(SIZE),
    SOFTTCPX_WORKERS="1",
)
def test_the_copy_whose_room_was_made_when_the_telling_failed_has_failed_too() -> None:
    net, driver = Net().started(), Driver()
    copies = [64, 64, 64, 64, 2]  # two are under way, and as many wait as the queue holds
    pairs = [GpuPair(net, driver, bytes(SIZE * count)) for count in [*copies, 1]]
    *full, late = pairs
    driver.hold(True)
    for pair, count in zip(full, copies, strict=True):
        assert pair.post_send(0, SIZE * count)
    assert driver.calls(TELL) == 2
    late.post_send(0, SIZE)
    assert driver.calls(TELL) == 3
    driver.hold(False)
    for pair in pairs:
        assert _error_of(pair) == CUDA_ERROR


@only_the_fake_driver
@in_fresh_process(FAKECUDA_FAIL=f"{TELL}:3", SOFTTCPX_WORKERS="1")
def test_where_the_gpu_tells_no_number_all_connections_have_failed() -> None:
    net, driver = Net(log=True).started(), Driver()
    pairs = _two_held_back(net, driver)
    driver.hold(False)
    for pair in pairs:
        assert _error_of(pair) == CUDA_ERROR
    said = [line for line in net.log_lines if f"{TELL}: CUDA_ERROR_UNKNOWN; error 1" in line]
    assert len(said) == 2
    # A new one has another queue.
    content = os.urandom(SIZE)
    late = GpuPair(net, driver, content)
    late.exchange([SIZE])
    for pair in [*pairs, late]:
        assert net.table.close_send(pair.send) == SUCCESS


@only_the_fake_driver
@in_fresh_process(SOFTTCPX_WORKERS="1", SOFTTCPX_SNDBUF="65536", SOFTTCPX_RCVBUF="65536")
def test_closing_tells_of_a_copy_that_another_connections_caller_saw_fail() -> None:
    net, driver = Net().started(), Driver()
    closed, other = (GpuPair(net, driver, bytes(4 * 256 * KIB)) for _ in range(2))
    for k in range(4):  # more than the sockets hold, and nobody receives them
        assert closed.post_send(k * 256 * KIB, 256 * KIB)
    until(closed.sends_done, "the copies to land")
    driver.call("cuMemFree_v2", ctypes.c_uint64(closed.source.allocation))
    before = driver.calls(TOGETHER)
    driver.hold(True)
    for pair in (other, other, closed, other):
        assert pair.post_send(0, SIZE)
    driver.hold(False)
    until(other.sends_done, "the other connection's copies")
    assert driver.calls(TOGETHER) == before + 1
    assert net.table.close_send(closed.send) == CUDA_ERROR


@pytest.mark.parametrize(
    "environ",
    [{}, {"SOFTTCPX_WORKERS": "3"}, {"SOFTTCPX_COPY_BYTES": "4096", "SOFTTCPX_WORKERS": "2"}],
    ids=lambda environ: ",".join(environ.values()) or "inline",
)
@in_fresh_process(SOFTTCPX_POISON="1")
def test_threads_with_a_connection_each_share_the_engine(environ: dict[str, str]) -> None:
    net, driver, choose = Net().started(), Driver(), random.Random(7)
    failures: list[BaseException] = []
    # None ends before all have begun: what the loader frees of one when another begins is a race
    # to libtsan.
    all_begun = threading.Barrier(4)

    def exchange(pair: GpuPair, sizes: list[int]) -> None:
        try:
            driver.make_current(0)
            all_begun.wait()
            pair.exchange(sizes, window=4)
        except BaseException as error:
            failures.append(error)

    pairs, threads = [], []
    for _ in range(4):
        sizes = [choose.randrange(300_000) for _ in range(30)]
        pairs.append(GpuPair(net, driver, choose.randbytes(sum(sizes))))
        threads.append(threading.Thread(target=exchange, args=(pairs[-1], sizes)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for pair in pairs:
        pair.close()
