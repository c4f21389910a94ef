"""How a row goes on and why it ends: the same on every rank, told the same looks."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from tcpx_mpi.config.settings import load_settings
from tcpx_mpi.errors import UsageError
from tcpx_mpi.machine.topology import read_host
from tcpx_mpi.run.plan import RowPlanner
from tcpx_mpi.run.stopping import ENDINGS, Look, StoppingRule, Until
from tcpx_mpi.transport.slots import RowPlan, plan_row
from tcpx_mpi.workload import workload_of

MS = 1_000_000
STEADY = np.full(10_000, 5.0)


def until(**changes: float) -> Until:
    asked = {"ci": 0.0, "max_time_ns": 60_000 * MS, "duration_ns": 0, "most_iterations": 10**6}
    return Until(**{**asked, **changes})  # type: ignore[arg-type]  # by name


def plan(batch: int = 20, slots: int = 4096) -> RowPlan:
    return RowPlan(slots, slots, (batch,), ())


def ran(rule: StoppingRule, batch_ns: int, times: np.ndarray, elapsed_ns: int = 0) -> list[int]:
    """The batches of a row of one rank whose iterations take `times`, at most 100 of them."""
    batches: list[int] = []
    while len(batches) < 100 and (count := rule.next_batch()):
        batches.append(count)
        if rule.open_ended:
            measured_ns = batch_ns * len(batches)
            own = rule.own_look(measured_ns, elapsed_ns or measured_ns, lambda: times[: rule.done])
            rule.take([own])
    return batches


def test_a_planned_row_has_its_batches_and_nobody_looks() -> None:
    rule = StoppingRule(plan_row(8, 20, 0), None)
    assert not rule.open_ended
    assert ran(rule, MS, STEADY) == [8, 8, 4]
    assert (rule.done, rule.ended_by) == (20, "iterations")


def test_narrow_times_end_a_row_at_the_first_look() -> None:
    rule = StoppingRule(plan(), until(ci=0.05))
    assert ran(rule, MS, STEADY) == [20, 40]
    assert (rule.done, rule.ended_by) == (60, "ci")


def test_wide_times_go_on_until_they_are_narrow() -> None:
    random = np.random.default_rng(1)
    times = np.exp(random.normal(0, 0.5, 10_000))
    rule = StoppingRule(plan(), until(ci=0.05))
    ran(rule, MS, times)
    assert rule.ended_by == "ci"
    assert 300 < rule.done < 5000


def test_what_does_not_become_narrow_ends_by_time_and_says_so() -> None:
    times = np.random.default_rng(2).exponential(1, 10**6)
    rule = StoppingRule(plan(), until(ci=0.0001, max_time_ns=500 * MS))
    ran(rule, 100 * MS, times)
    assert (rule.done, rule.ended_by) == (100, "max-time")


def test_one_wide_rank_keeps_all_ranks_going() -> None:
    rule = StoppingRule(plan(), until(ci=0.05))
    rule.next_batch()
    rule.next_batch()
    rule.take([Look(MS, MS, 0.01), Look(MS, MS, 0.06), Look(MS, MS, 0.0)])
    assert rule.next_batch() > 0
    rule.take([Look(MS, MS, 0.01), Look(MS, MS, 0.05), Look(MS, MS, 0.0)])
    assert (rule.next_batch(), rule.ended_by) == (0, "ci")


def test_an_unknown_width_is_not_narrow() -> None:
    rule = StoppingRule(plan(), until(ci=0.05))
    times = np.append(math.nan, np.full(59, 5.0))
    rule.next_batch()
    rule.next_batch()
    rule.take([rule.own_look(MS, MS, lambda: np.resize(times, rule.done))])
    assert rule.next_batch() > 0


def test_a_rank_that_receives_nothing_is_no_obstacle() -> None:
    rule = StoppingRule(plan(40), until(ci=0.05))
    rule.next_batch()
    look = rule.own_look(MS, MS, lambda: np.empty(0))
    assert look.half_width == 0


def test_a_duration_counts_the_time_in_batches_of_the_slowest_rank() -> None:
    rule = StoppingRule(plan(), until(duration_ns=250 * MS))
    for measured in (100, 200):
        assert rule.next_batch() == 20
        rule.take([Look(measured * MS, 10_000 * MS, None), Look(MS, 10_000 * MS, None)])
    assert rule.next_batch() == 20
    rule.take([Look(MS, MS, None), Look(250 * MS, MS, None)])
    assert (rule.next_batch(), rule.ended_by) == (0, "duration")


def test_a_duration_is_not_cut_by_the_time_that_ci_has() -> None:
    rule = StoppingRule(plan(), until(max_time_ns=MS, duration_ns=10 * MS))
    rule.next_batch()
    rule.take([Look(MS, 2 * MS, None)])
    assert rule.next_batch() > 0


def test_the_time_of_any_rank_is_up_for_all() -> None:
    rule = StoppingRule(plan(), until(ci=0.05, max_time_ns=60 * MS))
    rule.next_batch()
    rule.take([Look(MS, MS, None), Look(MS, 60 * MS, None)])
    assert (rule.next_batch(), rule.ended_by) == (0, "max-time")


def test_short_batches_grow_as_far_as_there_are_slots() -> None:
    rule = StoppingRule(plan(20, 100), until(duration_ns=10 * MS))
    assert ran(rule, MS, STEADY) == [20, 40, 80, *[100] * 7]


def test_a_row_ends_when_its_samples_fill_the_memory() -> None:
    rule = StoppingRule(plan(), until(duration_ns=10**12, most_iterations=70))
    assert ran(rule, MS, STEADY) == [20, 40, 10]
    assert (rule.done, rule.ended_by) == (70, "sample-space")


def test_beside_a_peer_there_are_enough_batches_of_one_length() -> None:
    rule = StoppingRule(plan(), until(ci=0.05, even_batches=8))
    assert ran(rule, MS, STEADY) == [20] * 9  # the first look that is due from 8 on
    assert rule.ended_by == "ci"
    late = StoppingRule(plan(), until(ci=1e-9, max_time_ns=1, even_batches=8))
    assert ran(late, MS, np.random.default_rng(3).exponential(1, 1000)) == [20] * 8
    assert late.ended_by == "max-time"


def test_looks_come_seldom_so_that_they_cost_little() -> None:
    looks: list[int] = []

    def times() -> np.ndarray:
        looks.append(rule.done)
        return np.random.default_rng(4).exponential(1, rule.done)

    rule = StoppingRule(plan(10, 10), until(ci=1e-9))
    for _ in range(1000):
        rule.next_batch()
        rule.take([rule.own_look(MS, MS, times)])
    assert all(later >= 1.25 * earlier for earlier, later in itertools.pairwise(looks))
    assert looks[0] == 30
    assert looks[-1] > 8000


def planner(**given: str) -> RowPlanner:
    settings = load_settings({"pattern": "ring", "sample_space": "1M", **given}, {})
    return RowPlanner(workload_of(settings, 2), [read_host()] * 2)


def test_the_rows_of_a_run_share_the_space_for_samples() -> None:
    # 1 MiB is 16384 iterations of two ranks with four phases.
    alone = planner(sizes="4K", duration="1s").rows()[0].until
    shared = planner(sizes="1K,2K", run_cycles="2", duration="1s").rows()[0].until
    assert alone is not None
    assert shared is not None
    assert (alone.most_iterations, shared.most_iterations) == (16384, 4096)


@pytest.mark.parametrize(
    ("given", "enough"),
    [({}, "16384"), ({"run_cycles": "2"}, "8192"), ({"against": "raw"}, "2730")],
)
def test_more_iterations_than_there_is_space_for_are_refused_with_what_there_is(
    given: dict[str, str], enough: str
) -> None:
    planner(sizes="4K", iters=enough, **given).require_room()
    with pytest.raises(UsageError, match=f"use {enough} or less, or more --sample-space"):
        planner(sizes="4K", iters=str(int(enough) + 1), **given).require_room()


def test_where_there_is_space_for_none_no_number_of_them_is_named() -> None:
    crowded = planner(sizes="4K", iters="1", run_cycles="100000")
    with pytest.raises(UsageError, match=r"\(1 MiB\); use more --sample-space$"):
        crowded.require_room()


@pytest.mark.parametrize("ending", ENDINGS)
def test_every_ending_is_in_the_docs(ending: str) -> None:
    from pathlib import Path

    page = Path(__file__).resolve().parents[3] / "docs" / "reference" / "file-format.md"
    assert f"`{ending}`" in page.read_text()
