"""softtcpx's copies out of a GPU: how long each is, who does it, and that all arrive.

On the driver of test_softtcpx_gpu.py; what is counted, on the fake one alone.
"""

from __future__ import annotations

import os
import random

import pytest
from fresh_process import in_fresh_process
from gpu import Driver, GpuPair
from net_v7 import SLOTS, SUCCESS, Net, until

KIB = 1024
COPY, LAUNCH, NUMBER = "cuMemcpyDtoHAsync", "cuLaunchKernel", "cuStreamWriteValue32"
#: Twice 64 KiB, 128 KiB and so on up to half a MiB; 8 of those fit into the ring.
SHORT_FIRST = {"SOFTTCPX_FIRST_COPY_BYTES": "65536", "SOFTTCPX_COPIES": "8"}

pytestmark = pytest.mark.usefixtures("driver_of_the_test_bodies")
only_the_fake_driver = pytest.mark.usefixtures("fake_libcuda")


@pytest.mark.parametrize(
    "environ",
    [
        # The ring is as small as can be: copies of all lengths go round its end.
        {"SOFTTCPX_COPIES": "2"},
        {"NCCL_NSOCKS_PERTHREAD": "4", "SOFTTCPX_FRAGMENTS": "random"},
        {"SOFTTCPX_WORKERS": "1", "NCCL_NSOCKS_PERTHREAD": "3", "SOFTTCPX_COPIES_AT_ONCE": "1"},
        {"SOFTTCPX_WORKERS": "1", "SOFTTCPX_SPIN_US": "0", "SOFTTCPX_DIRECT_SOCKETS": "0",
         "SOFTTCPX_COPIES_AT_ONCE": "1", "SOFTTCPX_COPIES": "64"},
        {"NCCL_DYNAMIC_CHUNK_SIZE": "150001", "SOFTTCPX_FIRST_COPY_BYTES": "131072",
         "SOFTTCPX_COPIES": "3", "SOFTTCPX_COPIES_AT_ONCE": "2"},
        {"NCCL_DYNAMIC_CHUNK_SIZE": "3000", "NCCL_NSOCKS_PERTHREAD": "2",
         "SOFTTCPX_KERNEL_COPY_BYTES": "2048"},
        {"SOFTTCPX_WORKERS": "1", "SOFTTCPX_KERNEL_COPY_BYTES": "65536"},
    ],
    ids=lambda environ: ",".join(environ.values()),
)  # fmt: skip
@in_fresh_process(SOFTTCPX_POISON="1", **SHORT_FIRST)
def test_copies_of_growing_length_bring_every_byte(environ: dict[str, str]) -> None:
    # Of messages that are no multiple of any copy, many on their way and one at a time.
    choose = random.Random(11)
    sizes = [1, 64 * KIB - 1, 64 * KIB + 1, 300_001, 0, 2 << 20, 983_041, 512 * KIB, 192 * KIB]
    sizes += [choose.randrange(1 << 20) for _ in range(20)]
    net, driver, content = Net().started(), Driver(), os.urandom(sum(sizes))
    for window in (SLOTS, 1, 3):
        pair = GpuPair(net, driver, content)
        pair.exchange(sizes, window)
        pair.close()


@only_the_fake_driver
@pytest.mark.parametrize(
    ("environ", "counts"),
    [
        # A MiB is 64 + 128 + 256 + 512 + 64 KiB; what comes before a pause goes on at full length.
        (SHORT_FIRST, [5, 5 + 2, 2 * 5 + 2]),
        ({**SHORT_FIRST, "SOFTTCPX_FIRST_COPY_BYTES": "262145"}, [3, 3 + 2, 2 * 3 + 2]),
        ({"SOFTTCPX_COPIES": "8"}, [2, 4, 6]),
        ({**SHORT_FIRST, "SOFTTCPX_COPY_BYTES": "65536", "SOFTTCPX_COPIES": "32"}, [16, 32, 48]),
    ],
    ids=["64 KiB", "256 KiB", "default", "no shorter ones"],
)
@in_fresh_process(NCCL_DYNAMIC_CHUNK_SIZE="1048576")
def test_only_after_a_pause_the_first_copies_are_short(
    environ: dict[str, str], counts: list[int]
) -> None:
    net, driver = Net().started(), Driver()
    pair = GpuPair(net, driver, bytes(1 << 20))

    def send_and_look() -> int:
        pair.post_send(0, 1 << 20)
        assert net.test(pair.sends[0]) == (SUCCESS, False)
        return driver.calls(COPY)

    driver.hold(True)
    found = [send_and_look(), send_and_look()]
    driver.hold(False)
    for request in [pair.post_receive(0, 1 << 20) for _ in range(2)]:
        pair.finish(request)
    driver.hold(True)
    found.append(send_and_look())
    driver.hold(False)
    assert found == counts


@only_the_fake_driver
@pytest.mark.parametrize(("environ", "step"), [({"SOFTTCPX_COPIES_AT_ONCE": "3"}, 3), ({}, 8)])
@in_fresh_process(SOFTTCPX_COPIES="8")
def test_as_many_copies_begin_in_one_look_as_the_setting_says(
    environ: dict[str, str], step: int
) -> None:
    net, driver = Net().started(), Driver()
    pair = GpuPair(net, driver, bytes(8 << 19))
    driver.hold(True)
    for k in range(8):
        pair.post_send(k << 19, 1 << 19)
    counts = [0]

    def all_begun() -> bool:
        assert net.test(pair.sends[0]) == (SUCCESS, False)
        counts.append(driver.calls(COPY))
        return counts[-1] == 8

    until(all_begun, "the copies to begin")
    driver.hold(False)
    assert counts == [0, *range(step, 8, step), 8]


# By a kernel --------------------------------------------------------------------------------------


@only_the_fake_driver
@in_fresh_process(SOFTTCPX_KERNEL_COPY_BYTES="8192")
def test_a_kernel_copies_short_pieces_at_aligned_addresses_by_one_call_each() -> None:
    net, driver = Net().started(), Driver()
    content = os.urandom(64 * KIB)
    pair = GpuPair(net, driver, content)
    counts = []
    for k, (offset, size) in enumerate([(0, 8192), (16, 8191), (4096, 1), (8, 8192), (0, 8193)]):
        request = pair.post_receive(0, size)
        pair.post_send(offset, size)
        pair.finish(request)
        assert pair.queue.unpacked(k, size) == content[offset:][:size]
        assert net.consumed(pair.recv, request) == SUCCESS
        counts.append((driver.calls(LAUNCH), driver.calls(COPY), driver.calls(NUMBER)))
    assert counts == [(1, 0, 0), (2, 0, 0), (3, 0, 0), (3, 1, 1), (3, 2, 2)]
    pair.close()
    assert driver.calls("cuModuleUnload") == 1


@only_the_fake_driver
@in_fresh_process(SOFTTCPX_KERNEL_COPY_BYTES="4096")
def test_kernel_and_copy_engine_take_turns_in_one_order() -> None:
    """Messages of the one wait for no number of the other that is never written."""
    sizes = [4096, 4112, 64, 4096 * 5, 8, 4096, 3, 4096] * 4
    net, driver, content = Net().started(), Driver(), os.urandom(sum(sizes))
    for window in (SLOTS, 2):
        GpuPair(net, driver, content).exchange(sizes, window)


@only_the_fake_driver
@in_fresh_process(SOFTTCPX_KERNEL_COPY_BYTES="8192")
def test_a_kernel_tells_of_the_copies_before_it_too() -> None:
    net, driver, content = Net().started(), Driver(), os.urandom(20_000)
    pair = GpuPair(net, driver, content)
    requests = [pair.post_receive(0, 8000), pair.post_receive(0, 8000)]
    pair.post_send(1, 8000)  # at an address for the copy engine
    pair.post_send(16, 8000)
    pair.finish(requests[0])
    pair.finish(requests[1])
    assert [pair.queue.unpacked(k, 8000) for k in (0, 1)] == [content[1:8001], content[16:8016]]
    assert [driver.calls(call) for call in (COPY, LAUNCH, NUMBER)] == [1, 1, 0]


@only_the_fake_driver
@pytest.mark.parametrize("call", ["cuModuleLoadData", "cuModuleGetFunction"])
@in_fresh_process(SOFTTCPX_KERNEL_COPY_BYTES="8192")
def test_where_the_driver_takes_no_kernel_the_copy_engine_copies(call: str) -> None:
    os.environ["FAKECUDA_FAIL"] = f"{call}:1:218"
    net, driver = Net(log=True).started(), Driver()
    pair = GpuPair(net, driver, os.urandom(4096))
    pair.exchange([4096])
    assert (driver.calls(LAUNCH), driver.calls(COPY)) == (0, 1)
    assert any("takes no kernel for small copies" in line for line in net.log_lines)
    assert driver.calls("cuModuleUnload") == (call == "cuModuleGetFunction")


@only_the_fake_driver
@in_fresh_process(SOFTTCPX_KERNEL_COPY_BYTES="8192", FAKECUDA_FAIL="cuLaunchKernel:1:719")
def test_a_launch_that_is_refused_is_error_1_by_name() -> None:
    net = Net(log=True).started()
    pair = GpuPair(net, Driver(), bytes(4096))
    pair.post_send(0, 4096)
    assert net.code_of(pair.sends[0]) == 1
    assert any("cuLaunchKernel: CUDA_ERROR_LAUNCH_FAILED" in line for line in net.log_lines)
