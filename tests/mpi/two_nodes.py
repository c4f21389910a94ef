"""Two nodes on one machine: network namespaces with an Ethernet between them, and a launch agent.

Each has an eth0 for mpirun and MPI, and an eth1 for the data. A node's processes have a host name
of their own and, as over a real ssh, a clean environment.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jobs import tcpx_mpi

from tcpx_mpi import launch

#: A private range for each interface: node 1 has .1, node 2 has .2.
CONTROL, DATA = "10.213.0", "10.213.1"


class NoNodes(Exception):
    """This machine or this user cannot have network namespaces."""


@dataclass(frozen=True)
class TwoNodes:
    """The names of the nodes, which are those of their namespaces and hosts."""

    names: tuple[str, str]
    directory: Path

    def mpirun(self, per_node: int, *arguments: str, **variables: str) -> list[str]:
        """The command that runs tcpx-mpi with so many ranks on each node, from the first."""
        options = ["--prtemca", "plm_ssh_agent", str(self.directory / "agent")]
        options += ["--prtemca", "prte_if_include", "eth0", "--mca", "btl_tcp_if_include", "eth0"]
        options += ["-hostfile", str(self.directory / "hosts"), "--bind-to", "none"]
        options += ["-n", str(2 * per_node)]
        exports = {"NCCL_SOCKET_IFNAME": "eth1", **variables}
        options += [word for pair in exports.items() for word in ("-x", "=".join(pair))]
        mpirun = [launch.find_mpirun(os.environ), *options]
        name = self.names[0]
        script = f'hostname {name} && exec "$@"'
        return ["ip", "netns", "exec", name, "unshare", "--uts", "bash", "-c", script, name,
                *mpirun, *tcpx_mpi(*arguments)]  # fmt: skip

    def data_bytes(self) -> int:
        """Bytes that have left the first node by its data network, headers included."""
        found = json.loads(ip("-n", self.names[0], "-s", "-j", "link", "show", "eth1"))
        return int(found[0]["stats64"]["tx"]["bytes"])


@contextlib.contextmanager
def two_nodes(directory: Path, per_node: int) -> Iterator[TwoNodes]:
    """Makes the nodes, and removes them whatever happens. Raises NoNodes."""
    for tool in ("ip", "unshare", "bash"):
        if shutil.which(tool) is None:
            raise NoNodes(f"{tool} is not installed")
    if os.geteuid() != 0:
        raise NoNodes("only root can make network namespaces")
    names = (f"tcpxtest{os.getpid()}a", f"tcpxtest{os.getpid()}b")
    try:
        for name in names:
            ip("netns", "add", name)
        for index, network in enumerate((CONTROL, DATA)):
            connect(names, f"eth{index}", network)
        for name in names:
            ip("-n", name, "link", "set", "lo", "up")
        write_launcher(directory, names, per_node)
        yield TwoNodes(names, directory)
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def connect(names: tuple[str, str], interface: str, network: str) -> None:
    """An Ethernet between the two, called `interface` on both sides."""
    first, second = names
    ip("link", "add", interface, "netns", first, "type", "veth", "peer", "name", interface,
       "netns", second)  # fmt: skip
    for host, name in enumerate(names, start=1):
        ip("-n", name, "addr", "add", f"{network}.{host}/24", "dev", interface)
        ip("-n", name, "link", "set", interface, "up")
    for name in names:
        wait_until_running(name, interface)


def wait_until_running(name: str, interface: str) -> None:
    """The carrier comes a little after both ends are up; until then it is no interface to use."""
    deadline = time.monotonic() + 10
    while "state UP" not in ip("-n", name, "-o", "link", "show", interface):
        if time.monotonic() > deadline:
            raise NoNodes(f"{interface} of {name} does not come up")
        time.sleep(0.01)


def write_launcher(directory: Path, names: tuple[str, str], per_node: int) -> None:
    """The hostfile, and what mpirun calls in place of ssh: AGENT [options] HOST COMMAND..."""
    addresses = [f"{CONTROL}.{host}" for host in (1, 2)]
    hosts = [f"{address} slots={per_node}\n" for address in addresses]
    (directory / "hosts").write_text("".join(hosts))
    cases = "\n".join(f"  {a}) node={n} ;;" for a, n in zip(addresses, names, strict=True))
    agent = directory / "agent"
    # A daemon's own processes must be found and killed like all others of a job.
    mark = '"TESTS_JOB=$TESTS_JOB"'
    agent.write_text(
        "#!/bin/bash\n"
        "while [[ $1 == -* ]]; do case $1 in -o | -l | -p | -i) shift 2 ;; *) shift ;; esac; done\n"
        "host=$1; shift\n"
        f'case $host in\n{cases}\n  *) echo "no node $host" >&2; exit 255 ;;\nesac\n'
        f'exec ip netns exec $node unshare --uts env -i HOME="$HOME" PATH=/usr/bin:/bin {mark} '
        'bash -c "hostname $node; $*"\n'
    )
    agent.chmod(0o755)


def ip(*arguments: str) -> str:
    """Runs iproute2 and returns what it prints. Raises NoNodes."""
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise NoNodes(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
