"""softtcpx: receives into GPU memory, for which host pages stand: fragments, pages, slots."""

from __future__ import annotations

import ctypes
import mmap
import os
import random
from collections import deque

import pytest
from fresh_process import in_fresh_process
from net_v7 import (
    INTERNAL,
    INVALID_ARGUMENT,
    INVALID_USAGE,
    PTR_CUDA,
    SLOTS,
    SUCCESS,
    Connecting,
    Memory,
    Net,
    connected,
    until,
)
from own_process import data_sockets
from unpack_queue import PAGE, Pages, Pair, connected_with_queue
from variants import variant

#: Modes of fragments, and of each the numbers of the layouts that are variants: pairs stay.
MODES = {"page": (1, 4), "mss": (0, 2, 3), "random": (1, 3)}
LAYOUTS = [
    {},
    {"NCCL_NSOCKS_PERTHREAD": "4", "NCCL_DYNAMIC_CHUNK_SIZE": "50000"},
    {"NCCL_NSOCKS_PERTHREAD": "3", "NCCL_DYNAMIC_CHUNK_SIZE": "3000"},
    {"NCCL_SOCKET_NTHREADS": "2", "NCCL_NSOCKS_PERTHREAD": "2"},
    {"SOFTTCPX_SHUFFLE": "0", "SOFTTCPX_DIRECT_SOCKETS": "0"},
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


@in_fresh_process()
def test_accept_fills_the_callers_block_and_the_queue_starts_empty() -> None:
    net = Net().started()
    _, recv, queue = connected_with_queue(net)
    assert queue.unpack.head == 2**64 - 1
    assert queue.unpack.meta % PAGE == queue.unpack.bounce % PAGE == 0
    assert [queue.count(k) for k in range(SLOTS)] == [0] * SLOTS
    assert net.table.close_recv(recv) == SUCCESS


@pytest.mark.only_softtcpx
@pytest.mark.parametrize("argument", ["no pointer", "pointer to NULL"])
@in_fresh_process()
def test_a_caller_without_a_block_gets_host_memory_only(argument: str) -> None:
    net = Net().started()
    if argument == "no pointer":
        listen_comm, handle = net.listen()
        connecting = Connecting(net, handle)
        comm, made = ctypes.c_void_p(), []

        def step() -> bool:
            if not made:
                made.extend(c for c in [connecting.step()[1]] if c is not None)
            if comm.value is None:
                assert net.table.accept(listen_comm, ctypes.byref(comm), None) == SUCCESS
            return bool(made) and comm.value is not None

        until(step, "a connection")
        send, recv = made[0], comm.value
    else:
        send, recv = connected(net)
    assert recv is not None
    pages, source, target = Pages(PAGE), Memory(b"x" * 100), Memory(100)
    on_device = pages.registered(net, recv)
    assert net.irecv(recv, pages.address, 100, on_device)[0] == INVALID_ARGUMENT
    _, received = net.irecv(recv, target.address, 100, net.registered(recv, target))
    _, sent = net.isend(send, source.address, 100, net.registered(send, source))
    net.finish(sent, received)
    assert target.content() == source.content()
    assert net.consumed(recv, received) == SUCCESS
    assert net.table.close_recv(recv) == SUCCESS


@pytest.mark.only_softtcpx
@in_fresh_process()
def test_gpu_memory_is_registered_in_whole_pages_only() -> None:
    net = Net().started()
    send, recv, _ = connected_with_queue(net)
    pages, mhandle = Pages(2 * PAGE), ctypes.c_void_p()

    def code(comm: int, offset: int, size: int) -> int:
        address = pages.address + offset
        return int(net.table.reg_mr(comm, address, size, PTR_CUDA, ctypes.byref(mhandle)))

    for comm in (send, recv):
        assert code(comm, 0, 2 * PAGE) == SUCCESS
        assert code(comm, PAGE, PAGE) == SUCCESS
        assert code(comm, 1, PAGE) == INVALID_ARGUMENT
        assert code(comm, 0, PAGE + 1) == INVALID_ARGUMENT
        assert code(comm, 0, 0) == INVALID_ARGUMENT


@pytest.mark.only_softtcpx
@pytest.mark.parametrize("environ", [{}, {"SOFTTCPX_LIKE": "direct"}], ids=str)
@in_fresh_process()
def test_what_is_neither_a_gpus_memory_nor_the_processs_is_refused(environ: dict[str, str]) -> None:
    net, mhandle = Net(log=True).started(), ctypes.c_void_p()
    send, recv = connected(net)
    pages = mmap.mmap(-1, 3 * PAGE)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    libc = ctypes.CDLL(None)  # 0: nobody may touch it
    assert libc.mprotect(ctypes.c_void_p(begin + 2 * PAGE), PAGE, 0) == 0
    for comm in (send, recv):
        for offset, size, code in (
            (0, 2 * PAGE, SUCCESS),
            (2 * PAGE, PAGE, INVALID_ARGUMENT),
            (PAGE, 2 * PAGE, INVALID_ARGUMENT),
        ):
            found = net.table.reg_mr(comm, begin + offset, size, PTR_CUDA, ctypes.byref(mhandle))
            assert found == code
    assert "are no memory, neither of a GPU nor of this process" in net.log_lines[-1]


@pytest.mark.parametrize("environ", [{}, {"SOFTTCPX_TRAP_SHARED_PAGES": "8192"}], ids=str)
@in_fresh_process(SOFTTCPX_POISON="1", SOFTTCPX_FRAGMENTS="random")
def test_connections_have_one_bounce_buffer_and_no_page_in_common(environ: dict[str, str]) -> None:
    net = Net().started()
    pairs = [Pair(net, os.urandom(5 * PAGE + 7)) for _ in range(3)]
    received = [pair.move(0, pair.source.size) for pair in pairs]
    for pair in pairs:
        for other in pairs:
            assert pair.queue.through(other.queue, 0) == pair.source.content()
            assert pair is other or not pair.queue.pages(0) & other.queue.pages(0)
    assert net.consumed(pairs[0].recv, received[0]) == SUCCESS
    pairs[0].close()
    late = Pair(net, os.urandom(PAGE))  # where the one before it was, or elsewhere
    late.move(0, PAGE)
    assert late.queue.through(pairs[1].queue, 0) == late.source.content()
    assert pairs[1].queue.through(late.queue, 0) == pairs[1].source.content()


@every_layout
@in_fresh_process(SOFTTCPX_POISON="1")
def test_the_fragments_of_every_receive_hold_every_byte_once(environ: dict[str, str]) -> None:
    net = Net().started()
    choose = random.Random(3)
    sizes = [0, 1, 63, 64, 855, 4095, 4096, 4097, 9048, 0, 8192, 65537, 524288, 300_001, 7]
    sizes += [choose.randrange(20_000) for _ in range(40)]
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    pair = Pair(net, os.urandom(sum(sizes)))
    content = pair.source.content()
    requests: list[int | None] = []
    pages: deque[set[int]] = deque()  # of receives that are done and not consumed
    sent = consumed = 0

    def step() -> bool:
        nonlocal sent, consumed
        if len(requests) < len(sizes) and len(requests) - consumed < SLOTS:
            k = len(requests)
            requests.append(pair.post_receive(starts[k], sizes[k]))
        if sent < len(sizes) and len(pair.sends) < SLOTS:
            pair.post_send(starts[sent], sizes[sent])
            sent += 1
        if pair.sends and net.test(pair.sends[0])[1]:
            pair.sends.popleft()
        k = consumed + len(pages)
        if k < len(requests) and net.test(requests[k]) == (SUCCESS, True):
            assert pair.queue.unpacked(k, sizes[k]) == content[starts[k] :][: sizes[k]]
            assert not any(pair.queue.pages(k) & other for other in pages), "a page still in use"
            pages.append(pair.queue.pages(k))
        if pages and choose.random() < 0.3:
            assert net.consumed(pair.recv, requests[consumed]) == SUCCESS
            consumed += 1
            pages.popleft()
        return consumed == len(sizes) and not pair.sends

    until(step, "all messages", seconds=60)
    assert pair.target.content(len(content)) == bytes(len(content)), "nothing is put in place"
    assert net.table.close_recv(pair.recv) == SUCCESS


@in_fresh_process(NCCL_NSOCKS_PERTHREAD="4", NCCL_DYNAMIC_CHUNK_SIZE="50000")
def test_several_sockets_deliver_out_of_destination_order() -> None:
    net = Net().started()
    pair = Pair(net, os.urandom(1 << 20))
    pair.move(0, 1 << 20)
    assert pair.queue.unpacked(0, 1 << 20) == pair.source.content()
    targets = [fragment.target for fragment in pair.queue.fragments(0)]
    assert targets != sorted(targets)


@pytest.mark.only_softtcpx
@pytest.mark.parametrize(
    ("mode", "lengths"), [("page", [4096]), ("mss", [856, 4096]), ("random", None)]
)
@in_fresh_process()
def test_a_fragmentation_mode_cuts_as_its_name_says(mode: str, lengths: list[int] | None) -> None:
    os.environ["SOFTTCPX_FRAGMENTS"] = mode
    net = Net().started()
    size = 9048 * 40
    pair = Pair(net, os.urandom(size))
    pair.move(0, size)
    assert pair.queue.unpacked(0, size) == pair.source.content()
    fragments = pair.queue.fragments(0)
    if lengths is None:
        assert len({fragment.length for fragment in fragments}) > 50
        assert len({fragment.source % 16 for fragment in fragments}) == 16
    else:
        assert sorted({fragment.length for fragment in fragments[:-1]}) == lengths
        assert all(fragment.source % PAGE == 0 for fragment in fragments)


@pytest.mark.only_softtcpx
@pytest.mark.parametrize("shuffle", [0, 1])
@in_fresh_process()
def test_pages_are_handed_out_in_shuffled_order_unless_switched_off(shuffle: int) -> None:
    os.environ["SOFTTCPX_SHUFFLE"] = str(shuffle)
    net = Net().started()
    pair = Pair(net, os.urandom(40 * PAGE))
    pair.move(0, 40 * PAGE)
    sources = [fragment.source for fragment in pair.queue.fragments(0)]
    assert (sources == sorted(sources)) == (shuffle == 0)


@pytest.mark.only_softtcpx
@pytest.mark.parametrize("mode", MODES)
@in_fresh_process()
def test_two_mib_fit_into_the_fragments_of_a_receive(mode: str) -> None:
    os.environ["SOFTTCPX_FRAGMENTS"] = mode
    net = Net().started()
    pair = Pair(net, os.urandom(2 << 20))
    pair.move(0, 2 << 20)
    assert pair.queue.unpacked(0, 2 << 20) == pair.source.content()


@pytest.mark.only_softtcpx
@in_fresh_process(NCCL_DYNAMIC_CHUNK_SIZE="500")
def test_more_fragments_than_a_receive_may_have_are_error_3() -> None:
    net = Net(log=True).started()
    pair = Pair(net, bytes(2 << 20))
    request = pair.post_receive(0, 2 << 20)
    pair.post_send(0, 2 << 20)
    codes: list[int] = []

    def failed() -> bool:
        net.test(pair.sends[0])
        code, done = net.test(request)
        codes.append(code)
        assert not done
        return code != SUCCESS

    until(failed, "an error")
    assert codes[-1] == INTERNAL
    assert any("more than 2047 fragments" in line for line in net.log_lines)


@in_fresh_process()
def test_empty_and_host_receives_take_a_slot_and_list_nothing() -> None:
    net = Net().started()
    pair = Pair(net, os.urandom(50 * 100))
    host = Memory(100)
    host_mhandle = net.registered(pair.recv, host)
    for k in range(50):
        kind = k % 3
        if kind == 0:
            request = pair.move(100 * k, 100)
            assert pair.queue.unpacked(k, 100) == pair.source.content()[100 * k :][:100]
        elif kind == 1:
            request = pair.move(100 * k, 0)
            assert pair.queue.count(k) == 0
        else:
            _, request = net.irecv(pair.recv, host.address, 100, host_mhandle)
            pair.post_send(100 * k, 100)
            pair.finish(request)
            assert pair.queue.count(k) == 0
            assert host.content() == pair.source.content()[100 * k :][:100]
        assert net.consumed(pair.recv, request) == SUCCESS
    assert net.table.close_recv(pair.recv) == SUCCESS


@pytest.mark.only_softtcpx
@in_fresh_process(SOFTTCPX_POISON="1")
def test_pages_are_overwritten_when_consumed_and_used_again_at_once() -> None:
    net = Net().started()
    pair = Pair(net, b"a" * PAGE * 8)
    first = pair.move(0, PAGE * 8)
    fragments, pages = pair.queue.fragments(0), pair.queue.pages(0)
    assert pair.queue.unpacked(0, PAGE * 8) == b"a" * PAGE * 8
    assert net.consumed(pair.recv, first) == SUCCESS
    assert all(b"a" not in pair.queue.bytes_of(fragment) for fragment in fragments)
    pair.move(0, PAGE * 8)
    assert pair.queue.pages(1) == pages


@pytest.mark.only_softtcpx
@in_fresh_process()
def test_consuming_out_of_order_is_error_3_and_frees_no_page() -> None:
    net = Net().started()
    pair = Pair(net, os.urandom(3 * PAGE))
    requests = [pair.move(k * PAGE, PAGE) for k in range(2)]
    assert net.consumed(pair.recv, requests[1]) == INTERNAL
    pair.move(2 * PAGE, PAGE)
    pages = [pair.queue.pages(k) for k in range(3)]
    assert len(set.union(*pages)) == 3
    assert pair.queue.unpacked(1, PAGE) == pair.source.content()[PAGE : 2 * PAGE]


@pytest.mark.only_softtcpx
@pytest.mark.parametrize("consumed", [0, 2, 3])
@in_fresh_process()
def test_a_finished_receive_that_was_not_consumed_is_an_error_at_close(consumed: int) -> None:
    net = Net(log=True).started()
    pair = Pair(net, os.urandom(3 * PAGE))
    requests = [pair.move(k * PAGE, PAGE) for k in range(3)]
    for request in requests[:consumed]:
        assert net.consumed(pair.recv, request) == SUCCESS
    code = net.table.close_recv(pair.recv)
    assert code == (SUCCESS if consumed == 3 else INTERNAL)
    told = [line for line in net.log_lines if f"{3 - consumed} bounce pages missing" in line]
    assert len(told) == (0 if consumed == 3 else 1)


@in_fresh_process()
def test_a_receive_that_is_still_open_at_close_is_no_leak() -> None:
    net = Net().started()
    pair = Pair(net, os.urandom(1 << 20))
    request = pair.post_receive(0, 1 << 20)
    pair.post_send(0, 1 << 20)
    net.test(pair.sends[0])
    net.test(request)
    assert net.table.close_recv(pair.recv) == SUCCESS


# Sends that wait for their receive ---------------------------------------------------------------


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"NCCL_NSOCKS_PERTHREAD": "3"},
        {"NCCL_SOCKET_NTHREADS": "1"},
        {"SOFTTCPX_DIRECT_SOCKETS": "0"},
    ],
    ids=lambda environ: ",".join(environ) or "-",
)
@in_fresh_process(NCCL_GPUDIRECTTCPX_RECV_SYNC="1")
def test_with_recv_sync_a_send_is_done_only_once_its_receive_is_posted(
    environ: dict[str, str],
) -> None:
    net = Net().started()
    pair = Pair(net, os.urandom(100_000))
    for k in range(40):
        pair.post_send(0, 1000 * k)
        for _ in range(50):
            assert net.test(pair.sends[0]) == (SUCCESS, False)
        request = pair.post_receive(0, 1000 * k)
        pair.finish(request)
        assert pair.queue.unpacked(k, 1000 * k) == pair.source.content()[: 1000 * k]
        assert net.consumed(pair.recv, request) == SUCCESS


@pytest.mark.only_softtcpx
@in_fresh_process(NCCL_GPUDIRECTTCPX_RECV_SYNC="1")
def test_recv_sync_on_one_side_only_is_refused() -> None:
    net = Net(log=True).started()
    _, handle = net.listen()
    other = handle[:20] + bytes([handle[20] ^ 1]) + handle[21:]
    assert Connecting(net, other).step() == (INVALID_USAGE, None)
    assert any("RECV_SYNC is 1 here and 0" in line for line in net.log_lines)


@pytest.mark.only_softtcpx
@pytest.mark.parametrize(
    "credit_text",
    [
        b"no credit at all".hex(),
        "6372647400000000" + "00" * 8,
        "6372647400000000" + "11" + "00" * 7,
        "6372647400000000" + "ff" * 8,
    ],
    ids=["noise", "none", "17", "2^64-1"],
)
@in_fresh_process(NCCL_GPUDIRECTTCPX_RECV_SYNC="1")
def test_a_credit_that_no_receiver_can_give_is_error_3(credit_text: str) -> None:
    net = Net(log=True).started()
    pair = Pair(net, b"x" * 100)
    control = data_sockets(port_side=True)[0]  # the first one that was accepted
    pair.post_send(0, 100)
    control.send(bytes.fromhex(credit_text))
    assert net.code_of(pair.sends[0]) == INTERNAL
