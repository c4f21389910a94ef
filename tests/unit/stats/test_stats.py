"""Statistics on invented numbers with known answers."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import invented
import numpy as np
import pytest

from tcpx_mpi.records import Average, Row
from tcpx_mpi.stats import (
    RowSummary,
    at_place,
    average_over_ranks,
    describe,
    in_order,
    iteration_times_ns,
    mean_bus_bandwidth,
    median_interval,
    minimum_samples,
    nearest_rank,
    slowest_rank,
    summarise,
    typical_time_ns,
)
from tcpx_mpi.stats.blocks import independent_count
from tcpx_mpi.stats.series import rank_times_ns
from tcpx_mpi.stats.stop_rule import half_width

pytestmark = pytest.mark.usefixtures("in_one_and_in_pieces")


def summary_of(row: Row, average: int = 1, factor: float = 1.0, divisor: int = 1) -> RowSummary:
    return summarise(row, average, factor, divisor)


def test_a_tail_percentile_needs_as_many_samples_as_stated() -> None:
    assert minimum_samples(50) == 1
    assert minimum_samples(95) == 59
    assert minimum_samples(99) == 299
    assert minimum_samples(99.9) == 2995


@pytest.mark.parametrize(
    ("percentile", "minimum"), [(50.0, 1), (95.0, 59), (99.0, 299), (99.9, 2995)]
)
def test_one_sample_too_few_gives_none_and_enough_give_a_value(
    percentile: float, minimum: int
) -> None:
    values = np.arange(minimum, dtype=np.float64)
    assert nearest_rank(in_order(values[1:]), percentile) is None
    assert nearest_rank(in_order(values), percentile) is not None


@pytest.mark.parametrize(
    ("count", "percentile", "expected"),
    [
        (1, 50, 1),
        (2, 50, 1),
        (3, 50, 2),
        (100, 50, 50),
        (100, 95, 95),
        (101, 95, 96),
        (300, 99, 297),
        (3000, 99.9, 2997),
        (41_000, 99.9, 40_959),
        (2995, 99.9, 2993),
        (100, 0, 1),
    ],
)
def test_nearest_rank_of_one_to_n(count: int, percentile: float, expected: float) -> None:
    values = np.random.default_rng(1).permutation(np.arange(1.0, count + 1))
    assert nearest_rank(in_order(values), percentile) == expected


@pytest.mark.parametrize("percentile", [-1, 100, 101, math.nan])
def test_no_number_of_samples_gives_a_percentile_outside_0_to_100(percentile: float) -> None:
    with pytest.raises(ValueError, match="percentile"):
        nearest_rank(in_order(np.arange(10.0)), percentile)


@pytest.mark.parametrize("count", [59, 300, 2995, 10_007])
@pytest.mark.parametrize("distinct", [3, 10**6])
def test_the_spread_is_what_numpy_says_of_the_same_times(count: int, distinct: int) -> None:
    times = np.random.default_rng([count, distinct]).integers(1, distinct, count).astype(np.int64)
    spread = describe(times)
    ordered = np.sort(times)
    for percentile, found in ((50, spread.p50), (95, spread.p95), (99, spread.p99)):
        if count >= minimum_samples(percentile):
            assert found == ordered[-(-percentile * count // 100) - 1]
    assert (spread.count, spread.min, spread.max) == (count, ordered[0], ordered[-1])
    assert spread.mean == pytest.approx(np.mean(times), rel=1e-14)
    assert spread.stdev == pytest.approx(np.std(times, ddof=1), rel=1e-13)


def test_between_two_places_is_the_line_that_joins_them() -> None:
    times = np.random.default_rng(2).integers(1, 1000, 102).astype(np.float64)
    ordered = in_order(times)
    for percent in (0, 25, 50, 75, 100):
        expected = pytest.approx(np.percentile(times, percent), rel=1e-14)
        assert at_place(ordered, percent / 100 * 101) == expected
    assert (at_place(ordered, -0.5), at_place(ordered, 101.5)) == (times.min(), times.max())


@pytest.mark.parametrize(("average", "over"), [(1, np.mean), (2, np.min), (3, np.max)])
def test_iterations_are_joined_over_ranks_as_the_option_says(
    average: int, over: Callable[..., np.ndarray]
) -> None:
    times = np.random.default_rng(average).integers(1, 10**6, (5, 100))
    times[3, 98] = -1  # "none"
    receives = np.array([False, True, True, True, False])
    row = invented.row(0, world=5, iterations=100, agg=3, receives=receives)
    row.samples["iteration"] = times
    found = iteration_times_ns(row, average, 2)
    assert np.array_equal(found[:98], over(times[1:4, :98], axis=0) / 6)
    assert math.isnan(found[98])
    assert iteration_times_ns(row, 0, 2).tolist() == (times[1] / 6).tolist()
    measured = np.maximum(times, 0).sum(axis=1)
    assert summarise(row, 1, 1.0, 2).elapsed_ns_by_rank.tolist() == measured.tolist()


def test_an_unknown_sample_makes_a_percentile_unknown() -> None:
    values = np.array([1.0, math.nan, 2.0])
    result = nearest_rank(in_order(values), 50)
    assert result is not None
    assert math.isnan(result)


def test_the_spread_of_nothing_is_unknown_and_not_zero() -> None:
    spread = describe(np.empty(0))
    assert spread.count == 0
    figures = (spread.min, spread.max, spread.mean, spread.stdev, spread.cv, spread.p50, spread.p95)
    assert all(math.isnan(figure) for figure in figures)


def test_the_spread_of_one_time_has_no_deviation() -> None:
    spread = describe(np.array([5], dtype=np.int64))
    assert (spread.min, spread.max, spread.mean, spread.p50) == (5, 5, 5, 5)
    assert math.isnan(spread.stdev)
    assert math.isnan(spread.cv)


def test_the_spread_of_two_times() -> None:
    spread = describe(np.array([4.0, 8.0]))
    assert (spread.min, spread.max, spread.mean, spread.p50) == (4, 8, 6, 4)
    assert spread.stdev == pytest.approx(math.sqrt(8))
    assert spread.cv == pytest.approx(math.sqrt(8) / 6)
    assert math.isnan(spread.p95)


@pytest.mark.parametrize(("average", "expected"), [(0, 3.0), (1, 4.0), (2, 2.0), (3, 7.0)])
def test_the_average_option_chooses_rank_0_mean_minimum_or_maximum(
    average: int, expected: float
) -> None:
    assert average_over_ranks(np.array([3.0, 2.0, 7.0]), average) == expected


@pytest.mark.parametrize("average", [1, 2, 3])
def test_an_unknown_time_of_a_receiver_is_not_averaged_away(average: int) -> None:
    assert math.isnan(average_over_ranks(np.array([3.0, math.nan, 7.0]), average))


def test_time_and_bandwidth_of_a_row() -> None:
    row = invented.row(0, world=4)
    summary = summary_of(row, factor=0.75)
    # Rank r takes 1000 + 100 r + (0 .. 19) ns.
    assert summary.time_ns_by_rank.tolist() == [1009.5, 1109.5, 1209.5, 1309.5]
    assert summary.time_ns == 1159.5
    assert summary.algbw == pytest.approx(1024 / 1159.5)
    assert summary.busbw == pytest.approx(0.75 * 1024 / 1159.5)
    assert (summary.t_max_rank, summary.t_max_ns) == (3, 1309.5)
    assert summary.iteration_max_ns().tolist() == [1300.0 + i for i in range(20)]
    assert summary.per_iteration.p50 == 1309
    assert math.isnan(summary.per_iteration.p95)


def test_a_sender_is_never_timed() -> None:
    row = invented.row(0, world=4, receives=np.array([False, False, True, True]))
    summary = summary_of(row, average=0)
    assert np.isnan(summary.time_ns_by_rank[:2]).all()
    assert summary.time_ns == 1209.5, "rank 2 is the lowest that receives"
    row.samples["iteration"][0] = 10**9
    assert summary_of(row, average=3).time_ns == 1309.5
    assert summary_of(row).iteration_max_ns().max() == 1319


def test_a_round_trip_counts_half_and_aggregated_copies_count_each() -> None:
    row = invented.row(0, world=2, agg=4, messages_per_copy=3)
    summary = summary_of(row, divisor=2)
    assert summary.time_ns == (1009.5 + 1109.5) / 2 / 8
    assert summary.t_max_ns == 1109.5 / 8
    assert summary.per_iteration.max == 1119 / 8
    # Half a round trip is timed, and a rank receives in one half of them.
    assert summary.mmsg_per_s == pytest.approx(3 / (2 * summary.time_ns) * 1e3)


def test_skipped_iterations_leave_the_spread_but_not_the_time() -> None:
    row = invented.row(0, world=1)
    summary = summarise(row, 1, 1.0, 1, per_iter_skip=5)
    assert summary.per_iteration.count == 15
    assert summary.per_iteration.min == 1005
    assert summary.time_ns == 1009.5
    assert summary.iteration_max_ns().size == 20


def test_a_row_of_zero_bytes_has_no_bandwidth_and_no_check() -> None:
    summary = summary_of(invented.row(0, size_bytes=0, count=0))
    assert summary.algbw == 0
    assert summary.busbw == 0
    assert summary.wrong is None
    assert not summary.checked


def test_a_row_that_nobody_receives_is_unknown() -> None:
    summary = summary_of(invented.row(0, receives=np.zeros(4, dtype=bool)))
    assert math.isnan(summary.time_ns)
    assert math.isnan(summary.busbw)
    assert (summary.t_max_rank, summary.wrong) == (-1, None)


def test_a_missing_sample_of_a_receiver_makes_the_row_unknown() -> None:
    row = invented.row(0)
    row.samples["iteration"][1, 3] = -1
    summary = summary_of(row)
    assert math.isnan(summary.time_ns)
    assert math.isnan(summary.busbw)
    assert summary.t_max_rank == 1


def test_one_receiver_that_did_not_check_makes_the_row_unchecked() -> None:
    row = invented.row(
        0,
        checked=np.array([True, False, True, True]),
        wrong=np.array([0, -1, 3, 0], dtype=np.int64),
    )
    summary = summary_of(row)
    assert not summary.checked
    assert summary.wrong is None
    assert summary.wrong_found == 3, "what was found is not forgotten"
    assert summary.payload_received_checked * 4 == summary.payload_received * 3


def test_a_sender_need_not_check() -> None:
    row = invented.row(
        0,
        world=2,
        checked=np.array([False, True]),
        receives=np.array([False, True]),
        wrong=np.array([-1, 0], dtype=np.int64),
    )
    assert summary_of(row).wrong == 0


def test_wrong_bytes_are_summed_over_ranks() -> None:
    row = invented.row(0, wrong=np.array([1, 0, 2, 0], dtype=np.int64))
    assert summary_of(row).wrong == 3


def test_network_bytes_are_unknown_if_one_rank_could_not_read_them() -> None:
    row = invented.row(0)
    assert summary_of(row).net_sent == 4 * (1024 * 20 + 100)
    row.net_sent[2] = -1
    summary = summary_of(row)
    assert summary.net_sent is None
    assert summary.net_received is not None


def test_cpu_seconds_a_gigabyte() -> None:
    summary = summary_of(invented.row(0))
    assert summary.cpu_ns == 4 * 15_000
    assert summary.cpu_s_per_gb == pytest.approx(4 * 15e-6 / (4 * 1024 * 20 / 1e9))


def test_unknown_cpu_time_is_nan() -> None:
    row = invented.row(0)
    row.cpu_user_ns[0] = -1
    assert math.isnan(summary_of(row).cpu_ns)


def test_late_starts_are_counted_over_ranks() -> None:
    row = invented.row(0)
    row.late[1:3] = True
    summary = summary_of(row)
    assert (summary.late_starts, summary.starts) == (2, 4)


def test_the_mean_bus_bandwidth_is_over_rows_and_unknown_without_any() -> None:
    summaries = [summary_of(invented.row(index)) for index in range(2)]
    expected = (summaries[0].busbw + summaries[1].busbw) / 2
    assert mean_bus_bandwidth(summaries) == pytest.approx(expected)
    assert math.isnan(mean_bus_bandwidth([]))


def test_network_bandwidth_is_that_of_the_ranks_that_receive() -> None:
    row = invented.row(0, world=2, receives=np.array([False, True]))
    expected = row.net_received[1] / row.samples["iteration"][1].sum()
    assert summary_of(row).net_bw == pytest.approx(expected)


@pytest.mark.parametrize("ended_by", ["ci", "max-time"])
def test_a_row_is_as_wide_as_its_widest_rank(ended_by: str) -> None:
    row = invented.row(0, world=3, iterations=100, ended_by=ended_by)
    row.samples["iteration"][1] = np.random.default_rng(1).permutation(100) + 1000
    row.samples["iteration"][::2] = 1000
    wide = half_width(row.samples["iteration"][1].astype(np.float64))
    assert summary_of(row).half_width == wide > 0
    assert math.isnan(summary_of(dataclasses.replace(row, ended_by="duration")).half_width)


def test_skipped_iterations_leave_the_medians_of_ranks_too() -> None:
    row = invented.row(0, world=1)
    row.samples["iteration"][:, :15] = 9000
    assert summarise(row, 1, 1.0, 1, per_iter_skip=15).median_ns_by_rank[0].estimate == 1017


def test_the_typical_time_of_an_imported_row_is_that_of_its_out_of_place_side() -> None:
    sides = [Average("in_place", 7.0, 1.0, 1.0, 0), Average("out_of_place", 9.0, 1.0, 1.0, 0)]
    row = invented.row(0, averages=sides)
    assert typical_time_ns(row, 1, 1, True) == 9
    row.averages.reverse()
    assert typical_time_ns(row, 1, 1, True) == 9


def test_no_time_at_all_is_a_time_and_is_not_unknown() -> None:
    samples = np.array([0, 4, -1])
    assert rank_times_ns(samples, 2).tolist() == pytest.approx([0, 2, math.nan], nan_ok=True)


def test_the_spread_counts_only_as_many_iterations_as_are_independent() -> None:
    alike = np.repeat(np.random.default_rng(1).permutation(100), 10).astype(np.float64)
    found = describe(alike)
    expected = median_interval(alike, independent=independent_count(alike))
    assert (found.p50_low, found.p50_high) == (expected.low, expected.high)
    assert found.p50_low < median_interval(alike).low


def test_of_equally_slow_ranks_the_lowest_is_named_with_its_worst_row() -> None:
    rows = [invented.row(index) for index in range(4)]
    for row, (rank, time_ns) in zip(
        rows, [(2, 5000), (1, 3000), (1, 4000), (2, 6000)], strict=True
    ):
        row.samples["iteration"][:] = 1000
        row.samples["iteration"][rank] = time_ns
    slowest = slowest_rank([summary_of(row) for row in rows])
    assert slowest is not None
    assert (slowest.rank, slowest.rows, slowest.ratio, slowest.place) == (1, 2, 4, 2)


def test_the_slowest_rank_of_a_run_is_the_one_slowest_most_often() -> None:
    rows = [invented.row(index) for index in range(3)]
    rows[0].samples["iteration"][1] = 5000
    slowest = slowest_rank([summary_of(row) for row in rows])
    assert slowest is not None
    assert (slowest.rank, slowest.rows, slowest.of_rows) == (3, 2, 3)
    assert slowest.ratio == pytest.approx(1309.5 / 1159.5)


def test_there_is_no_slowest_of_one_receiver() -> None:
    row = invented.row(0, receives=np.array([False, True, False, False]))
    assert slowest_rank([summary_of(row)]) is None


def test_a_flush_is_the_mean_over_the_ranks_that_receive_and_unknown_without_any() -> None:
    row = invented.row(0, world=3, iterations=2)
    assert math.isnan(summarise(row, 1, 1.0, 1, 0, 1.0).flush_ns)
    flushes = np.array([[-1, -1], [100, 300], [1000, 200]], np.int64)
    row.samples = {**row.samples, "flush": flushes}
    assert summarise(row, 1, 1.0, 1, 0, 1.0).flush_ns == (200 + 600) / 2
