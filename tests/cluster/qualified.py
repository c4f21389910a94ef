"""`tcpx-mpi qualify` on a cluster of two nodes, as a user types it there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobs import Result, run
from nodes import Cluster

#: For machines that are busy with other tests; the bound itself has a test of its own.
WITHIN = "100s"


@dataclass(frozen=True)
class Qualified:
    """How it ended, and what it says of each node."""

    result: Result
    document: dict[str, Any]

    @property
    def verdicts(self) -> dict[str, str]:
        return {each["node"]: each["verdict"] for each in self.document["nodes"]}

    def evidence(self, node: str) -> str:
        return "\n".join(
            text for each in self.document["nodes"] if each["node"] == node
            for text in each["evidence"]
        )  # fmt: skip


def qualify_command(
    nodes: Cluster, *options: str, within: str = WITHIN, **variables: str
) -> list[str]:
    """On the first node, over two data NICs of both: two ranks a node."""
    first = nodes.nodes[0]
    first.file("hosts").write_text(nodes.hostfile())
    return first.command(
        "env", "OMPI_MCA_btl_tcp_if_include=eth0", "NCCL_SOCKET_IFNAME=eth1,eth2",
        *(f"{name}={value}" for name, value in variables.items()),
        "tcpx-mpi", "qualify", "--hostfile", "hosts", "--plugin", "softtcpx",
        "--within", within, "--json", "q.json", *options,
    )  # fmt: skip


def qualify(nodes: Cluster, place: Path, *options: str, **how: str) -> Qualified:
    """Runs it to its end; `how` is `within` and variables."""
    nodes.nodes[0].file("q.json").unlink(missing_ok=True)
    return read_qualified(nodes, run(qualify_command(nodes, *options, **how), place))


def read_qualified(nodes: Cluster, result: Result) -> Qualified:
    """What it has left."""
    path = nodes.nodes[0].file("q.json")
    assert path.exists(), result.text
    document = json.loads(path.read_text())
    assert result.code == document["exit_code"], result.text
    return Qualified(result, document)
