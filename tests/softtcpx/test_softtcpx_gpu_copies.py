"""softtcpx's sends out of a GPU: who copies, when they are done, and what becomes of what is done.

On the driver of test_softtcpx_gpu.py; what is counted, on the fake one alone.
"""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import pytest
from fresh_process import in_fresh_process
from gpu import Driver, GpuPair, only_the_fake_driver
from net_v7 import SLOTS, SUCCESS, SYSTEM, Net, until
from variants import variant

KIB = 1024
COPY = "cuMemcpyDtoHAsync"
#: Sockets that hold less than a message, and a ring that holds several.
NARROW = {"SOFTTCPX_SNDBUF": "65536", "SOFTTCPX_RCVBUF": "65536"}
WORKER = {"SOFTTCPX_WORKERS": "1"}
SIZE = 256 * KIB
COUNT = 8

pytestmark = [
    pytest.mark.only_softtcpx,
    pytest.mark.usefixtures("driver_of_the_test_bodies"),
]


@pytest.mark.parametrize(
    "environ",
    [
        # The ring is as small as can be: copies of all lengths go round its end.
        {"SOFTTCPX_COPIES": "2"},
        {"NCCL_NSOCKS_PERTHREAD": "4", "SOFTTCPX_FRAGMENTS": "random"},
        variant({**WORKER, "NCCL_NSOCKS_PERTHREAD": "3"}),
        variant({**WORKER, **NARROW, "SOFTTCPX_COPIES": "2"}),
        {**WORKER, "SOFTTCPX_SPIN_US": "0", "SOFTTCPX_DIRECT_SOCKETS": "0",
         "SOFTTCPX_COPIES": "64"},
        {**WORKER, "NCCL_DYNAMIC_CHUNK_SIZE": "150001", "SOFTTCPX_COPIES": "3"},
        {"NCCL_DYNAMIC_CHUNK_SIZE": "3000", "NCCL_NSOCKS_PERTHREAD": "2"},
    ],
    ids=lambda environ: ",".join(environ.values()),
)  # fmt: skip
@in_fresh_process(SOFTTCPX_POISON="1")
def test_copies_into_rings_of_all_shapes_bring_every_byte(environ: dict[str, str]) -> None:
    # Of messages that are no multiple of any copy, many on their way and one at a time.
    choose = random.Random(11)
    sizes = [1, 64 * KIB - 1, 64 * KIB + 1, 300_001, 0, 2 << 20, 983_041, 512 * KIB, 192 * KIB]
    sizes += [choose.randrange(1 << 20) for _ in range(20)]
    sizes += [choose.randrange(100) for _ in range(40)]  # more than a ring has room for
    net, driver, content = Net().started(), Driver(), os.urandom(sum(sizes))
    for window in (SLOTS, 1, 3):
        pair = GpuPair(net, driver, content)
        pair.exchange(sizes, window)
        pair.close()


@only_the_fake_driver
@in_fresh_process(SOFTTCPX_COPY_BYTES="65536", SOFTTCPX_COPIES="2", **WORKER)
def test_nobody_but_the_caller_begins_copies() -> None:
    net, driver = Net().started(), Driver()
    pair = GpuPair(net, driver, bytes(SIZE))
    request = pair.post_receive(0, SIZE)
    pair.post_send(0, SIZE)
    # The worker frees the ring's two places soon; it is the caller who fills them again.
    for _ in range(20_000):
        assert net.test(request) == (SUCCESS, False)
    assert driver.calls(COPY) == 2
    pair.finish(request)
    assert driver.calls(COPY) == 4


@in_fresh_process(
    SOFTTCPX_COPY_BYTES="65536", SOFTTCPX_COPIES="2", SOFTTCPX_SPIN_US="0", SOFTTCPX_WORKERS="2"
)
def test_a_worker_that_sleeps_is_woken_for_the_copies_that_the_caller_begins() -> None:
    """It looks after a tenth of a second in any case: 600 of those are more than there is time for.

    Two workers, so that no receive wakes the one that sends.
    """
    net, driver, size = Net().started(), Driver(), 3 * 64 * KIB
    pair = GpuPair(net, driver, os.urandom(size))
    done = 0

    def all_sleep() -> bool:
        mine = threading.get_native_id()
        others = [n for n in os.listdir("/proc/self/task") if int(n) != mine]
        states = [Path(f"/proc/self/task/{n}/stat").read_text() for n in others]
        return all(state.rpartition(")")[2].split()[0] == "S" for state in states)

    def step() -> bool:
        nonlocal done
        request = pair.post_receive(0, size)
        pair.post_send(0, size)
        until(all_sleep, "the workers to sleep behind two copies")
        pair.finish(request)
        assert net.consumed(pair.recv, request) == SUCCESS
        done += 1
        return done == 600

    until(step, "600 messages of three copies")


# Done ---------------------------------------------------------------------------------------------


def _sent_before_any_receive(net: Net, driver: Driver) -> GpuPair:
    """Sends of more than the sockets hold, all of them done."""
    pair = GpuPair(net, driver, os.urandom(COUNT * SIZE))
    for k in range(COUNT):
        assert pair.post_send(k * SIZE, SIZE)
    until(pair.sends_done, "the copies to land")
    return pair


def _receive_all(pair: GpuPair, content: bytes) -> None:
    requests = [pair.post_receive(k * SIZE, SIZE) for k in range(COUNT)]
    pair.finish(*requests)
    for k, request in enumerate(requests):
        assert pair.queue.unpacked(k, SIZE) == content[k * SIZE :][:SIZE]
        assert pair.net.consumed(pair.recv, request) == SUCCESS


@in_fresh_process(**WORKER, **NARROW)
def test_with_a_worker_a_send_is_done_when_its_copy_has_landed() -> None:
    net, driver = Net().started(), Driver()
    pair = _sent_before_any_receive(net, driver)
    _receive_all(pair, pair.source.content())
    pair.close()
    if driver.fake:
        assert driver.pinned_bytes() == 0


@only_the_fake_driver
@in_fresh_process(**WORKER)
def test_no_send_is_done_before_its_copy_has_landed() -> None:
    net, driver = Net().started(), Driver()
    pair = GpuPair(net, driver, os.urandom(2 * SIZE))
    driver.hold(True)
    request = pair.post_receive(0, SIZE)
    pair.post_send(0, SIZE)
    pair.post_send(SIZE, SIZE)
    for _ in range(20_000):
        assert net.test(pair.sends[0]) == (SUCCESS, False)
    driver.hold(False)
    pair.finish(request)
    assert pair.queue.unpacked(0, SIZE) == pair.source.content()[:SIZE]


@pytest.mark.parametrize(
    "environ",
    [{}, {**WORKER, "NCCL_GPUDIRECTTCPX_RECV_SYNC": "1"}],
    ids=["nobody sends what the caller leaves", "a send waits for its receive"],
)
@in_fresh_process(**NARROW)
def test_otherwise_a_send_is_done_when_the_operating_system_has_it(environ: dict[str, str]) -> None:
    net, driver = Net().started(), Driver()
    content = os.urandom(COUNT * SIZE)
    pair = GpuPair(net, driver, content)
    for k in range(COUNT):
        assert pair.post_send(k * SIZE, SIZE)
    for _ in range(20_000):
        assert not pair.sends_done()
    _receive_all(pair, content)


@in_fresh_process(SOFTTCPX_COPY_BYTES="65536", SOFTTCPX_COPIES="64", **WORKER, **NARROW)
def test_with_16_messages_done_that_are_not_sent_isend_is_busy() -> None:
    net, driver = Net().started(), Driver()
    size = 64 * KIB
    content = os.urandom(48 * size)
    pair = GpuPair(net, driver, content)
    posted = 0

    def busy() -> bool:
        nonlocal posted
        if not pair.sends_done():
            return False
        posted += pair.post_send(posted * size, size)
        return not pair.sends

    until(busy, "a connection that is busy")
    assert posted >= SLOTS
    for k in range(48):
        request = pair.post_receive(k * size, size)

        def arrived(request: int | None = request) -> bool:
            nonlocal posted
            pair.sends_done()
            if posted < 48 and len(pair.sends) < SLOTS:
                posted += pair.post_send(posted * size, size)
            return net.test(request) == (SUCCESS, True)

        until(arrived, f"message {k}")
        assert pair.queue.unpacked(k, size) == content[k * size :][:size], f"message {k}"
        assert net.consumed(pair.recv, request) == SUCCESS


# Closing ------------------------------------------------------------------------------------------


@in_fresh_process(**WORKER, **NARROW)
def test_a_connection_that_is_closed_sends_what_is_done_first() -> None:
    net, driver = Net().started(), Driver()
    pair = _sent_before_any_receive(net, driver)
    content, codes = pair.source.content(), []

    def close() -> None:
        driver.make_current(0)
        codes.append(net.table.close_send(pair.send))

    closing = threading.Thread(target=close)
    closing.start()
    _receive_all(pair, content)
    closing.join()
    assert codes == [SUCCESS]
    assert net.table.close_recv(pair.recv) == SUCCESS


@in_fresh_process(**WORKER, **NARROW)
def test_closing_ends_with_an_error_where_the_peer_takes_nothing() -> None:
    net = Net(log=True).started()
    pair = _sent_before_any_receive(net, Driver())
    assert net.table.close_send(pair.send) == SYSTEM
    assert any("messages are lost" in line for line in net.log_lines)


@in_fresh_process(**WORKER, **NARROW)
def test_closing_ends_with_an_error_where_the_peer_is_gone() -> None:
    net = Net().started()
    pair = _sent_before_any_receive(net, Driver())
    net.table.close_recv(pair.recv)
    assert net.table.close_send(pair.send) != SUCCESS
