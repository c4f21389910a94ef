"""A connection within one process, with memory on both ends and messages between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np

from tcpx_mpi.conform.bench import Bench, Pair, Receive, Send
from tcpx_mpi.conform.memory import PAGE
from tcpx_mpi.conform.outcome import Broken

#: What memory has where nothing has arrived.
POISON = 0xEE
#: What NCCL has in flight on a comm that it does not share.
STEPS = 8
#: Receives of a group that are tried, where there may be more, and the tag of the first.
_MOST_GROUPED, FIRST_TAG = 8, 50


def most_grouped(bench: Bench) -> int:
    """The number of receives of a group that are tried."""
    return min(bench.properties.max_recvs, _MOST_GROUPED)


class Loopback:
    """A connection with registered memory on both ends."""

    def __init__(self, bench: Bench, size: int, pair: Pair | None = None, seed: int = 1) -> None:
        self.bench, self.pair = bench, pair or bench.connect()
        self.source, self.target = bench.area(size).fill(seed), bench.area(size).poison(POISON)
        self.here = bench.register(self.pair.send, self.source)
        self.there = bench.register(self.pair.receive, self.target)

    def send(self, size: int, offset: int = 0, tag: int = 0) -> Send:
        return self.bench.send(self.pair, self.source, size, self.here, offset, tag)

    def receive(self, size: int, offset: int = 0, tag: int = 0) -> Receive:
        return self.bench.receive(self.pair, self.target, size, self.there, offset, tag)

    def receive_group(self, most: int) -> Receive:
        """`most` receives of a page each in one request, one behind the other."""
        where = [self.target.address + at * PAGE for at in range(most)]
        tags = [FIRST_TAG + at for at in range(most)]
        request = self.bench.good(
            "irecv", self.pair.receive, where, [PAGE] * most, tags, [self.there] * most
        )
        if request == 0:
            raise Broken("a group of receives on an idle comm was busy")
        self.pair.receives += 1
        parts = tuple((at, PAGE, self.there) for at in where)
        return Receive(
            self.pair, request, self.target, 0, PAGE, self.pair.receives - 1, most, parts
        )

    def close(self) -> None:
        self.bench.good("dereg_mr", self.pair.send, self.here)
        self.bench.good("dereg_mr", self.pair.receive, self.there)
        self.bench.close(self.pair)

    def expect(self, size: int, offset: int = 0) -> None:
        """The bytes of this place, and no byte behind them."""
        got = self.target.bytes
        wrong = np.flatnonzero(
            got[offset : offset + size] != self.source.bytes[offset : offset + size]
        )
        if wrong.size:
            raise Broken(
                f"{wrong.size} of {size} bytes of a message are wrong, the first is {wrong[0]}"
            )

    def expect_alone(self, size: int) -> None:
        """The bytes at the beginning, and no byte behind them."""
        self.expect(size)
        if (self.target.bytes[size:] != POISON).any():
            raise Broken(f"bytes behind a message of {size} bytes were written")

    def expect_neighbours(self, size: int, offset: int) -> None:
        """No byte before this place, nor behind it."""
        got = self.target.bytes
        before, behind = got[:offset] != POISON, got[offset + size :] != POISON
        for count, where in ((before.sum(), "before"), (behind.sum(), "behind")):
            if count:
                raise Broken(f"{count} bytes {where} a message of {size} at {offset} were written")


def one_after_another(sizes: Iterable[int]) -> tuple[list[tuple[int, int]], int]:
    """(offset, size) of messages that lie so in one area, and the size of the area."""
    places, offset = [], 0
    for size in sizes:
        places.append((offset, size))
        offset += size
    return places, offset


class Flow:
    """Messages of these sizes over one connection, at most `window` at each end at once."""

    def __init__(self, bench: Bench, window: int, sizes: Iterable[int], seed: int = 1) -> None:
        self.bench, self._window = bench, window
        places, whole = one_after_another(sizes)
        self.loopback = Loopback(bench, whole, seed=seed)
        self._whole = whole
        self._waiting = {"receive": deque(places), "send": deque(places)}
        self._posted: dict[str, deque[Send | Receive]] = {"receive": deque(), "send": deque()}

    def step(self) -> bool:
        """Posts what may be posted and asks for what is posted; whether all of it is done."""
        loopback, bench = self.loopback, self.bench
        for end, waiting in self._waiting.items():
            posted = self._posted[end]
            while waiting and len(posted) < self._window:
                offset, size = waiting[0]
                found: Send | Receive | None
                if end == "send":
                    found = bench.try_send(
                        loopback.pair, loopback.source, size, loopback.here, offset
                    )
                else:
                    found = bench.try_receive(
                        loopback.pair, loopback.target, size, loopback.there, offset
                    )
                if found is None:  # busy
                    break
                posted.append(found)
                waiting.popleft()
            while posted and bench.done(posted[0]) is not None:
                posted.popleft()
        return not any(self._waiting.values()) and not any(self._posted.values())

    def finish(self) -> None:
        """Moves all that is left; every byte is looked at, and the connection closed."""
        self.bench.until(self.step, "not every request was done")
        self.loopback.expect_alone(self._whole)
        self.loopback.close()


def receiving(bench: Bench, most: int) -> tuple[Loopback, list[Receive]]:
    """A connection with so many receives of a page, or with as many as it takes.

    How many it must take, and how it says that it is full, is a clause of its own.
    """
    loopback = Loopback(bench, most * PAGE)
    taken = [loopback.receive(PAGE)]
    while len(taken) < most:
        at = len(taken) * PAGE
        found = bench.one_more(loopback.pair, loopback.target, PAGE, loopback.there, at)
        if found is None:  # this one may be in error
            return receiving(bench, len(taken))
        taken.append(found)
    return loopback, taken


def window_of(bench: Bench) -> int:
    """The number of requests that a comm takes, if asked for as many as NCCL has in flight."""
    loopback, receives = receiving(bench, STEPS)
    sends = [loopback.send(PAGE, at * PAGE) for at in range(len(receives))]
    bench.finish(*receives, *sends)
    loopback.close()
    return len(receives)
