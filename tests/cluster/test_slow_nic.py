"""A NIC that is slow in one direction is named by `report`, and nothing else is; a rail as a rail.

So slow a NIC, and ranks that all take so long between two chunks, that what a busy machine of two
cores does to veth pairs is little beside it; `benchmarks/quiet_runs.py` has 1 Gb/s.
"""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import network_faults as faults
import pytest
from jobs import run, tcpx_mpi
from launcher import Launcher
from nodes import Cluster
from variants import variant

from tcpx_mpi.records import read_run

pytestmark = pytest.mark.multirank

#: Two chunks of 32 KiB on the one connection between two ranks: fewer, and there is no time from
#: one to the next; more, and each is late by itself on a busy machine.
SIZES = {"pairs": "64K", "mesh": "256K"}
OPTIONS = ("--chunk", "32K", "--channels", "1", "-n", "8", "-w", "1")
#: All ranks take so long from one chunk to the next: not less than 20 ms for a message.
CHUNK_US = "20000"
#: 64 KiB take 175 ms.
RATE = "3mbit"
#: What mesh and a tournament can say of it.
ROLES = {"pairs": "receiving", "mesh": "both ways"}


@pytest.mark.parametrize("pattern", [variant("pairs"), "mesh"])
def test_a_slow_nic_is_named_with_its_node_and_nothing_else(
    pattern: str, nodes: Cluster, launcher: Launcher, tmp_path: Path
) -> None:
    everybody = ("--all",) if pattern == "pairs" else ()
    sizes = ("--sizes", SIZES[pattern])
    command = launcher.run_command(
        pattern, *everybody, *sizes, *OPTIONS,
        SOFTTCPX_TRAP_SLOW_US=CHUNK_US, SOFTTCPX_TRAP_SIDE="recv",
    )  # fmt: skip
    name = (
        rf"# Slow +: NIC eth2 of tcpx-node-1 \(rank 3\), {ROLES[pattern]}: \d+(\.\d+)? x the "
        rf".* us of the good ones at {SIZES[pattern][:-1]} KiB, in 2 of 2 links .*, "
        r"not within the node"
    )
    file = nodes.nodes[0].file("o.h5")
    with faults.slow_arrivals(nodes.nodes, at=1, interface="eth2", rate=RATE):
        result = run(command, tmp_path)
    assert result.code == 0, result.text
    assert len(slow := slow_lines(result.out)) == 1, result.text
    assert re.match(name, slow[0]), result.text
    assert slow_lines(run(tcpx_mpi("report", str(file)), tmp_path).out) == slow
    again = [row.pairs for row in read_run(str(file)).rows if row.pairs]
    if pattern == "pairs":
        # Rank 3 has met both ranks of the other node once more, and both ways.
        assert {"0>3", "3>0", "1>3", "3>1"} <= set(" ".join(again).split())
        assert re.search(r"; again \d+(\.\d+)? x with ranks 0, 1$", slow[0]), slow
    else:
        assert again == []


@pytest.mark.variant
def test_a_slow_rail_is_named_and_no_nic_of_it(
    nodes: Cluster, launcher: Launcher, tmp_path: Path
) -> None:
    """What leaves for an address of eth2 leaves by eth2: by the routes of two subnets."""
    command = launcher.run_command(
        "pairs", "--all", "--sizes", SIZES["pairs"], *OPTIONS,
        SOFTTCPX_TRAP_SLOW_US=CHUNK_US, SOFTTCPX_TRAP_SIDE="recv",
    )  # fmt: skip
    with contextlib.ExitStack() as stack:
        for at in (0, 1):
            stack.enter_context(faults.slow_arrivals(nodes.nodes, at, "eth2", RATE))
        result = run(command, tmp_path)
    assert result.code == 0, result.text
    (slow,) = slow_lines(result.out)
    assert re.match(
        r"# Slow +: rail eth2 \(NICs of this name on 2 nodes: ranks 1, 3\), receiving: \d+(\.\d+)?"
        r" x the .* us of the good ones at 64 KiB, in 4 of 4 links .*; again \d+(\.\d+)? x",
        slow,
    ), result.text


def slow_lines(text: str) -> list[str]:
    """What is named. On a busy machine others may be suspected, and are "Not confirmed"."""
    return [line for line in text.splitlines() if re.match("# Slow +:", line)]
