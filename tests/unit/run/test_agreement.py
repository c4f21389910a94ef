"""Whether ranks were started alike, as far as it needs no MPI."""

from __future__ import annotations

import dataclasses

import pytest

from tcpx_mpi.errors import UsageError
from tcpx_mpi.machine.topology import Host, read_host
from tcpx_mpi.run.agreement import _refuse_uneven


def hosts(nodes: str) -> list[Host]:
    """A rank on each of these nodes."""
    return [dataclasses.replace(read_host(), node=node, name=f"host {node}") for node in nodes]


@pytest.mark.parametrize("nodes", ["a", "aaa", "ab", "abab", "aabb"])
def test_nodes_with_equally_many_ranks_are_taken(nodes: str) -> None:
    _refuse_uneven(hosts(nodes))


@pytest.mark.parametrize("nodes", ["aab", "baa", "aaba"])
def test_a_node_with_fewer_ranks_is_refused_with_their_numbers(nodes: str) -> None:
    counts = f"host a has {nodes.count('a')}"
    with pytest.raises(UsageError, match=f"equally many ranks, but .*{counts}"):
        _refuse_uneven(hosts(nodes))
