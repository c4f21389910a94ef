"""A connection within one process, with memory on both ends and messages between them."""

from __future__ import annotations

import numpy as np

from tcpx_mpi.conform.bench import Bench, Pair, Receive, Send
from tcpx_mpi.conform.memory import PAGE
from tcpx_mpi.conform.outcome import Broken

#: What memory has where nothing has arrived.
POISON = 0xEE


class Both:
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


def receiving(bench: Bench, most: int) -> tuple[Both, list[Receive]]:
    """A connection with so many receives of a page, or with as many as it takes.

    How many it must take, and how it says that it is full, is a clause of its own.
    """
    both = Both(bench, most * PAGE)
    taken = [both.receive(PAGE)]
    while len(taken) < most:
        at = len(taken) * PAGE
        found = bench.one_more(both.pair, both.target, PAGE, both.there, at)
        if found is None:  # this one may be in error
            return receiving(bench, len(taken))
        taken.append(found)
    return both, taken
