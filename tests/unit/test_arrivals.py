"""Arrivals: means over blocks, in memory that does not grow, equal on all ranks."""

from __future__ import annotations

import numpy as np
import pytest

from tcpx_mpi.arrivals import MOST_BLOCKS, Arrivals
from tcpx_mpi.batch import batch_of, joined_batch


def test_a_batch_is_cut_into_blocks_and_each_has_its_mean() -> None:
    arrivals = Arrivals(world=3)
    arrivals.add([0, 2], np.array([[n, 10 * n] for n in range(20)], np.int64))
    assert arrivals.counts.tolist() == [3, 3, 3, 3, 2, 2, 2, 2]
    means = arrivals.means_ns
    assert means.shape == (3, 8)
    assert means[0].tolist() == [1, 4, 7, 10, 12.5, 14.5, 16.5, 18.5]
    assert np.isnan(means[1]).all(), "it sends nothing here"
    assert (means[2] == 10 * means[0]).all()


@pytest.mark.parametrize("lengths", [[1] * 100, [2048] * 40, [5, 300, 1, 1, 8000], [3]])
def test_blocks_stay_few_and_lose_nothing(lengths: list[int]) -> None:
    random = np.random.default_rng(1)
    arrivals, everything = Arrivals(world=2), []
    for length in lengths:
        everything.append(random.integers(-1000, 1000, (length, 1)))
        arrivals.add([1], everything[-1])
    assert 0 < len(arrivals.counts) <= MOST_BLOCKS
    assert arrivals.counts.sum() == sum(lengths)
    total = float((arrivals.means_ns[1] * arrivals.counts).sum())
    assert total == pytest.approx(float(np.concatenate(everything).sum()))


def test_a_rank_that_tells_no_sources_apart_has_no_arrivals() -> None:
    arrivals = Arrivals(world=4)
    arrivals.add([], np.zeros((5, 0), np.int64))
    assert arrivals.means_ns.shape == (0, 0)
    assert arrivals.counts.shape == (0,)


def test_an_arrival_counts_from_the_start_of_its_iteration_and_may_come_before_it() -> None:
    stamps = {
        "start": 1000,
        "late": False,
        "end": np.array([1500, 2500], np.int64),
        "send_done": np.full(2, -1, np.int64),
        "receive_done": np.array([1500, 2500], np.int64),
        "sources": [3, 7],
        "source_done": np.array([1200, 1500, 1400, 2500], np.int64),
    }
    batch = batch_of(stamps)  # type: ignore[arg-type]  # a TypedDict
    assert batch.sources == [3, 7]
    assert batch.arrivals.tolist() == [[200, 500], [-100, 1000]]
    joined = joined_batch([batch, batch])
    assert joined.arrivals.tolist() == 2 * [[200, 500], [-100, 1000]]
    assert joined.sources == [3, 7]
