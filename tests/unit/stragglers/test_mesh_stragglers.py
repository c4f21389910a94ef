"""Who is slow in an all-to-all, by when each peer's bytes came; every figure is made up.

A rank knows when bytes came by its own clock and counts from its own start. So an arrival is what
the way took, and how much later the sender began, by a clock that nobody set.
"""

from __future__ import annotations

import re

import invented
import numpy as np
import pytest
from variants import variant

from tcpx_mpi.findings.stragglers import links_by_size, stragglers
from tcpx_mpi.records import Row, RunHeader
from tcpx_mpi.stragglers.links import Link
from tcpx_mpi.stragglers.outlier import QUARTERS

BLOCKS = 20
#: Ranks of two nodes, each with a NIC of its own on its node.
HEADER = invented.run_header(
    world=8,
    pattern="mesh",
    ranks=[
        invented.rank_info(r, host=f"host{r // 4}", node=f"boot-{r // 4}", nic=f"eth{1 + r % 4}")
        for r in range(8)
    ],
)
ONE_NODE = invented.run_header(
    world=8,
    pattern="mesh",
    ranks=[invented.rank_info(r, host="host0", node="boot-0") for r in range(8)],
)
FOUR = invented.run_header(
    world=4,
    pattern="mesh",
    ranks=[invented.rank_info(r, host="host0", node="boot-0") for r in range(4)],
)


def mesh_row(header: RunHeader, slow: dict[Link, float] | None = None, seed: int = 1) -> Row:
    """100 us within a node and 300 us between nodes, log-normal, times what is slow."""
    random = np.random.default_rng(seed)
    world = header.world
    nodes = np.array([info.node for info in header.ranks])
    link_ns = np.where(nodes[:, None] == nodes, 100e3, 300e3)  # [receiver, sender]
    for (sender, receiver), factor in (slow or {}).items():
        link_ns[receiver, sender] *= factor
    link_ns = link_ns[:, :, None] * np.exp(0.02 * random.standard_normal((world, world, BLOCKS)))
    # Clocks are hours apart, and ranks begin an iteration as late as they please.
    offset_ns = 1e12 * random.standard_normal((world, 1)) + 1e5 * random.random((world, BLOCKS))
    arrivals = link_ns + offset_ns[None, :, :] - offset_ns[:, None, :]
    arrivals[np.arange(world), np.arange(world)] = np.nan
    blocks = np.full(BLOCKS, 3, np.int64)
    return invented.row(0, world, arrivals=arrivals, arrival_blocks=blocks)


def slow_lines(header: RunHeader, row: Row) -> list[str]:
    """Who is named."""
    findings_of = [found.text for found in stragglers(header, [row])]
    return [text for text in findings_of if not text.startswith("nobody")]


@pytest.mark.parametrize("header", [variant(HEADER), ONE_NODE], ids=["two", "one"])
def test_nobody_is_named_where_nothing_is_slow(header: RunHeader) -> None:
    alarms = [seed for seed in range(300) if slow_lines(header, mesh_row(header, seed=seed))]
    assert not alarms


def test_a_lost_turn_of_the_cpu_is_no_slowness() -> None:
    """In each quarter one iteration of a rank takes fifty times as long: no mean survives."""
    row = mesh_row(ONE_NODE)
    calm = [links_by_size(ONE_NODE, [row])]
    lost = np.arange(BLOCKS) % (BLOCKS // QUARTERS) == 2
    row.arrivals[3, :, lost] += 5e6
    row.arrivals[:, 3, lost] += 5e6
    (before,), (after,) = (found[0].values() for found in (calm, [links_by_size(ONE_NODE, [row])]))
    assert slow_lines(ONE_NODE, row) == []
    for link, measured in after.items():
        assert measured.time_ns == pytest.approx(before[link].time_ns, rel=0.02)


def test_a_rank_whose_core_another_process_took_for_a_while_is_not_named() -> None:
    """As beside a busy loop: a quarter of the row is as it should be."""
    slow = {(3, other): 6.0 for other in range(8) if other != 3}
    for seed in range(20):
        row, calm = mesh_row(ONE_NODE, slow, seed), mesh_row(ONE_NODE, seed=seed)
        assert len(slow_lines(ONE_NODE, row)) == 1
        quarter = BLOCKS // QUARTERS
        row.arrivals[:, :, quarter : 2 * quarter] = calm.arrivals[:, :, quarter : 2 * quarter]
        assert slow_lines(ONE_NODE, row) == []


def test_repeats_of_a_row_are_taken_together() -> None:
    slow = {(3, other): 3.0 for other in range(8) if other != 3}
    rows = [mesh_row(ONE_NODE, slow if slowed else None, slowed) for slowed in (1, 1, 1, 0)]
    (found,) = stragglers(ONE_NODE, rows[:3])
    assert found.text.startswith("rank 3 on host0 ")
    (found,) = stragglers(ONE_NODE, rows)
    assert found.text.startswith("nobody; "), "in one of four cycles it was as quick as the others"


# --- How small a slowness would have been seen ----------------------------------------------------


@pytest.mark.parametrize("header", [ONE_NODE, FOUR], ids=["eight", "four"])
@pytest.mark.parametrize("noise", [0.0, 0.15])
def test_where_nobody_is_named_the_report_says_how_slow_a_rank_must_be(
    header: RunHeader, noise: float
) -> None:
    """Beside ways that differ by just so much, in no order of ranks, one just so slow is named."""
    random = np.random.default_rng(3)
    world = header.world
    spread = np.exp(noise * random.standard_normal((world, world, 1)))

    def findings_of(factor: float) -> str:
        link_ns = 100e3 * (spread + spread.transpose(1, 0, 2)) / 2 * np.ones(BLOCKS)
        link_ns[2] = link_ns[:, 2] = factor * link_ns[2].max()
        link_ns[range(world), range(world)] = np.nan
        row = invented.row(0, world, arrivals=link_ns, arrival_blocks=np.full(BLOCKS, 3, np.int64))
        (found,) = stragglers(header, [row])
        return found.text

    limit = re.fullmatch(
        r"nobody; a rank goes unseen below (\S+)(?: to (\S+))? x the \d+(\.\d+)? us of the good "
        r"ones within a node at 1 KiB \((.*)\)",
        findings_of(1.0),
    )
    assert limit, findings_of(1.0)
    least, most = float(limit[1]), float(limit[2] or limit[1])
    if noise:
        assert limit[4] == "5 x the noise: more iterations (-n) see smaller differences"
        assert least < most
    else:
        assert limit[4] == "the least that is named"
        assert least == most == (1.07 if header is ONE_NODE else 1.5)
    assert findings_of(1.02 * most).startswith("rank 2 on ")
    # With noise, whose ways are all slower than those of all others is named below that.
    assert noise or findings_of(0.98 * least).startswith("nobody; ")


def test_of_several_sizes_the_most_and_the_least_that_is_not_seen_are_told() -> None:
    rows = [mesh_row(ONE_NODE), mesh_row(ONE_NODE, seed=2), mesh_row(ONE_NODE, seed=3)]
    wild = 100e3 * np.random.default_rng(1).random((8, 8, BLOCKS))
    for row, size in zip(rows, (1024, 2048, 4096), strict=True):
        row.size_bytes = size
    rows[1].arrivals = rows[1].arrivals + wild
    (found,) = stragglers(ONE_NODE, rows)
    limit = r"(\S+) x the \S+ us of the good ones within a node at (\S+) KiB"
    limits = re.findall(limit, found.text)
    (most, of_size), (least, _) = limits
    assert of_size == "2"
    assert float(most) > float(least)


@pytest.mark.parametrize("header", [HEADER, ONE_NODE], ids=["two", "one"])
@pytest.mark.parametrize("sends", [True, False])
def test_a_slow_rank_is_named_and_that_its_role_cannot_be_told(
    header: RunHeader, sends: bool
) -> None:
    slow = {((5, other) if sends else (other, 5)): 3.0 for other in range(8) if other != 5}
    for seed in range(50):
        (line,) = slow_lines(header, mesh_row(header, slow, seed))
        place = f"rank 5 on {header.ranks[5].host} (device 1, NIC {header.ranks[5].nic})"
        # One way three times as slow is twice as slow there and back.
        good = r"(29\d|30\d|9\d|10[012])(\.\d+)?"
        links = 4 if header is HEADER else 7
        assert re.fullmatch(
            rf"{re.escape(place)}, both ways: (2|1\.9\d?|2\.\d+) x the {good} us of the good ones "
            rf"at 1 KiB, in {links} of {links} links \(noise \d\.\d %\)",
            line,
        ), line


def test_a_rank_slow_towards_other_nodes_only_has_a_slow_nic() -> None:
    slow = {(other, 6): 20.0 for other in range(4)}
    for seed in range(50):
        (line,) = slow_lines(HEADER, mesh_row(HEADER, slow, seed))
        assert line.startswith("NIC eth3 of host1 (rank 6), both ways: "), line
        assert line.endswith(", not within the node"), line


def test_one_slow_way_is_no_rank() -> None:
    for seed in range(50):
        (line,) = slow_lines(HEADER, mesh_row(HEADER, {(6, 1): 5.0}, seed))
        assert line.startswith("the link between rank 1 on host0 "), line
        assert " and rank 6 on host1 " in line


def test_a_slow_way_within_a_node_is_a_core_that_two_ranks_share_with_somebody() -> None:
    slow = {(0, 1): 4.0, (1, 0): 4.0}
    assert slow_lines(ONE_NODE, mesh_row(ONE_NODE, slow)) == []
    assert slow_lines(HEADER, mesh_row(HEADER, slow)) == []


def test_the_time_of_a_way_is_half_of_there_and_back() -> None:
    (links,) = links_by_size(HEADER, [mesh_row(HEADER, {(0, 1): 5.0})]).values()
    assert len(links) == 28
    assert all(a < b for a, b in links)
    assert links[0, 1].time_ns == pytest.approx(300e3, rel=0.05)
    assert links[2, 3].time_ns == pytest.approx(100e3, rel=0.05)
    assert links[0, 4].time_ns == pytest.approx(300e3, rel=0.05)


def test_a_slow_half_of_a_row_is_noise() -> None:
    row = mesh_row(ONE_NODE)
    # A stretch of the row disturbed one rank: in the other half there is nothing.
    row.arrivals[3, :, : BLOCKS // 2] += 100e3
    row.arrivals[:, 3, : BLOCKS // 2] += 100e3
    assert slow_lines(ONE_NODE, row) == []


def test_peers_of_which_one_knows_nothing_are_left_out() -> None:
    row = mesh_row(HEADER)
    row.arrivals[2] = np.nan
    (links,) = links_by_size(HEADER, [row]).values()
    assert len(links) == 21
    assert not any(2 in link for link in links)


def test_a_row_of_an_older_file_has_none() -> None:
    assert links_by_size(HEADER, [invented.row(0, 8)]) == {}
    assert stragglers(HEADER, [invented.row(0, 8)]) == []
