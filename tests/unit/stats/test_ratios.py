"""Ratios of a row to its baselines on invented numbers with known answers."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import invented
import numpy as np
import pytest
from numpy.typing import ArrayLike

from tcpx_mpi.records import Row, SideKey
from tcpx_mpi.stats.ratios import (
    Ratio,
    block_times_ns,
    bootstrap_interval,
    ratio_to,
    ratios,
    strongest,
)

PER_BLOCK = 3
SIZE = 1_000_000


def blocks(times_ns: ArrayLike, **changes: Any) -> Row:
    """A row whose ranks need these times in an iteration of each block: [rank, block] or [block].

    Within a block the iterations differ, and their mean is the block's time.
    """
    means = np.atleast_2d(np.asarray(times_ns, dtype=np.int64))
    ranks, count = means.shape
    row = invented.row(
        0, ranks, iterations=count * PER_BLOCK, size_bytes=changes.pop("size_bytes", SIZE)
    )
    row.samples["iteration"] = np.repeat(means, PER_BLOCK, axis=1) + np.tile([-100, 0, 100], count)
    batches = np.full(count, PER_BLOCK, dtype=np.int64)
    return dataclasses.replace(row, batches=batches, **changes)


def compare(
    ours: Row, theirs: Row, average: int = 1, factor: float = 1.0, divisor: int = 1
) -> Ratio:
    return ratio_to(ours, "raw", theirs, average, factor, divisor)


# --- The ratio and its interval -----------------------------------------------------------------


def test_half_the_time_in_every_pair_is_a_ratio_of_2_without_doubt() -> None:
    found = compare(blocks([1000] * 8), blocks([2000] * 8))
    assert (found.baseline, found.blocks) == ("raw", 8)
    assert (found.ratio, found.ci_low, found.ci_high) == (2.0, 2.0, 2.0)


def test_above_1_the_plugin_is_faster() -> None:
    assert compare(blocks([1000] * 8), blocks([1500] * 8)).ratio == pytest.approx(1.5)
    assert compare(blocks([1500] * 8), blocks([1000] * 8)).ratio == pytest.approx(1 / 1.5)


def test_the_ratio_is_the_median_of_the_pairs_and_not_the_ratio_of_the_medians() -> None:
    ours, theirs = [1000, 2000, 4000], [2000, 6000, 4000]  # pairs 2, 3, 1; medians 2000 and 4000
    found = compare(blocks(ours), blocks(theirs))
    assert found.ratio == 2.0
    assert (found.ours, found.theirs) == (SIZE / 2000, SIZE / 4000)
    theirs[1] = 2400  # pairs 2, 1.2, 1; medians 2000 and 2400
    assert compare(blocks(ours), blocks(theirs)).ratio == 1.2
    even = compare(blocks([1000] * 4), blocks([1000, 2000, 3000, 9000]))
    assert even.ratio == 2.5


def test_one_block_that_was_disturbed_moves_neither_ratio_nor_interval_far() -> None:
    theirs = [2000, 2010, 1990, 2000, 2020, 1980, 2000, 40_000]
    found = compare(blocks([1000] * 8), blocks(theirs))
    assert found.ratio == pytest.approx(2.0, abs=0.01)
    assert 1.98 <= found.ci_low <= found.ratio <= found.ci_high <= 2.02


def test_what_drifts_for_both_alike_is_in_neither_ratio_nor_interval() -> None:
    # A machine that gets ten times slower in the course of the row: pairs do not see it, the
    # blocks of each side alone do.
    drift = np.linspace(1000, 10_000, 12).round(-1).astype(np.int64)
    found = compare(blocks(drift), blocks(2 * drift))
    assert (found.ratio, found.ci_low, found.ci_high) == (2.0, 2.0, 2.0)


def test_the_interval_has_the_ratio_in_it_and_lies_within_the_pairs() -> None:
    theirs = np.random.default_rng(3).integers(1500, 3000, size=16)
    found = compare(blocks([1000] * 16), blocks(theirs))
    assert theirs.min() / 1000 < found.ci_low < found.ratio < found.ci_high < theirs.max() / 1000
    assert found == compare(blocks([1000] * 16), blocks(theirs)), "the same file, the same interval"


@pytest.mark.parametrize(("count", "least"), [(8, 0.88), (12, 0.90), (20, 0.90)])
def test_the_interval_covers_the_true_ratio_about_as_often_as_it_says(
    count: int, least: float
) -> None:
    random, trials = np.random.default_rng(11), 150
    covered = 0
    for _ in range(trials):
        low, high = bootstrap_interval(2.0 * random.lognormal(0.0, 0.05, count))
        covered += low <= 2.0 <= high
    # 95 %, less what so few blocks cost and three standard errors of 150 trials.
    assert covered / trials >= least - 3 * math.sqrt(least * (1 - least) / trials)
    assert covered < trials, "an interval that always covers says nothing"


def test_resampling_a_part_at_a_time_gives_the_same_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = np.random.default_rng(1).lognormal(size=27)
    whole = bootstrap_interval(values)
    for at_a_time in (1, 1000):
        monkeypatch.setattr("tcpx_mpi.stats.ratios._RESAMPLED_AT_A_TIME", at_a_time)
        assert bootstrap_interval(values) == whole


def test_more_blocks_make_the_interval_narrower() -> None:
    random = np.random.default_rng(5)
    few, many = (random.lognormal(0.0, 0.05, count) for count in (8, 200))
    widths = [high - low for low, high in map(bootstrap_interval, (few, many))]
    assert widths[1] < widths[0] / 2


@pytest.mark.parametrize("values", [[], [2.0], [2.0, math.nan, 2.0]])
def test_without_two_known_pairs_there_is_no_interval(values: list[float]) -> None:
    assert all(math.isnan(end) for end in bootstrap_interval(np.array(values, dtype=np.float64)))


def test_one_block_has_a_ratio_and_no_interval() -> None:
    found = compare(blocks([1000]), blocks([2000]))
    assert (found.blocks, found.ratio) == (1, 2.0)
    assert math.isnan(found.ci_low)
    assert math.isnan(found.ci_high)


@pytest.mark.parametrize("broken", ["ours", "theirs"])
@pytest.mark.parametrize("time", [0, -1])
def test_a_block_without_a_known_time_makes_the_ratio_unknown(broken: str, time: int) -> None:
    rows = {"ours": blocks([1000] * 8), "theirs": blocks([2000] * 8)}
    rows[broken].samples["iteration"][:, 3:6] = time
    found = compare(**rows)
    assert all(math.isnan(value) for value in (found.ratio, found.ci_low, found.ci_high))


@pytest.mark.usefixtures("in_one_and_in_pieces")
def test_one_iteration_without_a_time_makes_its_block_unknown() -> None:
    ours = blocks([1000] * 8)
    ours.samples["iteration"][0, 4] = -1  # "none", not a very fast one
    assert math.isnan(compare(ours, blocks([2000] * 8)).ratio)


def test_nothing_measured_is_nothing_known() -> None:
    found = compare(blocks(np.zeros((2, 0))), blocks(np.zeros((2, 0))))
    assert found.blocks == 0
    figures = (found.ratio, found.ci_low, found.ci_high, found.ours, found.theirs, found.idle_share)
    assert all(math.isnan(figure) for figure in figures)
    nobody = {"receives": np.zeros(2, dtype=bool)}
    found = compare(blocks([[1000] * 8] * 2, **nobody), blocks([[2000] * 8] * 2, **nobody))
    assert math.isnan(found.ratio)
    assert found.wrong is None


# --- What a block's time is ---------------------------------------------------------------------


@pytest.mark.usefixtures("in_one_and_in_pieces")
def test_blocks_of_different_lengths_each_have_the_mean_of_their_own_iterations() -> None:
    row = invented.row(0, world=1, iterations=6)
    row.samples["iteration"][:] = [10, 20, 30, 40, 50, 90]
    times = block_times_ns(dataclasses.replace(row, batches=np.array([1, 2, 3])), 1, 1)
    assert times.tolist() == [10, 25, 60]


def test_blocks_that_are_not_all_there_have_no_time() -> None:
    row = invented.row(0, world=1, iterations=6)
    short = dataclasses.replace(row, batches=np.array([3, 4]))
    assert np.isnan(block_times_ns(short, 1, 1)).tolist() == [True, True]


@pytest.mark.parametrize(("average", "expected"), [(0, 1000), (1, 3000), (2, 1000), (3, 5000)])
@pytest.mark.usefixtures("in_one_and_in_pieces")
def test_over_the_ranks_a_block_is_averaged_as_a_row_is(average: int, expected: float) -> None:
    row = blocks([[1000] * 8, [3000] * 8, [5000] * 8])
    assert block_times_ns(row, average, 1).tolist() == [expected] * 8
    found = compare(row, blocks([[6000] * 8] * 3), average)
    assert found.ratio == pytest.approx(6000 / expected)


@pytest.mark.usefixtures("in_one_and_in_pieces")
def test_only_ranks_that_receive_are_timed() -> None:
    receives = np.array([False, True])
    ours = blocks([[10] * 8, [1000] * 8], receives=receives)
    theirs = blocks([[10] * 8, [2000] * 8], receives=receives)
    for average in (0, 1, 2, 3):
        assert compare(ours, theirs, average).ratio == 2.0


def test_messages_posted_together_share_the_time() -> None:
    ours, theirs = (dataclasses.replace(blocks([time] * 8), agg=4) for time in (4000, 8000))
    found = compare(ours, theirs)
    assert (found.ratio, found.ours, found.theirs) == (2.0, SIZE / 1000, SIZE / 2000)


# --- Units --------------------------------------------------------------------------------------


def test_a_bandwidth_is_a_bus_bandwidth_in_gb_per_s() -> None:
    found = compare(blocks([1000] * 8), blocks([2000] * 8), factor=0.75)
    assert (found.metric, found.ours, found.theirs) == ("bus_bw", 750.0, 375.0)


def test_the_metric_of_a_ping_pong_is_half_the_round_trip_in_us() -> None:
    found = compare(blocks([1000] * 8), blocks([4000] * 8), divisor=2)
    assert (found.metric, found.ours, found.theirs, found.ratio) == ("time", 0.5, 2.0, 4.0)


def test_0_bytes_have_a_time_and_no_bandwidth() -> None:
    ours, theirs = (blocks([time] * 8, size_bytes=0) for time in (1000, 3000))
    for row in (ours, theirs):
        row.payload_bytes_sent[:] = 0
    found = compare(ours, dataclasses.replace(theirs, checked=np.array([False])))
    assert (found.metric, found.ours, found.theirs, found.ratio) == ("time", 1.0, 3.0, 3.0)
    assert found.wrong is None
    assert math.isnan(found.net_share)


# --- What a reader must know of the baseline -----------------------------------------------------


def test_wrong_bytes_of_the_peer_are_the_peers() -> None:
    ours = blocks([[1000] * 8] * 2, wrong=np.array([9, 0]))
    theirs = blocks([[2000] * 8] * 2, wrong=np.array([0, 5]))
    assert compare(ours, theirs).wrong == 5
    unchecked = dataclasses.replace(theirs, checked=np.array([True, False]))
    assert compare(ours, unchecked).wrong is None


@pytest.mark.usefixtures("in_one_and_in_pieces")
def test_the_idle_share_is_that_of_the_busiest_rank_over_the_time_of_the_blocks() -> None:
    theirs = blocks([[2000] * 8] * 2, cpu_others_ns=np.array([480, 960]))
    assert compare(blocks([[1000] * 8] * 2), theirs).idle_share == pytest.approx(
        960 / (8 * PER_BLOCK * 2000)
    )
    unknown = dataclasses.replace(theirs, cpu_others_ns=np.array([-1, -1]))
    assert math.isnan(compare(blocks([[1000] * 8] * 2), unknown).idle_share)


def test_the_net_share_says_whether_the_peer_sent_its_payload() -> None:
    theirs = blocks([[2000] * 8] * 2, payload_bytes_sent=np.array([600, 400]))
    for sent, share in (([600, 450], 1.05), ([0, 500], 0.5)):
        row = dataclasses.replace(theirs, net_sent=np.array(sent))
        assert compare(blocks([[1000] * 8] * 2), row).net_share == pytest.approx(share)
    unknown = dataclasses.replace(theirs, net_sent=np.array([600, -1]))
    assert math.isnan(compare(blocks([[1000] * 8] * 2), unknown).net_share)


def test_the_peer_has_its_own_cpu_time_for_a_gigabyte() -> None:
    received = np.array([0, 2_000_000])
    theirs = blocks([[2000] * 8] * 2, cpu_user_ns=np.array([300, 100]), payload_bytes_received=(
        received), cpu_system_ns=np.array([200, 400]))  # fmt: skip
    assert compare(blocks([[1000] * 8] * 2), theirs).cpu_s_per_gb == pytest.approx(1000 / 2e6)
    silent = dataclasses.replace(theirs, payload_bytes_received=0 * received)
    assert math.isnan(compare(blocks([[1000] * 8] * 2), silent).cpu_s_per_gb)


# --- A baseline that was not itself --------------------------------------------------------------

LARGE = 64 << 20


def beside_floor(rate_gbps: float, size: int = LARGE, divisor: int = 1) -> Ratio:
    """Twice as fast as a baseline of this rate, which is known to exceed 29 GB/s."""
    time_ns = round(size / rate_gbps)
    ours, theirs = (blocks([t] * 8, size_bytes=size) for t in (time_ns // 2, time_ns))
    return ratio_to(ours, "nccl", theirs, 1, 1.0, divisor, 29.0)


def test_below_what_a_peer_is_known_to_exceed_there_is_no_ratio() -> None:
    found = beside_floor(28.9)
    assert found.void == "nccl reached 28.9 GB/s where it is known to exceed 29"
    assert [math.isnan(part) for part in (found.ratio, found.ci_low, found.ci_high)] == [True] * 3
    assert found.theirs == pytest.approx(28.9, rel=1e-3)


@pytest.mark.parametrize(
    "found",
    [beside_floor(29.1), beside_floor(20, LARGE - 1), beside_floor(20, divisor=2)],
    ids=["above it", "a smaller message", "a ping-pong"],
)
def test_else_there_is_one(found: Ratio) -> None:
    assert found.void == ""
    assert found.ratio == pytest.approx(2, rel=1e-3)


def test_a_peer_without_a_floor_is_never_void() -> None:
    baselines = {SideKey("nccl"): blocks([10**9] * 8, size_bytes=LARGE)}
    ours = blocks([1000] * 8, size_bytes=LARGE)
    assert ratios(ours, baselines, 1, 1.0, 1)[SideKey("nccl")].void == ""
    assert ratios(ours, baselines, 1, 1.0, 1, {"nccl": 29.0})[SideKey("nccl")].void


def test_nobody_is_the_strongest_where_one_is_void() -> None:
    names = ("nccl", "nccl_default")
    baselines = {SideKey(name): blocks([10**7] * 8, size_bytes=LARGE) for name in names}
    ours = blocks([1000] * 8, size_bytes=LARGE)
    found = ratios(ours, baselines, 1, 1.0, 1, {"nccl": 29.0, "nccl_default": 0.0})
    best = strongest(found, ["nccl", "nccl_default"])
    assert best is not None
    assert best.void


# --- Several baselines ---------------------------------------------------------------------------


def test_every_peer_of_a_row_has_its_ratio_by_name() -> None:
    baselines = {SideKey("raw"): blocks([1500] * 8), SideKey("mpi"): blocks([3000] * 8)}
    found = ratios(blocks([1000] * 8), baselines, 1, 1.0, 1)
    assert {side.name: (ratio.baseline, ratio.ratio) for side, ratio in found.items()} == {
        "raw": ("raw", 1.5),
        "mpi": ("mpi", 3.0),
    }
    assert ratios(blocks([1000] * 8), {}, 1, 1.0, 1) == {}


def test_the_strongest_peer_is_the_one_with_the_smallest_ratio() -> None:
    baselines = {SideKey(name): blocks([time] * 8) for name, time in
             {"raw": 1500, "raw_1": 1200, "raw_4": 1300, "mpi": 900}.items()}  # fmt: skip
    found = ratios(blocks([1000] * 8), baselines, 1, 1.0, 1)
    best = strongest(found, ["raw", "raw_1", "raw_2", "raw_4"])
    assert best is not None
    assert best.baseline == "raw_1"
    raw_1 = SideKey("raw_1")
    unknown = {**found, raw_1: dataclasses.replace(found[raw_1], ratio=math.nan)}
    best = strongest(unknown, ["raw", "raw_1", "raw_4"])
    assert best is not None
    assert best.baseline == "raw_4"
    assert strongest(found, []) is None
    assert strongest({raw_1: unknown[raw_1]}, ["raw_1"]) is None
