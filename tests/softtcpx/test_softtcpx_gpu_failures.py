"""softtcpx and GPUs: what is refused, failures of the driver, and closing with copies under way.

On the driver of test_softtcpx_gpu.py, or for what no real one can be asked for on the fake alone.
"""

from __future__ import annotations

import os
import threading

import pytest
from fresh_process import in_fresh_process
from gpu import CHUNK, Driver, GpuMemory, GpuPair, inline_and_worker, only_the_fake_driver
from net_v7 import (
    INVALID_ARGUMENT,
    INVALID_USAGE,
    SUCCESS,
    Connecting,
    Net,
    until,
)
from unpack_queue import PAGE, connected_with_queue

CUDA_ERROR = 1

pytestmark = [
    pytest.mark.only_softtcpx,
    pytest.mark.usefixtures("driver_of_the_test_bodies"),
]


# What is refused ----------------------------------------------------------------------------------


@in_fresh_process()
def test_gpu_memory_is_registered_whole_pages_of_one_allocation_of_the_right_gpu() -> None:
    net, driver = Net(log=True).started(), Driver()
    send, recv, _ = connected_with_queue(net)
    memory = GpuMemory(driver, 4 * PAGE)
    for comm in (send, recv):
        for offset, size in [(0, 4 * PAGE), (PAGE, 3 * PAGE), (3 * PAGE, PAGE)]:
            assert memory.register(net, comm, offset, size)[0] == SUCCESS
        net.log_lines.clear()
        for offset, size in [(1, PAGE), (0, PAGE + 1), (0, 0), (16, 2 * PAGE)]:
            assert memory.register(net, comm, offset, size)[0] == INVALID_ARGUMENT
        assert len(net.log_lines) == 4
        assert all("whole pages of 4096 bytes" in line for line in net.log_lines)
        net.log_lines.clear()
        # An allocation of a real driver may be larger than what was asked for, within 2 MiB.
        for offset, size in [(0, 4 << 20), (PAGE, 4 << 20)]:
            assert memory.register(net, comm, offset, size)[0] == INVALID_ARGUMENT
        assert all("not within one allocation of GPU 0" in line for line in net.log_lines)
        assert len(net.log_lines) == 2


@only_the_fake_driver
@in_fresh_process()
def test_memory_of_another_gpu_than_the_connections_is_refused() -> None:
    net, driver = Net(log=True).started(), Driver()
    send, recv, _ = connected_with_queue(net)
    other = GpuMemory(driver, PAGE, device=1)
    for comm in (send, recv):
        assert other.register(net, comm)[0] == INVALID_ARGUMENT
        assert "in another GPU than the connection's, GPU 0" in net.log_lines[-1]


@only_the_fake_driver
@in_fresh_process()
def test_a_registration_serves_all_connections_of_its_nic_that_have_its_gpu() -> None:
    net, driver, content = Net().started(), Driver(current=0), os.urandom(PAGE)
    pair = GpuPair(net, driver, content)
    other = GpuMemory(driver, PAGE, device=1)
    send, recv, queue = connected_with_queue(net)
    _, request = net.irecv(recv, pair.target.address, PAGE, pair.recv_mhandle)
    code, sent = net.isend(send, pair.source.address, PAGE, pair.send_mhandle)
    assert code == SUCCESS
    net.finish(sent, request)
    assert queue.unpacked(0, PAGE) == content
    driver.make_current(1)
    send_1, recv_1, _ = connected_with_queue(net)
    of_1 = other.registered(net, send_1)
    for mine, memory, mhandle in [(send, other, of_1), (send_1, pair.source, pair.send_mhandle)]:
        assert net.isend(mine, memory.address, PAGE, mhandle)[0] == INVALID_ARGUMENT
    for mine, memory, mhandle in [(recv, other, of_1), (recv_1, pair.target, pair.recv_mhandle)]:
        assert net.irecv(mine, memory.address, PAGE, mhandle)[0] == INVALID_ARGUMENT
    driver.make_current(None)
    _, unpinned, _ = connected_with_queue(net)
    code, _ = net.irecv(unpinned, pair.target.address, PAGE, pair.recv_mhandle)
    assert code == INVALID_ARGUMENT


@only_the_fake_driver
@pytest.mark.parametrize(
    ("at_listen", "at_accept", "code"),
    [(0, 0, SUCCESS), (0, None, SUCCESS), (None, 0, SUCCESS), (0, 1, INVALID_USAGE)],
)
@in_fresh_process()
def test_listen_and_accept_agree_on_the_gpu(
    at_listen: int | None, at_accept: int | None, code: int
) -> None:
    net, driver = Net(log=True).started(), Driver(current=at_listen)
    listen_comm, handle = net.listen()
    connecting = Connecting(net, handle)
    driver.make_current(at_accept)
    answers: list[tuple[int, int | None]] = []

    def answered() -> bool:
        connecting.step()
        answers.append(net.accept(listen_comm))
        return answers[-1] != (SUCCESS, None)

    until(answered, "an answer of accept")
    assert answers[-1][0] == code
    assert driver.current() == at_accept
    if code == SUCCESS:
        recv = answers[-1][1]
        assert recv is not None
        assert GpuMemory(driver, PAGE).register(net, recv)[0] == SUCCESS
    else:
        assert any(
            "another context is current (GPU 1) than at listen (GPU 0)" in line
            for line in net.log_lines
        )


# Failures of the driver ---------------------------------------------------------------------------


@only_the_fake_driver
@pytest.mark.parametrize(
    ("fail", "name"),
    [
        ("cuMemcpyDtoHAsync:3:700", "CUDA_ERROR_ILLEGAL_ADDRESS"),
        ("cuStreamWriteValue32:3", "CUDA_ERROR_UNKNOWN"),
    ],
)
@inline_and_worker
@in_fresh_process()
def test_a_copy_that_the_driver_refuses_is_error_1_with_its_name_and_stays(
    fail: str, name: str, environ: dict[str, str]
) -> None:
    os.environ["FAKECUDA_FAIL"] = fail
    net, driver = Net(log=True).started(), Driver()
    pair = GpuPair(net, driver, bytes(100 * PAGE))
    for _ in range(2):
        request = pair.post_receive(0, 20 * PAGE)
        pair.post_send(0, 20 * PAGE)
        pair.finish(request)
    pair.post_send(0, 20 * PAGE)
    assert net.code_of(pair.sends[0]) == CUDA_ERROR
    assert net.test(pair.sends[0]) == (CUDA_ERROR, False)
    assert net.isend(pair.send, pair.source.address, 1, pair.send_mhandle)[0] == CUDA_ERROR
    call = fail.split(":")[0]
    told = [line for line in net.log_lines if f"{call}: {name}; error 1" in line]
    assert len(told) == 1
    assert net.table.close_send(pair.send) == SUCCESS


@only_the_fake_driver
@inline_and_worker
@in_fresh_process(FAKECUDA_FAIL="cuStreamQuery:1:719")
def test_a_copy_that_fails_after_it_was_begun_is_error_1_too(environ: dict[str, str]) -> None:
    net, driver = Net(log=True).started(), Driver()
    pair = GpuPair(net, driver, bytes(PAGE))
    driver.hold(True)
    pair.post_send(0, PAGE)
    assert net.code_of(pair.sends[0]) == CUDA_ERROR
    assert any("cuStreamQuery: CUDA_ERROR_LAUNCH_FAILED" in line for line in net.log_lines)
    driver.hold(False)


@only_the_fake_driver
@pytest.mark.parametrize(
    ("fail", "side"),
    [
        ("cuMemHostRegister:1:2", "accept"),
        ("cuMemHostGetDevicePointer:1:2", "accept"),
        ("cuMemHostRegister:2:2", "regMr"),
        ("cuStreamCreate:1:2", "regMr"),
        ("cuPointerGetAttribute:1:2", "regMr"),
        ("cuMemGetAddressRange:1:2", "regMr"),
    ],
)
@in_fresh_process()
def test_what_the_driver_refuses_at_set_up_is_error_1_of_the_call_that_needs_it(
    fail: str, side: str
) -> None:
    os.environ["FAKECUDA_FAIL"] = fail
    net, driver = Net(log=True).started(), Driver()
    if side == "accept":
        listen_comm, handle = net.listen()
        connecting = Connecting(net, handle)
        codes: list[int] = []

        def refused() -> bool:
            if not codes or codes[-1] == SUCCESS:
                connecting.step()
                codes.append(net.accept(listen_comm)[0])
            return codes[-1] != SUCCESS

        until(refused, "an error of accept")
        assert codes[-1] == CUDA_ERROR
        assert driver.pinned_bytes() == 0
    else:
        send, recv, _ = connected_with_queue(net)
        before = driver.pinned_bytes()
        memory = GpuMemory(driver, PAGE)
        assert memory.register(net, send)[0] == CUDA_ERROR
        assert driver.pinned_bytes() == before
        assert memory.register(net, send)[0] == SUCCESS  # the second time it works
        assert net.table.close_recv(recv) == SUCCESS
    call = fail.split(":")[0]
    assert any(f"{side}: {call}: CUDA_ERROR_OUT_OF_MEMORY" in line for line in net.log_lines)


# Closing ------------------------------------------------------------------------------------------


@only_the_fake_driver
@inline_and_worker
@in_fresh_process()
def test_closing_waits_for_the_copies_that_are_under_way(environ: dict[str, str]) -> None:
    net, driver = Net(log=True).started(), Driver()
    pair = GpuPair(net, driver, bytes(4 * CHUNK))
    before = driver.pinned_bytes()
    driver.hold(True)
    for k in range(4):
        pair.post_send(k * CHUNK, CHUNK)
    # Two are under way, and the others wait for them.
    assert driver.calls("cuStreamWriteValue32") == 2
    driver.make_current(None)
    closed: list[int] = []
    closing = threading.Thread(
        target=lambda: closed.append(net.table.close_send(pair.send)), daemon=True
    )
    closing.start()
    asked = driver.calls("cuStreamQuery")
    until(lambda: driver.calls("cuStreamQuery") > asked + 3, "closeSend to wait")
    assert closed == []
    assert driver.pinned_bytes() == before
    driver.hold(False)
    closing.join()
    assert closed == [SUCCESS]
    assert driver.calls("cuStreamWriteValue32") == 3
    assert driver.pinned_bytes() < before
    assert not any("do not end" in line for line in net.log_lines)


@only_the_fake_driver
@in_fresh_process()
def test_closing_gives_up_on_copies_that_never_end_and_keeps_their_memory() -> None:
    net, driver = Net(log=True).started(), Driver()
    pair, other = GpuPair(net, driver, bytes(4 * CHUNK)), GpuPair(net, driver, os.urandom(CHUNK))
    before = driver.pinned_bytes()
    driver.hold(True)
    for k in range(4):
        pair.post_send(k * CHUNK, CHUNK)
    assert net.table.close_send(pair.send) == SUCCESS
    assert any("copies from GPU 0 do not end" in line for line in net.log_lines)
    assert driver.pinned_bytes() == before
    driver.hold(False)  # what comes late finds its memory still there
    driver.call("cuCtxSynchronize")
    # What had waited is not copied at all, and nobody else's copies wait for it.
    other.exchange([CHUNK])
    assert driver.calls("cuMemcpyDtoHAsync") == 3
    assert driver.calls("cuMemcpyBatchAsync") == 0
