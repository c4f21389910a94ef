"""Tails by sender, and how even senders share a link."""

from __future__ import annotations

import dataclasses
import math
import re

import invented_runs
import numpy as np
import pytest

from tcpx_mpi.findings.stragglers import stragglers
from tcpx_mpi.findings.tails import arrivals_by_sender, jain, tails
from tcpx_mpi.records import Run
from tcpx_mpi.report import summarise_row


def run_of(pattern: str, arrivals: np.ndarray) -> Run:
    """One row of three ranks with these arrivals: [receiver, sender, iteration], ns."""
    run = invented_runs.sound(world=3, rows=1)
    run.header = dataclasses.replace(run.header, pattern=pattern)
    (row,) = run.rows
    row.arrivals, row.arrival_blocks = arrivals, np.ones(arrivals.shape[2], np.int64)
    row.size_bytes, row.tcp_retransmits = 3000, np.array([0, 7, -1])
    return run


def texts(run: Run) -> list[tuple[str, str]]:
    summaries = [summarise_row(run.header, row) for row in run.rows]
    return [(each.title, each.text) for each in tails(run.header, run.rows, summaries)]


def incast(iterations: int) -> np.ndarray:
    """Ranks 1 and 2 to rank 0; rank 2 takes three times as long."""
    arrivals = np.full((3, 3, iterations), np.nan)
    arrivals[0, 1], arrivals[0, 2] = 2000.0, 6000.0
    return arrivals


def test_each_sender_has_its_percentiles_goodput_and_retransmits_and_all_a_fairness() -> None:
    found = texts(run_of("incast", incast(3000)))
    assert [title for title, _ in found] == ["Tail", "Tails", "Fairness"]
    assert found[1][1] == (
        "2.93 KiB, by sender: rank 1 p50 2 p99 2 p99.9 2 us (0.75 GB/s, 7 retransmits); "
        "rank 2 p50 6 p99 6 p99.9 6 us (0.25 GB/s, unknown retransmits)"
    )
    assert found[2][1] == "2.93 KiB: 0.800 of 1 (Jain's index of the goodput of 2)"


def test_bytes_that_were_there_before_the_iteration_began_have_no_fairness() -> None:
    for before in (5000, 1500):  # the second: 0.5 us of 1.5 KB are no time either
        fairness = texts(run_of("incast", incast(300) - before))[2][1]
        assert fairness == "2.93 KiB: n/a of 1 (Jain's index of the goodput of 2)"


def test_nothing_is_said_of_a_row_that_came_in_bursts() -> None:
    run = run_of("incast", incast(3000))
    assert run.header.back_to_back
    samples = run.rows[0].samples["iteration"]
    samples[:], samples[:, 0] = 100, 10_000_000
    assert texts(run) == []


def test_percentiles_that_so_few_iterations_cannot_give_are_not_given() -> None:
    assert "rank 1 p50 2 p99 n/a p99.9 n/a us" in texts(run_of("incast", incast(298)))[1][1]


def test_arrivals_at_all_receivers_are_taken_together_and_nothing_sent_counts_for_nothing() -> None:
    arrivals = np.full((3, 3, 2), np.nan)
    arrivals[0, 1], arrivals[2, 1] = [1.0, np.nan], [2.0, 3.0]
    (row,) = run_of("moe", arrivals).rows
    found = arrivals_by_sender(row)
    assert list(found) == [1]
    assert (found[1].count, found[1].p50) == (3, 2.0)


def test_experts_share_no_link_and_other_patterns_have_no_tails() -> None:
    assert [title for title, _ in texts(run_of("moe", incast(3)))] == ["Tail", "Tails"]
    assert texts(run_of("mesh", incast(3))) == []


@pytest.mark.parametrize(("values", "index"), [([2, 2, 2], 1.0), ([5, 0, 0, 0], 0.25)])
def test_the_index_of_jain_is_one_for_equals_and_a_share_for_one(
    values: list[float], index: float
) -> None:
    assert jain(values) == pytest.approx(index)
    assert math.isnan(jain([0, 0]))


def requests(slow: float, operation: str = "write", initiators: int = 2) -> Run:
    """Every initiator asks 3 targets, of which the last one takes so many times as long."""
    world, iterations = initiators + 3, 400
    run = invented_runs.sound(world=world, rows=1)
    run.header = dataclasses.replace(
        run.header, pattern=f"nixl-{operation}", mode="apart",
        facts={"initiators": f"0-{initiators - 1}", "targets": f"{initiators}-{world - 1}"},
        ranks=[
            dataclasses.replace(info, node=f"boot-{int(info.rank >= initiators)}", nic="")
            for info in run.header.ranks
        ],
    )  # fmt: skip
    (row,) = run.rows
    row.arrivals = np.full((world, world, iterations), np.nan)
    row.arrival_blocks = np.ones(iterations, np.int64)
    row.receives[:] = np.arange(world) < initiators
    row.iterations = iterations
    random = np.random.default_rng(1)
    for initiator in range(initiators):
        for target in range(initiators, world):
            times = 100e3 * np.exp(0.05 * random.standard_normal(iterations))
            way = (target, initiator) if operation == "write" else (initiator, target)
            row.arrivals[way] = times * (slow if target == world - 1 else 1)
    return run


def test_requests_are_told_by_target_and_the_post_apart() -> None:
    run = requests(3.0, "read", initiators=1)
    (row,) = run.rows
    row.arrivals[0, 1:] = np.array([[1000.0], [2000.0], [4000.0]])
    row.samples["iteration"][0], row.samples["send"][0] = 4000, 500
    assert texts(run) == [
        (
            "Tail",
            "1 KiB, slowest initiator of each iteration: p50 4 p99 4 p99.9 n/a us; of that, "
            "until its posts had returned: p50 0.5 p99 0.5 p99.9 n/a us",
        ),
        (
            "Tails",
            "1 KiB, by target: rank 1 p50 1 p99 1 p99.9 n/a us; rank 2 p50 2 p99 2 p99.9 n/a "
            "us; rank 3 p50 4 p99 4 p99.9 n/a us",
        ),
    ]


@pytest.mark.parametrize(("operation", "role"), [("write", "receiving"), ("read", "sending")])
def test_a_slow_target_is_named_and_nobody_where_none_is_slow(operation: str, role: str) -> None:
    slow = requests(3.0, operation)
    (found,) = stragglers(slow.header, slow.rows)
    assert re.match(
        rf"rank 4 on .*, {role}: [23]\.\d* x the .* us of the good ones at .*, in 2 of 2 links",
        found.text,
    ), found.text
    even = requests(1.0, operation)
    (found,) = stragglers(even.header, even.rows)
    assert found.text.startswith("nobody; a rank goes unseen below 1.")


def test_of_one_initiator_a_slow_target_or_its_link_is_named() -> None:
    run = requests(3.0, initiators=1)
    (found,) = stragglers(run.header, run.rows)
    assert re.match(r"rank 0 on .* or rank 3 on .*, or their link: [23]\.\d* x", found.text)
