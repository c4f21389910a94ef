"""Who begins last, between nodes whose clocks are days apart."""

from __future__ import annotations

import dataclasses
from typing import Any

import invented
import numpy as np
import pytest
from judged import about, judged

from tcpx_mpi.records import Row

DAYS_NS = 5 * 10**14
TITLE = "Last to begin"
HEADER = invented.run_header(
    ranks=[invented.rank_info(rank, clock=rank // 2) for rank in range(4)], pattern="mesh"
)


def row(late_ns: int, rank: int = 3, bound_ns: int = 20_000, **changes: Any) -> Row:
    """One rank begins each iteration of 400 us so much later."""
    arrivals = {"arrivals": np.full((4, 4, 20), 5e4), "arrival_blocks": np.ones(20, np.int64)}
    made = invented.row(0, clock=invented.row_clock(bound_ns=bound_ns), **{**arrivals, **changes})
    made.samples["start"][:] = 10**12 + 400_000 * np.arange(made.iterations)
    made.samples["start"][rank] += late_ns
    made.samples["start"][2:] += DAYS_NS
    made.samples["iteration"][:] = 400_000
    return made


def test_the_rank_that_begins_last_is_named_with_the_bound() -> None:
    assert about(TITLE, judged([row(90_000)], HEADER)) == [
        "rank 3 on host1 (device 1, NIC eth2) begins its iterations 90 us (+-20) after rank 0 on "
        "host0 (device 0, NIC eth1), the median at 1 KiB: 22 % of one"
    ]


@pytest.mark.parametrize(
    "made",
    [
        row(0),
        row(90_000, bound_ns=100_000),  # within the bound
        row(30_000),  # a small part of an iteration
        row(90_000, arrivals=np.zeros((0, 0, 0)), arrival_blocks=np.zeros(0, np.int64)),
        dataclasses.replace(row(90_000), clock=None),
    ],
    ids=["together", "bound", "little", "one peer", "one clock"],
)
def test_what_is_within_the_bound_or_of_no_weight_is_not_called_late(made: Row) -> None:
    assert about(TITLE, judged([made], HEADER)) == []


def test_iterations_that_start_together_are_not_compared() -> None:
    together = dataclasses.replace(HEADER, mode="synchronised")
    assert about(TITLE, judged([row(90_000)], together)) == []
