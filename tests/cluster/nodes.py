"""Two nodes on one machine that share nothing but Ethernets: what a pair of cloud machines has.

Each node is a set of namespaces (network, mounts, UTS, IPC) held by a process that sleeps. eth0 is
for mpirun and MPI, eth1 to eth4 are for data; all are veth pairs. Its temporary directories are its
own and everything else is read-only (`node.sh`), so that no disk is shared. A launch agent stands
in for ssh and passes what ssh would pass (`agent.sh`).

A cluster is always removed: by `down`, by the end of `cluster`, or by the next `up` of anybody,
which finds by a state file what a dead owner has left.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from namespaces import NoCluster, Process, end_processes, ip, wait_for_carrier

TREE = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
#: Of the whole machine, as the names of network namespaces are.
STATES = Path("/run/tcpx-mpi-clusters")
#: Host names: those of hostfiles/tcpx.txt.
NAMES = ("tcpx-node-0", "tcpx-node-1")
CONTROL = "eth0"
DATA = ("eth1", "eth2", "eth3", "eth4")
#: A node's own directories, in its own memory.
WORK, SPOOL = "/tmp/work", "/tmp/spool"
TOOLS = ("ip", "tc", "ss", "unshare", "nsenter", "mount", "bash")
#: Open MPI's and MPICH's names for what starts their daemons.
_AGENTS = ("PRTE_MCA_plm_ssh_agent", "OMPI_MCA_plm_rsh_agent", "HYDRA_LAUNCHER_EXEC")
#: What tests say by variables, and an operator by options.
_OF_TESTS = ("PRTE_MCA_rmaps_default_mapping_policy", "PRTE_MCA_hwloc_default_binding_policy")
#: The keepers that this process has started, to be waited for.
_CHILDREN: dict[int, subprocess.Popen[str]] = {}
_PR_SET_PDEATHSIG = 1
_PRCTL = ctypes.CDLL(None).prctl


@dataclass(frozen=True)
class Node:
    """One node; `space` is its network namespace, `keeper` the process that holds the others."""

    index: int
    name: str
    space: str
    subnets: str
    keeper: Process

    def address(self, interface: str) -> str:
        """The IPv4 address of eth0, eth1, ..."""
        return address(self.subnets, interface, self.index)

    def command(self, *words: str) -> list[str]:
        """The command that runs `words` on this node, as somebody who has logged in there."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        login = ["env", *(f"--unset={name}" for name in _OF_TESTS)]
        login += ["-C", WORK, f"PATH={path}", "HYDRA_LAUNCHER=ssh"]
        login += [f"{name}={HERE / 'agent.sh'}" for name in _AGENTS]
        login += ["OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"]
        return [*self._enter(), *login, *words]

    def run(self, *words: str) -> str:
        """What a command on this node prints. Raises subprocess.CalledProcessError."""
        done = subprocess.run([*self._enter(), *words], capture_output=True, text=True, check=True)
        return done.stdout

    def file(self, path: str = "") -> Path:
        """A file of this node as seen from outside; relative to its working directory."""
        return Path(f"/proc/{self.keeper.pid}/root") / Path(WORK, path).relative_to("/")

    def network_bytes(self) -> dict[str, int]:
        """Interface -> bytes that it has sent and received."""
        links = json.loads(self.run("ip", "-json", "-stats", "link"))
        return {
            link["ifname"]: sum(link["stats64"][way]["bytes"] for way in ("tx", "rx"))
            for link in links
        }

    def processes(self) -> list[int]:
        """All that run on this node, the keeper too."""
        return [int(pid) for pid in ip("netns", "pids", self.space).split()]

    def _enter(self) -> list[str]:
        keeper = self.keeper.pid
        spaces = ["-n", "-m", "-u", "-i", f"--time=/proc/{keeper}/ns/time_for_children"]
        return ["nsenter", "-t", str(keeper), *spaces]


@dataclass(frozen=True)
class Cluster:
    """Two nodes; their owner removes them, or `cluster-down` those with a label `by_hand`."""

    spaces: tuple[str, str]
    names: tuple[str, str]
    subnets: str
    owner: Process
    by_hand: str = ""
    keepers: tuple[Process, ...] = ()

    @property
    def nodes(self) -> tuple[Node, Node]:
        first, second = (
            Node(index, self.names[index], self.spaces[index], self.subnets, keeper)
            for index, keeper in enumerate(self.keepers)
        )
        return first, second

    def hostfile(self, slots: tuple[int, int] = (2, 2)) -> str:
        """The text of a hostfile, in the form of hostfiles/tcpx.txt."""
        pairs = zip(self.nodes, slots, strict=True)
        return "".join(f"{node.address(CONTROL)} slots={count}\n" for node, count in pairs)

    def remove(self) -> None:
        """Ends all that runs on the nodes, and the nodes."""
        for space in self.spaces:
            end_processes(space)
            # Its veth pairs go with it; what never came to be need not go.
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)
        for keeper in self.keepers:
            if (child := _CHILDREN.pop(keeper.pid, None)) is not None:
                child.wait()
        _state_file(self).unlink(missing_ok=True)


def address(subnets: str, interface: str, node: int) -> str:
    """A subnet for each pair of interfaces: the first node has .1 there, the second .2."""
    return f"{subnets}.{interface.removeprefix('eth')}.{node + 1}"


@contextlib.contextmanager
def cluster(names: tuple[str, str] = NAMES, ahead_s: int = 0) -> Iterator[Cluster]:
    """Two nodes with these host names until the context ends; the clock of the second one is so
    much ahead. Raises NoCluster."""
    made = up(names, ahead_s=ahead_s)
    try:
        yield made
    finally:
        made.remove()


def up(names: tuple[str, str] = NAMES, by_hand: str = "", ahead_s: int = 0) -> Cluster:
    """Makes two nodes; those with a label `by_hand` outlive this process. Raises NoCluster."""
    require_tools()
    remove_stale()
    token = f"{os.getpid():x}{time.monotonic_ns() // 1000 & 0xFFFFF:05x}"
    made = Cluster(
        spaces=(f"tcpx-{token}-0", f"tcpx-{token}-1"),
        names=names,
        # Each run has addresses of its own, so that nothing can know them but by asking.
        subnets=f"10.{64 + os.getpid() % 64}",
        owner=Process.of(os.getpid()),
        by_hand=by_hand,
    )
    _write_state(made)  # before there is anything to be removed
    try:
        for space in made.spaces:
            ip("netns", "add", space)
            ip("-n", space, "link", "set", "lo", "up")
        for interface in (CONTROL, *DATA):
            _connect(made, interface)
        keepers = tuple(_start_keeper(made, index, index * ahead_s) for index in (0, 1))
        owner = keepers[0] if by_hand else made.owner
        made = dataclasses.replace(made, keepers=keepers, owner=owner)
        _write_state(made)
        for node in made.nodes:
            # Where the agent looks up a host, as ssh does in /etc/hosts.
            lines = [f"{n.address(CONTROL)} {name} {n.keeper.pid}\n"
                     for n, name in zip(made.nodes, NAMES, strict=True)]  # fmt: skip
            node.file("/tmp/nodes").write_text("".join(lines))
            node.file("hosts").write_text(made.hostfile())
    except BaseException:
        made.remove()
        raise
    return made


def require_tools() -> None:
    """Raises NoCluster where this machine or user cannot have nodes."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        raise NoCluster(
            f"{', '.join(missing)} not found: install iproute2 and util-linux "
            "(apt-get install iproute2 util-linux)"
        )
    if os.geteuid() != 0:
        raise NoCluster("only root can make network namespaces: use sudo, or a container as root")


def clusters() -> list[Cluster]:
    """Every cluster of this machine that has a state, its owner dead or alive."""
    found = []
    for path in sorted(STATES.glob("*.json")):
        with contextlib.suppress(OSError, ValueError):  # removed, or being written, meanwhile
            facts = json.loads(path.read_text())
            owner = Process(**facts.pop("owner"))
            keepers = tuple(Process(**keeper) for keeper in facts.pop("keepers"))
            spaces, names = tuple(facts.pop("spaces")), tuple(facts.pop("names"))
            found.append(Cluster(spaces, names, owner=owner, keepers=keepers, **facts))
    return found


def remove_stale() -> None:
    """Removes what dead owners have left."""
    for found in clusters():
        if not found.owner.alive:
            found.remove()


def _connect(made: Cluster, interface: str) -> None:
    first, second = made.spaces
    ip("link", "add", interface, "netns", first, "type", "veth", "peer", "name", interface,
       "netns", second)  # fmt: skip
    for index, space in enumerate(made.spaces):
        own = address(made.subnets, interface, index)
        ip("-n", space, "addr", "add", f"{own}/24", "dev", interface)
        ip("-n", space, "link", "set", interface, "up")
    for space in made.spaces:
        wait_for_carrier(space, interface)


def _start_keeper(made: Cluster, index: int, ahead_s: int) -> Process:
    """The process that holds a node; it dies with this one unless the cluster is by hand."""
    lines = [f"{address(made.subnets, CONTROL, node)} {name}" for node, name in enumerate(NAMES)]
    hosts = "\n".join(["127.0.0.1 localhost", *lines])
    kept = {str(TREE), sys.prefix, sys.base_prefix}
    time = ["--time", f"--monotonic={ahead_s}"] if ahead_s else []
    keeper = subprocess.Popen(
        ["ip", "netns", "exec", made.spaces[index], "unshare", "--mount", "--uts", "--ipc", *time,
         "bash", str(HERE / "node.sh"), made.names[index], hosts, *sorted(kept)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True, preexec_fn=None if made.by_hand else _die_with_parent,
    )  # fmt: skip
    assert keeper.stdout is not None
    with keeper.stdout as said:
        lines = []
        for line in said:
            if line == "ready\n":
                _CHILDREN[keeper.pid] = keeper
                return Process.of(keeper.pid)
            lines.append(line.strip())
    keeper.wait()
    raise NoCluster(f"node {made.names[index]} does not start: {'; '.join(lines)}")


def _die_with_parent() -> None:
    _PRCTL(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _state_file(made: Cluster) -> Path:
    return STATES / f"{made.spaces[0]}.json"


def _write_state(made: Cluster) -> None:
    STATES.mkdir(parents=True, exist_ok=True)
    path = _state_file(made)
    unfinished = path.with_suffix(".new")
    unfinished.write_text(json.dumps(dataclasses.asdict(made), indent=1))
    unfinished.replace(path)
