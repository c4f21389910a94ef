"""Arrivals: of single iterations, in memory that does not grow, the same on all ranks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tcpx_mpi.stragglers.arrivals import MOST_BLOCKS, NOT_SENT, Arrivals
from tcpx_mpi.transport.samples import batch_of, joined_batch


def stamps(iterations: np.ndarray) -> np.ndarray:
    """What two sources' arrivals say: the iteration."""
    return np.stack([iterations, -iterations], axis=1)


def taken(arrivals: Arrivals) -> list[int]:
    """The iterations of which arrivals are kept."""
    of_one, of_other = arrivals.arrival_ns[[0, 2]]
    assert (of_one == -of_other).all()
    found: list[int] = of_one.astype(int).tolist()
    return found


def test_of_a_short_row_every_iteration_is_kept() -> None:
    arrivals = Arrivals(world=3)
    for first in range(0, MOST_BLOCKS, 64):
        arrivals.add([0, 2], stamps(np.arange(first, first + 64)))
    assert arrivals.counts.tolist() == [1] * MOST_BLOCKS
    assert taken(arrivals) == list(range(MOST_BLOCKS))
    assert np.isnan(arrivals.arrival_ns[1]).all(), "it sends nothing here"


@pytest.mark.parametrize(
    "lengths", [[1] * 1500, [2048] * 40, [5, 300, 1, 1, 8000], [100_003], [700, 1 << 20, 3]]
)
def test_of_a_long_row_one_iteration_of_each_block_is_kept(lengths: list[int]) -> None:
    arrivals, total = Arrivals(world=3), 0
    for length in lengths:
        arrivals.add([0, 2], stamps(np.arange(total, total + length)))
        total += length
        counts, found = arrivals.counts, taken(arrivals)
        assert counts.sum() == total
        assert MOST_BLOCKS // 2 <= len(counts) <= MOST_BLOCKS or total < MOST_BLOCKS
        # All blocks are as long, but the last one.
        assert set(counts[:-1]) <= {counts[0]}
        firsts = np.cumsum(counts) - counts
        assert ((firsts <= found) & (found < firsts + counts)).all()


def test_how_a_row_is_cut_into_batches_does_not_matter() -> None:
    """So ranks keep the same iterations, and so does a row of one batch."""
    in_one, in_many = Arrivals(world=3), Arrivals(world=3)
    in_one.add([0, 2], stamps(np.arange(30_000)))
    for part in np.array_split(np.arange(30_000), [1, 2, 513, 1024, 1025, 20_000, 29_999]):
        in_many.add([0, 2], stamps(part))
    assert taken(in_one) == taken(in_many)
    assert in_one.counts.tolist() == in_many.counts.tolist()


@pytest.mark.parametrize("period", [2, 3, 4, 8, 16, 60])
def test_what_comes_every_few_iterations_is_kept_as_often_as_it_comes(period: int) -> None:
    """Slots, windows and rings of requests come round in powers of two, as blocks do."""
    arrivals = Arrivals(world=3)
    arrivals.add([0, 2], stamps(np.arange(1 << 17)))
    often = np.bincount(np.array(taken(arrivals)) % period, minlength=period) / MOST_BLOCKS
    assert often == pytest.approx(np.full(period, 1 / period), abs=0.03)


@pytest.mark.parametrize(
    ("world", "most"), [(2, 4096), (16, 4096), (32, 1024), (128, 64), (500, 64)]
)
def test_of_many_ranks_each_keeps_less(world: int, most: int) -> None:
    arrivals = Arrivals(world)
    arrivals.add([0], np.zeros((1 << 12, 1), np.int64))
    assert arrivals.arrival_ns.shape == (world, most)


def test_a_rank_that_tells_no_sources_apart_has_no_arrivals() -> None:
    arrivals = Arrivals(world=4)
    arrivals.add([], np.zeros((5, 0), np.int64))
    assert arrivals.arrival_ns.shape == (0, 0)
    assert arrivals.counts.shape == (0,)


def test_what_was_not_sent_in_an_iteration_has_no_arrival_and_batches_may_differ() -> None:
    arrivals = Arrivals(world=3)
    arrivals.add([], np.zeros((1, 0), np.int64))
    arrivals.add([0, 2], np.array([[5, NOT_SENT], [6, 7]]))
    arrivals.add([2], np.array([[8]]))
    nan = np.nan
    expected = [[nan, 5, 6, nan], [nan] * 4, [nan, nan, 7, 8]]
    assert np.array_equal(arrivals.arrival_ns, expected, equal_nan=True)
    assert arrivals.counts.tolist() == [1] * 4


def test_an_arrival_counts_from_the_start_of_its_iteration_and_may_come_before_it() -> None:
    stamps: Any = SimpleNamespace(
        start=1000,
        late=False,
        end=np.array([1500, 2500], np.int64),
        send_done=np.full(2, -1, np.int64),
        receive_done=np.array([1500, 2500], np.int64),
        sources=[3, 7],
        source_lanes=[],
        source_done=np.array([1200, 1500, 1400, 2500], np.int64),
        trace=np.zeros(0, np.int64),
        flush_begun=np.zeros(0, np.int64),
    )
    batch = batch_of(stamps)
    assert batch.sources == [3, 7]
    assert batch.arrivals.tolist() == [[200, 500], [-100, 1000]]
    joined = joined_batch([batch, batch])
    assert joined.arrivals.tolist() == 2 * [[200, 500], [-100, 1000]]
    assert joined.sources == [3, 7]
