"""Routing of tokens to ranks, drawn by a seed: how many of a rank's tokens each rank gets. Pure.

An expert has a share: the probability that a token goes to it. All shares add up to top-k, and none
is above 1. The experts lie on a line, each as long as its share, those of a rank beside each other;
a token draws a point u of the first unit and goes to the experts at u, u + 1, ... So each token has
top-k experts, no two alike, each as likely as its share says (systematic sampling, Madow 1949). A
rank gets a token once, however many of its experts that goes to: what two of them need is one copy.

All is made of whole numbers, so that any machine and version draws the same.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.arrays import Int64s

#: The length of a share of 1.
_ONE = 1 << 32
#: So much more likely than others that these get next to nothing: rounded down, nothing.
_HOT = 1 << 40
#: One iteration of so many is a burst.
_BURST_OF = 8
#: What is drawn: who is popular in the run, what an iteration is like, points of tokens.
_OF_RUN, _OF_TURN, _OF_TOKENS = range(3)


@dataclass(frozen=True)
class Routing:
    """The experts of each rank's tokens in each iteration ("turn") of a row."""

    tokens: int
    experts: int
    topk: int
    skew: str
    seed: int
    world: int

    def shares(self, turn: int) -> list[int]:
        """The shares of each rank's experts together, in 2^-32."""
        of_experts = shares_of(self._weights(turn), self.topk)
        each = self.experts // self.world
        return [sum(of_experts[rank * each : (rank + 1) * each]) for rank in range(self.world)]

    def counts(self, turn: int) -> Int64s:
        """int64[source, target]: tokens of one rank that another one gets, itself included."""
        edges = np.cumsum([0, *self.shares(turn)])
        return np.array(
            [
                _between(self._points(turn, source), edges[:-1], edges[1:])
                for source in range(self.world)
            ],
            dtype=np.int64,
        )

    def _points(self, turn: int, source: int) -> NDArray[np.uint64]:
        """The points of the tokens of a rank, sorted."""
        tokens = self.tokens
        # One rank has all of them, so that no iteration is empty.
        if self.skew == "ragged" and source != turn % self.world:
            tokens = self._drawn(_OF_TURN, turn, source)[0] % (tokens + 1)
        drawn = _raw([self.seed, _OF_TOKENS, turn, source], tokens) >> np.uint64(32)
        return np.sort(drawn)

    def _weights(self, turn: int) -> list[int]:
        """The weight of each expert beside the others."""
        count, ranks = self.experts, range(self.world)
        if self.skew == "zipf":
            weights = [0] * count
            for place, expert in enumerate(_order(self._drawn(_OF_RUN, count=count))):
                weights[expert] = _HOT // (place + 1)
            return weights
        if self.skew == "hot-expert":
            hot = self._drawn(_OF_RUN)[0] % count
            return [_HOT * self.topk if expert == hot else 1 << 20 for expert in range(count)]
        if self.skew == "hot-rank":
            return self._of_ranks({self._drawn(_OF_RUN)[0] % self.world}, 1)
        if self.skew == "rotating":
            return self._of_ranks({turn % self.world}, 1)
        if self.skew == "bursts":
            burst, rank = self._drawn(_OF_TURN, turn, count=2)
            return self._of_ranks({rank % self.world} if burst % _BURST_OF == 0 else ranks, 1)
        if self.skew == "idle":
            fewest = -(-self.topk * self.world // self.experts)
            active = max(-(-self.world // 2), fewest)
            return self._of_ranks(_order(self._drawn(_OF_TURN, turn, count=self.world))[:active], 0)
        return [1] * count

    def _of_ranks(self, chosen: Sequence[int] | set[int] | range, other: int) -> list[int]:
        each = self.experts // self.world
        ranks = set(chosen)
        return [_HOT if expert // each in ranks else other for expert in range(self.experts)]

    def _drawn(self, *where: int, count: int = 1) -> list[int]:
        drawn: list[int] = _raw([self.seed, *where, 1 << 32], count).tolist()
        return drawn


@functools.lru_cache(maxsize=4)
def counts_of(routing: Routing, turns: int) -> Int64s:
    """int64[turn, source, target] of a whole row, made ahead."""
    return np.stack([routing.counts(turn) for turn in range(turns)])


@functools.lru_cache(maxsize=4096)
def travels(routing: Routing, turn: int) -> tuple[bool, ...]:
    """By rank: whether any token may go there. However many tokens there are, and whose."""
    return tuple(share > 0 for share in routing.shares(turn))


def shares_of(weights: Sequence[int], topk: int) -> list[int]:
    """Shares in proportion to weights, each at most 1 (2^32), `topk` together."""
    shares = [0] * len(weights)
    open_places = [place for place, weight in enumerate(weights) if weight]
    left = topk * _ONE
    while open_places:
        total = sum(weights[place] for place in open_places)
        full = [place for place in open_places if weights[place] * left >= _ONE * total]
        if not full:
            break
        for place in full:
            shares[place] = _ONE
        left -= _ONE * len(full)
        open_places = [place for place in open_places if not shares[place]]
    for place in open_places:
        shares[place] = weights[place] * left // total
    # What was rounded off goes to the heaviest, which have room for it.
    for place in sorted(open_places, key=lambda place: -weights[place]):
        lacking = topk * _ONE - sum(shares)
        if lacking <= 0:
            break
        shares[place] += min(lacking, _ONE - shares[place])
    return shares


def _between(points: NDArray[np.uint64], begins: Int64s, ends: Int64s) -> Int64s:
    """The number of tokens with one of their points in each of these stretches of the line."""
    first = begins % _ONE
    last = first + np.minimum(ends - begins, _ONE)

    def below(edges: Int64s) -> Int64s:
        return np.searchsorted(points, np.clip(edges, 0, _ONE).astype(np.uint64))

    # Beyond the first unit it goes on at the beginning.
    return below(last) - below(first) + below(last - _ONE)


def _order(drawn: Sequence[int]) -> list[int]:
    """A permutation by what was drawn for each place."""
    return sorted(range(len(drawn)), key=lambda place: (drawn[place], place))


def _raw(seed: Sequence[int], count: int) -> NDArray[np.uint64]:
    """64 random bits each; the bits of a generator stay as they are, its distributions need not."""
    # Not before it is wanted: it takes a fiftieth of a rank's start.
    from numpy.random import PCG64, SeedSequence

    drawn: NDArray[np.uint64] = PCG64(SeedSequence(seed)).random_raw(count)
    return drawn
