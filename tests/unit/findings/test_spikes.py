"""Rows whose mean a few iterations have made: which, when, where, and the row without them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import invented
import numpy as np
import pytest
from judged import run_of, summaries_of

from tcpx_mpi.findings import Finding
from tcpx_mpi.findings.spikes import spikes
from tcpx_mpi.records import GpuRow, ObservedPlacement, Row, SideKey, read_run
from tcpx_mpi.records.gpu import THROTTLES
from tcpx_mpi.report import report_lines
from tcpx_mpi.report.lines import words_of

RING = Path(__file__).resolve().parents[3] / "docs/evidence/ring.h5"
US, MS = 1_000, 1_000_000


def found(*rows: Row) -> list[Finding[str]]:
    run = run_of(rows)
    return spikes(run.header, run.rows, summaries_of(run))


def words(*rows: Row) -> str:
    return "\n".join(f"{each.title}: {words_of(each)}" for each in found(*rows))


def row(times_ns: np.ndarray, index: int = 0) -> Row:
    """A row of so many ranks and iterations, each beginning when the one before has ended."""
    world, iterations = times_ns.shape
    made = invented.row(index, world=world, iterations=iterations)
    made.samples["iteration"] = times_ns.astype(np.int64)
    ended = np.cumsum(made.samples["iteration"], axis=1)
    made.samples["start"] = 10**12 + ended - made.samples["iteration"]
    return made


def steady(iterations: int = 100, world: int = 4) -> np.ndarray:
    """10 us and a little, by the number of the iteration."""
    return np.tile(10 * US + np.arange(iterations) % 7, (world, 1))


def test_a_spike_of_one_rank_is_said_with_the_row_without_it() -> None:
    times = steady()
    times[2, 30] = 3 * MS
    (spike,) = found(row(times))
    mean_us = np.delete(times, 30, axis=1).mean() / US
    assert words_of(spike) == (
        "1 KiB: the mean is 3.99 x the median by 1 of 100 iterations: number 30 took 3 ms on "
        f"rank 2, 0.3 ms into the row; without it time {mean_us:.4g} us, "
        f"busbw {1.024 / mean_us:.3g} GB/s; repeat, or use a larger -n"
    )


def test_one_that_held_everybody_is_of_all_ranks() -> None:
    times = steady()
    times[:, 30] = 3 * MS
    assert "took 3 ms on all ranks" in words(row(times))


def test_several_are_named_in_their_order_and_of_many_the_rest_is_counted() -> None:
    times = steady()
    times[0, [9, 4, 70, 50]] = MS
    text = words(row(times))
    assert "by 4 of 100 iterations: number 4 took 1 ms on rank 0, " in text
    assert text.index("number 4 ") < text.index("number 9 ") < text.index("number 50 ")
    assert "number 70" not in text
    assert ", 1 more; without them time " in text


def test_of_many_the_longest_are_named() -> None:
    times = steady()
    times[0, [4, 9, 50, 70]] = [MS, 3 * MS, 2 * MS, 4 * MS]
    text = words(row(times))
    assert "number 4 " not in text
    assert text.index("number 9 ") < text.index("number 50 ") < text.index("number 70 ")


@pytest.mark.parametrize(("place", "skip"), [(30, 5), (2, 5), (0, 1), (30, 99), (30, 200)])
def test_a_spike_is_of_all_iterations_whatever_the_percentiles_leave_out(
    place: int, skip: int
) -> None:
    """As the row's time is; the first ones are slow, and no spikes."""
    times = steady()
    times[:, :5] = 40 * US
    times[2, place] = 3 * MS
    header = invented.run_header()
    header = dataclasses.replace(header, plan=dataclasses.replace(header.plan, per_iter_skip=skip))
    run = run_of([row(times)], header)
    (spike,) = spikes(run.header, run.rows, summaries_of(run))
    most, mean_us = times.max(axis=0), np.delete(times, place, axis=1).mean() / US
    text = words_of(spike)
    assert f"the mean is {most.mean() / np.median(most):.3g} x the median by 1 of 100 " in text
    assert f"number {place} took 3 ms on rank 2" in text
    assert f"without it time {mean_us:.4g} us" in text


def test_those_that_stand_far_above_others_that_are_long_are_told() -> None:
    """As where each block of a run beside a peer begins with a cold iteration."""
    times = steady()
    times[:, ::10] = 70 * US
    times[0, [20, 60]] = 4 * MS
    assert ": the mean is " in (text := words(row(times)))
    assert "by 2 of 100 iterations: number 20 took 4 ms on rank 0, " in text


def broad() -> np.ndarray:
    """A mean far above the median, by a tenth of the iterations."""
    times = steady()
    times[:, ::10] = MS
    return times


def tail() -> np.ndarray:
    return np.exp(np.random.default_rng(1).normal(10, 1.2, (1, 1000)))


def two_levels() -> np.ndarray:
    """Without its spike the mean is as far above the median."""
    times = steady()
    times[:, :45] = 45 * US
    times[0, 30] = MS
    return times


def small() -> np.ndarray:
    times = steady()
    times[0, 30] = 400 * US  # the mean is 1.39 x the median
    return times


def unknown() -> np.ndarray:
    times = steady()
    times[0, 30], times[1, 50] = MS * 9, -1
    return times


@pytest.mark.parametrize("make", [steady, broad, tail, two_levels, small, unknown])
def test_what_is_usual_and_what_is_unknown_is_no_spike(make: Callable[[], np.ndarray]) -> None:
    assert words(row(make())) == ""


def test_spikes_of_many_rows_are_counted() -> None:
    times = steady()
    times[0, 30] = 9 * MS
    text = words(*(row(times, index) for index in range(6)))
    assert text.count(" took 9 ms on rank 0") == 4
    assert "Spike: in 2 more rows a few iterations make the mean" in text


def test_of_rows_of_one_size_a_spike_says_what_tells_its_row_from_the_others() -> None:
    quiet, times = row(steady(), 0), steady()
    times[0, 30] = 9 * MS
    again = dataclasses.replace(row(times, 1), size_bytes=quiet.size_bytes)
    assert words(quiet, again).startswith("Spike: 1 KiB (row 2): the mean is ")
    other = dataclasses.replace(again, redop="max", root=2)
    assert words(quiet, other).startswith("Spike: 1 KiB max root 2: the mean is ")


@pytest.mark.parametrize(("others", "told"), [(3, False), (4, True)])
def test_a_time_without_its_spikes_is_of_more_than_a_few(others: int, told: bool) -> None:
    text = words(row(np.concatenate([steady()[:, :others], np.full((4, 1), 9 * MS)], axis=1)))
    assert ("; without it time " in text) is told
    assert ("; 3 others are too few to be the usual ones" in text) is not told


def test_the_part_in_place_has_its_own() -> None:
    times = steady()
    times[0, 30] = 9 * MS
    made = row(steady())
    made.sides[SideKey(place="in_place")] = row(times)
    assert words(made).startswith("Spike: 1 KiB in place: the mean is ")


def test_the_recorded_ring_says_which_iteration_made_its_second_row() -> None:
    lines = [line for line in report_lines(read_run(str(RING))) if line.startswith("# Spike ")]
    assert len(lines) == 1
    for words in ("16 KiB: ", "1 of 64 iterations: number 40 took 5.99 ms on all ranks, 71 ms",
                  "without it time 14.57 us, busbw 1.12 GB/s"):  # fmt: skip
        assert words in lines[0]


@pytest.mark.parametrize(
    ("ranks", "pattern", "who"),
    [
        ([2, 3], "ring", "node host1"),
        ([0, 2], "pingpong", "the link between rank 0 and rank 2"),
        ([1, 2], "ring", "ranks 1, 2"),
        ([0, 1, 3], "ring", "ranks 0, 1, 3"),
        ([0, 1, 2, 3], "ring", "all ranks"),
    ],
)
def test_a_spike_is_of_a_node_a_link_or_of_all(ranks: list[int], pattern: str, who: str) -> None:
    times = steady()
    times[ranks, 30] = 3 * MS
    run = run_of([row(times)], invented.run_header(pattern=pattern))
    (spike,) = spikes(run.header, run.rows, summaries_of(run))
    assert f"number 30 took 3 ms on {who}, 0.3 ms into the row" in words_of(spike)
    assert "in this row" not in words_of(spike)


def test_what_coincided_is_said_of_the_ranks_that_it_held() -> None:
    times = steady()
    times[2, 30] = 3 * MS
    made = row(times)
    made.tcp_retransmits[:] = [9, 9, 2, 9]
    made.proof = [ObservedPlacement(driver_preemptions=count) for count in (9, 9, 3, 9)]
    clock = invented.row_clock()
    fits = [dataclasses.replace(fit, moved_ns=5) for fit in clock.fits]
    made.clock = dataclasses.replace(clock, fits=fits)
    slow = next(bit for bit in THROTTLES)
    made.gpu = [GpuRow(throttle_reasons_after=slow * (rank == 2)) for rank in range(4)]
    assert (
        words(made)
        .partition("; in this row ")[2]
        .startswith(
            "2 retransmits, rank 2 left its CPU 3 times, a clock was stepped, "
            "the GPU of rank 2 was throttled; repeat"
        )
    )
