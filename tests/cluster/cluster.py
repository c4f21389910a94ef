"""`cluster.py up`, `cluster.py down`, `cluster.py on NODE COMMAND...`: two nodes to type at.

A tree has one cluster; TCPX_MPI_CLUSTER is another label than the tree's path, for one more.
"""

from __future__ import annotations

import os
import shlex
import sys

from namespaces import NoCluster
from nodes import DATA, TREE, Cluster, clusters, remove_stale, require_tools, up

MPIRUN = (
    "mpirun -hostfile hosts --bind-to none -x PATH --mca btl_tcp_if_include eth0 "
    f"-x NCCL_SOCKET_IFNAME={','.join(DATA)} tcpx-mpi run ring -b 1K -e 1M -f 32"
)
LABEL = os.environ.get("TCPX_MPI_CLUSTER", str(TREE))
USAGE = "usage: cluster.py up | down | on NODE COMMAND..."


def main(words: list[str]) -> int:
    """Returns the exit code: 2 where it cannot be done, with one line that says why."""
    try:
        match words:
            case ["up"]:
                print(what_to_type(bring_up()))
            case ["down"]:
                print(take_down())
            case ["on", ("0" | "1") as node, _, *_]:
                command = alive()[0].nodes[int(node)].command(*words[2:])
                os.execvp(command[0], command)
            case _:
                raise NoCluster(USAGE)
    except (NoCluster, IndexError) as error:
        ours = isinstance(error, NoCluster)
        print(error if ours else "no cluster is up: cluster.py up", file=sys.stderr)
        return 2
    return 0


def alive() -> list[Cluster]:
    """The clusters that were made by hand from this tree."""
    return [found for found in clusters() if found.by_hand == LABEL]


def bring_up() -> Cluster:
    """Raises NoCluster, also where there is one."""
    require_tools()
    remove_stale()
    if alive():
        raise NoCluster("a cluster is up already: use it, or cluster.py down first")
    return up(by_hand=LABEL)


def take_down() -> str:
    """Removes it, and what dead owners have left; says what was done."""
    require_tools()
    found = alive()
    for cluster in found:
        cluster.remove()
    remove_stale()
    return "down" if found else "no cluster is up"


def what_to_type(made: Cluster) -> str:
    """Where the nodes are, and lines that work as they are printed."""
    this = shlex.join([sys.executable, os.path.abspath(__file__)])
    on = f"{this} on"
    facts = [
        f"{node.name}: control eth0 {node.address('eth0')}, data "
        + ", ".join(f"{nic} {node.address(nic)}" for nic in DATA)
        for node in made.nodes
    ]
    return "\n".join(
        [
            *facts,
            "a run over both, its file in /tmp/work on the first node:",
            f"  {on} 0 {MPIRUN}",
            "a shell on a node, and a link that is down:",
            f"  {on} 0 bash",
            f"  {on} 1 ip link set eth1 down",
            "when done:",
            f"  {this} down",
        ]
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
