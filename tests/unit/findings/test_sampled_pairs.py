"""Who is slow in a tournament of which a sample was run (`pairs --all --pairs N`)."""

from __future__ import annotations

import invented
import numpy as np

from tcpx_mpi import patterns
from tcpx_mpi.findings.stragglers import links_by_size, pairs_to_retest, stragglers
from tcpx_mpi.patterns.pairs import encounter, sample
from tcpx_mpi.records import Row
from tcpx_mpi.schedule.pattern import pairs_of_text

WORLD, BLOCKS, SLOW_RANK = 16, 8, 5
HEADER = invented.run_header(
    world=WORLD,
    pattern="pairs",
    settings=[
        ("all_pairs", "true", "command line --all"),
        ("most_pairs", "64", "command line --pairs"),
    ],
    ranks=[
        invented.rank_info(rank, host=f"n{rank // 4}", node=f"boot-{rank // 4}", nic="eth1")
        for rank in range(WORLD)
    ],
)


def row(index: int, pairs: list[tuple[int, int]], chosen: str = "") -> Row:
    """(sender, receiver) of one way each; what the slow rank sends takes four times as long."""
    random = np.random.default_rng(index)
    iteration = np.full((WORLD, BLOCKS), 5000)
    for sender, receiver in pairs:
        noise = np.exp(0.02 * random.standard_normal(BLOCKS))
        iteration[receiver] = 100e3 * (4 if sender == SLOW_RANK else 1) * noise
    receivers = {receiver for _, receiver in pairs}
    found = invented.row(
        index, WORLD, size_bytes=4096, iterations=BLOCKS, cycle=index, pairs=chosen,
        batches=np.ones(BLOCKS, np.int64),
        receives=np.array([rank in receivers for rank in range(WORLD)]),
    )  # fmt: skip
    found.samples["iteration"] = iteration.astype(np.int64)
    return found


def sampled() -> list[Row]:
    rows = []
    for number in sample(WORLD, 64):
        pairs = list(encounter(number, WORLD))
        rows.append(row(len(rows), pairs))
        rows.append(row(len(rows), [(b, a) for a, b in pairs]))
    return rows


def test_a_row_is_of_the_pairs_that_the_sample_has_there() -> None:
    (links,) = links_by_size(HEADER, sampled()).values()
    slow = {link for link, each in links.items() if each.time_ns > 200e3}
    assert slow == {link for link in links if link[0] == SLOW_RANK}
    # Both ways of the pairs that were asked for; some meet as neighbours and in the tournament.
    assert 100 < len(links) <= 2 * 64
    rounds = patterns.load("pairs").rounds_run(WORLD, True, 64)
    assert len(rounds) == len(sampled()) < len(patterns.load("pairs").rounds_run(WORLD, True))


def test_a_slow_rank_meets_ranks_again_that_the_sample_left_out_and_is_named() -> None:
    rows = sampled()
    (texts,) = pairs_to_retest(HEADER, rows).values()
    assert texts
    again = [row(len(rows) + n, pairs_of_text(text), text) for n, text in enumerate(texts)]
    said = [f"{each.title}: {each.text}" for each in stragglers(HEADER, [*rows, *again])]
    assert said[0].startswith(f"Slow: rank {SLOW_RANK} on n1 (device 1, NIC eth1), sending: 4 x")
    assert len([text for text in said if text.startswith("Slow")]) == 1
