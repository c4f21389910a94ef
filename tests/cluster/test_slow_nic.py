"""A NIC that is slow in one direction is named by `report`, and nothing else is.

100 Mb/s in place of 1 Gb/s, so that it stands out of what a busy machine of two cores does to veth
pairs, too; `make quiet-runs` has 1 Gb/s, where it is quiet.
"""

from __future__ import annotations

import re
from pathlib import Path

import network_faults as faults
import pytest
from jobs import run, tcpx_mpi
from launcher import Launcher
from nodes import Cluster

from tcpx_mpi.records import read_run

pytestmark = pytest.mark.multirank

OPTIONS = ("--sizes", "1M", "-n", "16", "--check-memory", "64M")
#: What mesh and a tournament can say of it.
ROLES = {"pairs": "receiving", "mesh": "both ways"}


@pytest.mark.parametrize("pattern", ["pairs", "mesh"])
def test_a_slow_nic_is_named_with_its_node_and_nothing_else(
    pattern: str, nodes: Cluster, launcher: Launcher, tmp_path: Path
) -> None:
    everybody = ("--all",) if pattern == "pairs" else ()
    command = launcher.run_command(pattern, *everybody, *OPTIONS)
    name = (
        rf"# Slow +: NIC eth2 of tcpx-node-1 \(rank 3\), {ROLES[pattern]}: \d+(\.\d+)? x the "
        r".* us of the good ones at 1 MiB, in 2 of 2 ways .*, not within the node"
    )
    file = nodes.nodes[0].file("o.h5")
    # The best of three: a core that others take away makes ranks slow that nobody slowed.
    for _ in range(3):
        file.unlink(missing_ok=True)
        with faults.slow_arrivals(nodes.nodes, at=1, interface="eth2", rate="100mbit"):
            result = run(command, tmp_path)
        assert result.code == 0, result.text
        if len(slow := slow_lines(result.out)) == 1 and re.match(name, slow[0]):
            break
    assert len(slow) == 1, result.text
    assert re.match(name, slow[0]), result.text
    assert slow_lines(run(tcpx_mpi("report", str(file)), tmp_path).out) == slow
    again = [row.pairs for row in read_run(str(file)).rows if row.pairs]
    if pattern == "pairs":
        # Rank 3 has met both ranks of the other node once more, and both ways.
        assert {"0>3", "3>0", "1>3", "3>1"} <= set(" ".join(again).split())
        assert re.search(r"; again \d+(\.\d+)? x with ranks 0, 1$", slow[0]), slow
    else:
        assert again == []


def slow_lines(text: str) -> list[str]:
    """What is named, or is not after all."""
    return [line for line in text.splitlines() if re.match("# (Slow|Not confirmed) +:", line)]
