"""Both ends of a connection of any plugin: blocks of memory, and requests in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from any_net import AnyNet
from net_v7 import SUCCESS, Memory, until


class End:
    """One end of a connection with one registered block, and its requests in order."""

    def __init__(self, net: AnyNet, comm: int, memory: Memory, sends: bool) -> None:
        self.net, self.comm, self.memory, self.sends = net, comm, memory, sends
        self.mhandle = net.registered(comm, memory)
        self.pending: deque[int] = deque()
        self.sizes: list[int] = []  # as test wrote them

    def try_post(self, offset: int, size: int) -> tuple[int, int | None]:
        """The code and the request; one that was taken is pending."""
        act = self.net.isend if self.sends else self.net.irecv
        code, request = act(self.comm, self.memory.address + offset, size, self.mhandle)
        if code == SUCCESS and request is not None:
            self.pending.append(request)
        return code, request

    def post(self, offset: int, size: int) -> bool:
        """Whether it was taken; an error is a failure."""
        code, request = self.try_post(offset, size)
        assert code == SUCCESS, f"a post returned {code}"
        return request is not None

    def test_head(self) -> bool:
        """Tests the oldest request; when it is done, frees its slot."""
        code, done, size = self.net.test(self.pending[0])
        assert code == SUCCESS, f"test returned {code}"
        if done:
            request = self.pending.popleft()
            self.sizes.append(size)
            if not self.sends and self.net.consumes:
                assert self.net.consumed(self.comm, request) == SUCCESS
        return done

    def drained(self) -> bool:
        """Tests what is pending; whether nothing is."""
        while self.pending and self.test_head():
            pass
        return not self.pending

    def code_of_head(self) -> int:
        """Tests the oldest request, which must not be done, until there is an error."""
        codes = [SUCCESS]

        def failed() -> bool:
            code, done, _ = self.net.test(self.pending[0])
            assert not (code == SUCCESS and done), "the request finished"
            codes.append(code)
            return code != SUCCESS

        until(failed, "an error")
        return codes[-1]

    def close(self) -> None:
        assert self.net.table.dereg_mr(self.comm, self.mhandle) == SUCCESS
        close = self.net.table.close_send if self.sends else self.net.table.close_recv
        assert close(self.comm) == SUCCESS


def ends_of(net: AnyNet, source: Memory, target: Memory) -> tuple[End, End]:
    send, recv = net.connected()
    return End(net, send, source, True), End(net, recv, target, False)


def one_after_another(sizes: Iterable[int]) -> tuple[list[tuple[int, int]], int]:
    """(offset, size) of messages that lie so in one block, and the size of the block."""
    pieces, offset = [], 0
    for size in sizes:
        pieces.append((offset, size))
        offset += size
    return pieces, offset


class Transfer:
    """Messages between both ends, step by step, their windows as full as they may be."""

    def __init__(self, sender: End, receiver: End, pieces: list[tuple[int, int]]) -> None:
        self._ends = (sender, receiver)
        self._todo = {id(end): deque(pieces) for end in self._ends}

    def step(self) -> bool:
        """Whether all is done."""
        for end in self._ends:
            todo = self._todo[id(end)]
            while todo and len(end.pending) < end.net.window and end.post(*todo[0]):
                todo.popleft()
            end.drained()
        return not any(self._todo.values()) and not any(end.pending for end in self._ends)


def transfer(sender: End, receiver: End, pieces: list[tuple[int, int]]) -> None:
    until(Transfer(sender, receiver, pieces).step, "the transfer", seconds=100)


def lost(subject: dict[str, Any], code: int) -> bool:
    """Whether a code is one of a lost peer."""
    return code == subject.get("lost", code) and code != SUCCESS
