"""softtcpx with memory of GPUs: copied out by the GPU, received into pages that the GPU can read.

Without a GPU this runs on the fake driver of tests/fakecuda, whose device memory no CPU can touch.
TCPX_MPI_LIBCUDA=libcuda.so.1 runs it on the machine's own, but for what only the fake one can do.
"""

from __future__ import annotations

import os
import random
import re
import time

import pytest
from fresh_process import in_fresh_process
from gpu import CHUNK, Driver, GpuMemory, GpuPair, inline_and_worker, only_the_fake_driver
from net_v7 import (
    INVALID_ARGUMENT,
    SLOTS,
    SUCCESS,
    Memory,
    Net,
    until,
)
from own_process import open_descriptors, threads, until_threads_are
from unpack_queue import PAGE, Pages, UnpackPair, connected_with_queue
from variants import variant

QUEUE_BYTES = 129 * PAGE  # netUnpackMeta and the device's block, in whole pages

#: Modes of fragments, and of each the numbers of the layouts that are variants: pairs stay.
MODES = {"page": (1, 4, 6), "mss": (0, 2, 3, 5), "random": (1, 2, 3, 4, 5, 6)}
LAYOUTS = [
    {},
    {"NCCL_NSOCKS_PERTHREAD": "4", "NCCL_DYNAMIC_CHUNK_SIZE": "50000"},
    {"NCCL_NSOCKS_PERTHREAD": "3", "NCCL_DYNAMIC_CHUNK_SIZE": "3000", "SOFTTCPX_COPIES": "2"},
    {"NCCL_NSOCKS_PERTHREAD": "16", "SOFTTCPX_MAX_SOCKETS": "16", "SOFTTCPX_COPY_BYTES": "65536"},
    {"NCCL_SOCKET_NTHREADS": "2", "NCCL_NSOCKS_PERTHREAD": "2"},
    {"SOFTTCPX_WORKERS": "1", "SOFTTCPX_SHUFFLE": "0", "SOFTTCPX_DIRECT_SOCKETS": "0"},
    {"NCCL_GPUDIRECTTCPX_RECV_SYNC": "1", "SOFTTCPX_COPY_BYTES": "131072"},
]
every_layout = pytest.mark.parametrize(
    "environ",
    [
        (variant if number in variants else pytest.param)({"SOFTTCPX_FRAGMENTS": mode, **layout})
        for mode, variants in MODES.items()
        for number, layout in enumerate(LAYOUTS)
    ],
    ids=lambda environ: ",".join(environ.values()),
)

pytestmark = [
    pytest.mark.only_softtcpx,
    pytest.mark.usefixtures("driver_of_the_test_bodies"),
]


@every_layout
@in_fresh_process(SOFTTCPX_POISON="1")
def test_every_byte_comes_out_of_one_gpu_and_into_pages_of_the_other(
    environ: dict[str, str],
) -> None:
    net, driver = Net().started(), Driver()
    choose = random.Random(5)
    sizes = [0, 1, 63, 4095, 4096, 4097, 9048, 0, 65535, 65537, 131073, CHUNK, 300_001, 7]
    sizes += [choose.randrange(20_000) for _ in range(30)] + [CHUNK - 1, 2 << 20, 1]
    content = os.urandom(sum(sizes))
    pair = GpuPair(net, driver, content)
    pair.exchange(sizes)
    assert pair.target.content(len(content)) == bytes(len(content)), "nothing is put in place"
    pair.close()
    if driver.fake:
        assert driver.pinned_bytes() == 0


@inline_and_worker
@in_fresh_process()
def test_messages_of_all_kinds_of_memory_share_a_connection_one_at_a_time(
    environ: dict[str, str],
) -> None:
    net, driver = Net().started(), Driver()
    content = os.urandom(20 * PAGE)
    pair = GpuPair(net, driver, content)
    host, pages, host_target = Memory(content), Pages(content), Memory(PAGE)
    sources: list[tuple[GpuMemory | Memory | Pages, int]] = [
        (pair.source, pair.send_mhandle),
        (host, net.registered(pair.send, host)),
        (pages, pages.registered(net, pair.send)),
    ]
    into_host = net.registered(pair.recv, host_target)
    for k in range(60):
        source, mhandle = sources[k % 3]
        offset = k % 20 * PAGE
        # Twice the sends that have a receive: what comes too early waits, in order.
        for later in (0, 1) if k == 0 else (1,):
            following, its = sources[(k + later) % 3]
            code, request = net.isend(
                pair.send, following.address + (k + later) % 20 * PAGE, 3000, its
            )
            assert code == SUCCESS
            pair.sends.append(request)
        if k % 2 == 0:
            request = pair.post_receive(offset, 3000)
        else:
            _, request = net.irecv(pair.recv, host_target.address, PAGE, into_host)

        def arrived(request: int | None = request) -> bool:
            pair.sends_done()
            return net.test(request) == (SUCCESS, True)

        until(arrived, f"message {k}")
        expected = content[offset:][:3000]
        got = pair.queue.unpacked(k, 3000) if k % 2 == 0 else host_target.content()[:3000]
        assert got == expected, f"message {k} from {type(source).__name__} with {mhandle}"
        assert net.consumed(pair.recv, request) == SUCCESS


@inline_and_worker
@in_fresh_process()
def test_no_context_need_be_current_after_set_up_and_the_callers_own_stays(
    environ: dict[str, str],
) -> None:
    net, driver = Net().started(), Driver(current=0)
    content = os.urandom(8 * PAGE)
    pair = GpuPair(net, driver, content)
    for k, device in enumerate([None, driver.devices - 1, 0, None]):
        driver.make_current(device)
        request = pair.post_receive(0, 8 * PAGE)
        pair.post_send(0, 8 * PAGE)
        pair.finish(request)
        assert driver.current() == device
        assert pair.queue.unpacked(k, 8 * PAGE) == content
        assert net.consumed(pair.recv, request) == SUCCESS
    pair.close()
    assert driver.current() is None
    if driver.fake:
        assert driver.pinned_bytes() == 0


@inline_and_worker
@in_fresh_process()
def test_a_graph_that_is_captured_meanwhile_stays_whole_and_spoils_nothing(
    environ: dict[str, str],
) -> None:
    net, driver, content = Net().started(), Driver(), os.urandom(8 * PAGE)
    source, target = GpuMemory(driver, content), GpuMemory(driver, 8 * PAGE)
    with driver.capturing():
        pair = UnpackPair(net, source, target)
        for k in range(0, 80, 8):  # several at a time: some go to the engine together
            requests = [pair.post_receive(at * PAGE, PAGE) for at in range(8)]
            for at in range(8):
                assert pair.post_send(at * PAGE, PAGE)
            pair.finish(*requests)
            for at, request in enumerate(requests):
                assert pair.queue.unpacked(k + at, PAGE) == content[at * PAGE :][:PAGE]
                assert net.consumed(pair.recv, request) == SUCCESS
        pair.post_send(0, 8 * PAGE)
        pair.close()
        assert driver.capture_mode() == "global"
    if driver.fake:
        assert driver.calls("cuStreamQuery") > 0


# Page-locked memory -------------------------------------------------------------------------------


@only_the_fake_driver
@pytest.mark.parametrize(
    ("environ", "pages", "copies"),
    [
        ({}, 16 * 138, 8 * CHUNK),
        ({"NCCL_DYNAMIC_CHUNK_SIZE": "65536", "SOFTTCPX_COPIES": "4"}, 2047, 4 * 65536),
        ({"SOFTTCPX_BOUNCE_PAGES": "500", "SOFTTCPX_COPY_BYTES": "131072"}, 500, 8 * 131072),
        ({"NCCL_DYNAMIC_CHUNK_SIZE": "16777216"}, 16 * 2047, 8 * CHUNK),
        ({"NCCL_DYNAMIC_CHUNK_SIZE": "3000", "SOFTTCPX_COPIES": "3"}, 2047, 3 * PAGE),
    ],
    ids=["default", "small chunks", "asked for", "large chunks", "odd chunks"],
)
@in_fresh_process()
def test_page_locked_memory_is_what_the_settings_say_and_given_back_at_close(
    environ: dict[str, str], pages: int, copies: int
) -> None:
    net, driver = Net(log=True).started(), Driver()
    source, target = GpuMemory(driver, PAGE), GpuMemory(driver, PAGE)
    for _ in range(2):
        net.log_lines.clear()
        send, recv, _ = connected_with_queue(net)
        received = QUEUE_BYTES + pages * PAGE
        assert driver.pinned_bytes() == received
        target.registered(net, recv)
        assert driver.pinned_bytes() == received
        for _ in range(2):
            source.registered(net, send)
            assert driver.pinned_bytes() == received + PAGE + copies
        told = [int(n) for line in net.log_lines for n in re.findall(r"(\d+) bytes page-l", line)]
        assert sorted(told) == sorted([received, PAGE, copies])
        assert net.table.close_send(send) == SUCCESS
        assert driver.pinned_bytes() == received
        assert net.table.close_recv(recv) == SUCCESS
        assert driver.pinned_bytes() == 0


@in_fresh_process()
def test_without_a_current_context_nothing_is_page_locked_and_host_pages_serve_as_ever() -> None:
    net, driver = Net(log=True).started(), Driver(current=None)
    send, recv, queue = connected_with_queue(net)
    if driver.fake:
        assert driver.pinned_bytes() == 0
        assert driver.calls("cuMemHostRegister") == 0
    memory = GpuMemory(driver, PAGE)
    for comm in (send, recv):
        assert memory.register(net, comm)[0] == INVALID_ARGUMENT
        assert "are a GPU's, and no context is current" in net.log_lines[-1]
    driver.make_current(0)
    assert memory.register(net, recv)[0] == INVALID_ARGUMENT
    assert any("no context was current at listen or accept" in line for line in net.log_lines)
    pages, source = Pages(PAGE), Memory(b"x" * PAGE)
    mhandle = pages.registered(net, recv)
    _, received = net.irecv(recv, pages.address, PAGE, mhandle)
    _, sent = net.isend(send, source.address, PAGE, net.registered(send, source))
    net.finish(sent, received)
    assert queue.unpacked(0, PAGE) == b"x" * PAGE
    # A sender needs none before its memory is registered.
    memory.registered(net, send)


@in_fresh_process()
def test_host_pages_stand_for_gpu_memory_on_a_machine_with_a_gpu_too() -> None:
    net, driver = Net().started(), Driver()
    content = os.urandom(300_001)
    send, recv, queue = connected_with_queue(net)
    source, target = Pages(content), Pages(len(content))
    mhandle = target.registered(net, recv)
    from_pages = source.registered(net, send)
    for k in range(20):
        _, received = net.irecv(recv, target.address, len(content), mhandle)
        _, sent = net.isend(send, source.address, len(content), from_pages)
        net.finish(sent, received)
        assert queue.unpacked(k, len(content)) == content
        assert net.consumed(recv, received) == SUCCESS
    if driver.fake:
        assert driver.calls("cuMemcpyDtoHAsync") == 0


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"NCCL_NSOCKS_PERTHREAD": "4"},
        {"SOFTTCPX_WORKERS": "1", "SOFTTCPX_SPIN_US": "0"},
        {"SOFTTCPX_WORKERS": "1", "NCCL_NSOCKS_PERTHREAD": "4", "SOFTTCPX_DIRECT_SOCKETS": "0"},
    ],
    ids=lambda environ: ",".join(environ.values()) or "-",
)
@in_fresh_process(SOFTTCPX_BOUNCE_PAGES="300")
def test_where_pages_run_out_a_socket_is_not_read_until_some_come_back(
    environ: dict[str, str],
) -> None:
    net, content = Net(log=True).started(), os.urandom(16 * CHUNK)
    pair = GpuPair(net, Driver(), content)
    requests = [pair.post_receive(k * CHUNK, CHUNK) for k in range(SLOTS)]  # pages for two of them
    for k in range(SLOTS):
        pair.post_send(k * CHUNK, CHUNK)
    for k, request in enumerate(requests):

        def arrived(request: int | None = request) -> bool:
            pair.sends_done()
            code, done = net.test(request)
            assert code == SUCCESS
            return done

        until(arrived, f"receive {k}")
        assert pair.queue.unpacked(k, CHUNK) == content[k * CHUNK :][:CHUNK]
        assert net.consumed(pair.recv, request) == SUCCESS
    until(pair.sends_done, "the sends")
    pair.close()


@in_fresh_process(SOFTTCPX_BOUNCE_PAGES="300")
def test_what_waits_for_pages_is_not_lost_with_a_sender_that_is_gone() -> None:
    net, content = Net().started(), os.urandom(4 * CHUNK)
    pair = GpuPair(net, Driver(), content)
    requests = [pair.post_receive(k * CHUNK, CHUNK) for k in range(4)]
    for k in range(4):
        pair.post_send(k * CHUNK, CHUNK)
    pair.finish(requests[0])
    pair.finish(requests[1])
    assert net.table.close_send(pair.send) == SUCCESS
    gone = time.monotonic()

    def later_than_any_patience_with_a_lost_peer() -> bool:
        assert net.test(requests[2]) == (SUCCESS, False)
        return time.monotonic() > gone + 1.5

    until(later_than_any_patience_with_a_lost_peer, "1.5 s")
    for k in range(4):
        if k > 1:
            net.finish(requests[k])
        assert pair.queue.unpacked(k, CHUNK) == content[k * CHUNK :][:CHUNK]
        assert net.consumed(pair.recv, requests[k]) == SUCCESS


@pytest.mark.parametrize("chunk", [CHUNK, 3000])
@in_fresh_process()
def test_16_receives_of_a_chunk_fit_however_late_they_are_consumed(chunk: int) -> None:
    os.environ["NCCL_DYNAMIC_CHUNK_SIZE"] = str(chunk)
    net, content = Net(log=True).started(), os.urandom(16 * chunk)
    pair = GpuPair(net, Driver(), content)
    requests = [pair.post_receive(k * chunk, chunk) for k in range(SLOTS)]
    for k in range(SLOTS):
        pair.post_send(k * chunk, chunk)
    for request in requests:
        pair.finish(request)
    for k, request in enumerate(requests):
        assert pair.queue.unpacked(k, chunk) == content[k * chunk :][:chunk]
        assert net.consumed(pair.recv, request) == SUCCESS


@in_fresh_process(SOFTTCPX_BOUNCE_PAGES="100")
def test_a_receive_that_no_number_of_free_pages_could_hold_is_refused_by_name() -> None:
    net = Net(log=True).started()
    pair = GpuPair(net, Driver(), bytes(CHUNK))
    code, _ = net.irecv(pair.recv, pair.target.address, CHUNK, pair.recv_mhandle)
    assert code == INVALID_ARGUMENT
    assert any(
        "a receive of 524288 bytes" in line and "SOFTTCPX_BOUNCE_PAGES" in line
        for line in net.log_lines
    )
    request = pair.post_receive(0, 80 * PAGE)
    pair.post_send(0, 80 * PAGE)
    pair.finish(request)


# Sockets and workers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "sockets", "workers"),
    [
        ({"NCCL_NSOCKS_PERTHREAD": "16", "SOFTTCPX_MAX_SOCKETS": "16"}, 16, 0),
        ({"NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "4"}, 8, 4),
        ({"SOFTTCPX_WORKERS": "16"}, 1, 16),
        ({"SOFTTCPX_WORKERS": "2", "NCCL_NSOCKS_PERTHREAD": "5"}, 5, 2),
    ],
    ids=lambda value: ",".join(value.values()) if isinstance(value, dict) else str(value),
)
@in_fresh_process()
def test_socket_and_thread_counts_go_up_to_16_by_settings_of_their_own(
    environ: dict[str, str], sockets: int, workers: int
) -> None:
    net = Net().started()
    before, descriptors = threads(), open_descriptors()
    connections = [connected_with_queue(net) for _ in range(8)]
    assert threads() == before + workers
    new = [what for fd, what in open_descriptors().items() if fd not in descriptors]
    # Both ends are here, a control socket beside the others.
    assert sum(what.startswith("socket:") for what in new) == 2 * 8 * (1 + sockets)
    for send, recv, _ in connections:
        assert net.table.close_send(send) == SUCCESS
        assert net.table.close_recv(recv) == SUCCESS
    until_threads_are(before)


@in_fresh_process(WORKERS_BY_CORES="")
def test_without_settings_connections_of_a_gpu_have_workers_by_cores() -> None:
    """Alone on this machine, or beside other processes with softtcpx, which count as ranks."""
    net, _driver = Net(log=True).started(), Driver()
    before = threads()
    opened = [connected_with_queue(net) for _ in range(8)]
    cores = len(os.sched_getaffinity(0))
    assert before + 1 <= threads() <= before + max(1, min(16, cores - 2))
    assert any("CPUs for" in line for line in net.log_lines)
    for send, recv, _ in opened:
        assert net.table.close_send(send) == SUCCESS
        assert net.table.close_recv(recv) == SUCCESS
    until_threads_are(before)


@pytest.mark.parametrize("environ", [{"SOFTTCPX_WORKERS": "0"}, {"NCCL_SOCKET_NTHREADS": "0"}])
@in_fresh_process(WORKERS_BY_CORES="")
def test_no_workers_are_a_setting_too(environ: dict[str, str]) -> None:
    net, _driver = Net().started(), Driver()
    before = threads()
    connected_with_queue(net)
    assert threads() == before


@in_fresh_process(WORKERS_BY_CORES="")
def test_host_memory_has_no_workers_where_no_gpu_is_current() -> None:
    net, _driver = Net().started(), Driver(None)
    before = threads()
    connected_with_queue(net)
    assert threads() == before


@in_fresh_process(WORKERS_BY_CORES="", SOFTTCPX_HOST_WORKERS="1")
def test_host_memory_has_workers_by_cores_where_it_is_to_have_them() -> None:
    net, _driver = Net(log=True).started(), Driver(None)
    before = threads()
    connected_with_queue(net)
    cores = len(os.sched_getaffinity(0))
    assert before <= threads() <= before + (min(8, cores - 2) if cores >= 4 else 0)
    assert any("a connection of host memory has" in line for line in net.log_lines)


@in_fresh_process(WORKERS_BY_CORES="", SOFTTCPX_HOST_WORKERS="1", SOFTTCPX_WORKERS="3")
def test_workers_that_were_named_are_those_of_host_memory_too() -> None:
    net, _driver = Net(log=True).started(), Driver(None)
    before = threads()
    for _ in range(8):
        connected_with_queue(net)
    assert threads() == before + 3
