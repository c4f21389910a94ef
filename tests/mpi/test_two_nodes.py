"""Ranks on two nodes that share nothing but an Ethernet, started over a launch agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import run
from two_nodes import NoNodes, TwoNodes, two_nodes

from tcpx_mpi.records import read_run

pytestmark = pytest.mark.multirank

PER_NODE = 2


@pytest.fixture
def nodes(place: Path) -> Iterator[TwoNodes]:
    try:
        with two_nodes(place, PER_NODE) as found:
            yield found
    except NoNodes as error:
        pytest.skip(f"needs netns: {error}")


@pytest.mark.parametrize("pattern", ["ring", "mesh", "pair"])
def test_two_nodes_exchange_checked_bytes_over_their_data_network(
    pattern: str, nodes: TwoNodes, place: Path
) -> None:
    command = nodes.mpirun(
        PER_NODE, "run", pattern, "--plugin", "softtcpx", "--sizes", "17,1000003", "-n", "5",
        "--check-memory", "64M", "--hdf5", str(place / "o.h5"), "--spool", str(place / "spool"),
    )  # fmt: skip
    result = run(command, place)
    assert result.code == 0, result.text
    assert [row.wrong for row in result.rows] == [0, 0]
    found = read_run(str(place / "o.h5"))
    assert found.complete
    ranks = found.header.ranks
    assert [info.host for info in ranks] == [name for name in nodes.names for _ in range(PER_NODE)]
    assert len({info.node for info in ranks}) == 2
    assert {info.nic for info in ranks} == {"eth1"}
    # Ranks fill one node after the other, so that every byte of `pair` leaves its node.
    for row in found.rows:
        assert (row.net_sent >= row.payload_bytes_sent).all()


def test_a_mistake_of_ranks_on_another_node_is_one_line(nodes: TwoNodes, place: Path) -> None:
    command = nodes.mpirun(PER_NODE, "run", "ring", "--chunk", "3M")
    result = run(command, place)
    assert result.code == 2, result.text
    assert len(result.errors) == 1, result.text
