"""Both ends of a connection in one process, each with a block of memory and requests in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from net_v7 import SLOTS, SUCCESS, Memory, Net, connected, until

OWNERS = [
    {},
    {"NCCL_NSOCKS_PERTHREAD": "3"},
    {"NCCL_NSOCKS_PERTHREAD": "8", "NCCL_DYNAMIC_CHUNK_SIZE": "1000"},
    {"NCCL_SOCKET_NTHREADS": "2"},
    {"NCCL_SOCKET_NTHREADS": "2", "SOFTTCPX_SPIN_US": "0", "NCCL_DYNAMIC_CHUNK_SIZE": "5000"},
    {"SOFTTCPX_DIRECT_SOCKETS": "0"},
    {"SOFTTCPX_DIRECT_SOCKETS": "0", "NCCL_NSOCKS_PERTHREAD": "2", "SOFTTCPX_SNDBUF": "4096"},
]


class End:
    """One end of a connection with one registered block, and its requests in order."""

    def __init__(self, net: Net, comm: int, memory: Memory, sends: bool) -> None:
        self.net, self.comm, self.memory, self.sends = net, comm, memory, sends
        self.mhandle = net.registered(comm, memory)
        self.pending: deque[int | None] = deque()

    def post(self, offset: int, size: int) -> int:
        act = self.net.isend if self.sends else self.net.irecv
        code, request = act(self.comm, self.memory.address + offset, size, self.mhandle)
        if code == SUCCESS:
            self.pending.append(request)
        return code

    def test_head(self) -> bool:
        """Test the oldest request; when done, free its slot."""
        code, done = self.net.test(self.pending[0])
        assert code == SUCCESS, f"test returned {code}"
        if done:
            request = self.pending.popleft()
            if not self.sends:
                assert self.net.consumed(self.comm, request) == SUCCESS
        return done


def ends_of(net: Net, source: Memory, target: Memory) -> tuple[End, End]:
    send, recv = connected(net)
    return End(net, send, source, True), End(net, recv, target, False)


def one_after_another(sizes: Iterable[int]) -> tuple[list[tuple[int, int]], int]:
    """(offset, size) of messages that lie so in one block, and the size of the block."""
    pieces, offset = [], 0
    for size in sizes:
        pieces.append((offset, size))
        offset += size
    return pieces, offset


def transfer(sender: End, receiver: End, pieces: list[tuple[int, int]]) -> None:
    """Move every (offset, size), both windows always as full as they may be."""
    waiting = {id(end): deque(pieces) for end in (sender, receiver)}

    def step() -> bool:
        for end in (sender, receiver):
            todo = waiting[id(end)]
            while todo and len(end.pending) < SLOTS:
                assert end.post(*todo[0]) == SUCCESS
                todo.popleft()
            while end.pending and end.test_head():
                pass
        return not any(waiting.values()) and not sender.pending and not receiver.pending

    until(step, "the transfer", seconds=100)


def exchange(net: Net, send: int, recv: int, message: bytes = b"Hello, softtcpx!") -> None:
    source, target = Memory(message), Memory(len(message))
    code, sending = net.isend(send, source.address, source.size, net.registered(send, source))
    assert code == SUCCESS
    code, receiving = net.irecv(recv, target.address, target.size, net.registered(recv, target))
    assert code == SUCCESS
    net.finish(sending, receiving)
    assert net.consumed(recv, receiving) == SUCCESS
    assert target.content() == message
