"""The quickstart's mpirun on a cluster of two nodes, for every test that starts ranks there."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from jobs import SLOTS
from namespaces import NoCluster
from nodes import NAMES, SPOOL, TREE, WORK, Cluster, cluster

_PAGE = re.compile(r"^mpirun -hostfile hostfiles/tcpx\.txt (.*?) tcpx-mpi run ring ", re.M)


@contextlib.contextmanager
def cluster_or_skip(names: tuple[str, str] = NAMES, ahead_s: int = 0) -> Iterator[Cluster]:
    """Two nodes of a test's own; see `cluster`."""
    with contextlib.ExitStack() as stack:
        try:
            made = stack.enter_context(cluster(names, ahead_s))
        except NoCluster as error:
            pytest.skip(f"needs netns: {error}")
        yield made


@dataclass(frozen=True)
class Launcher:
    """The quickstart's command for two nodes, with this cluster's hostfile in place of its own."""

    cluster: Cluster

    def command(self, *arguments: str, hosts: str = "", **variables: str) -> list[str]:
        """The command on the first node that runs `tcpx-mpi ARGUMENTS` on both.

        `hosts` is the text of another hostfile; `variables` are set in place of the page's own.
        """
        first = self.cluster.nodes[0]
        first.file("hosts").write_text(hosts or self.cluster.hostfile())
        found = _PAGE.search((TREE / "docs" / "quickstart.md").read_text())
        assert found, "docs/quickstart.md has no mpirun with hostfiles/tcpx.txt"
        options = found[1]
        for name, value in variables.items():
            options = re.sub(rf"-x {name}=\S+", "", options) + f" -x {name}={value}"
        return first.command("mpirun", "-hostfile", "hosts", *options.split(),
                             "tcpx-mpi", *arguments)  # fmt: skip

    def run_command(self, pattern: str, *options: str, **how: str) -> list[str]:
        """A run of a pattern whose file is o.h5 and whose journals are in the spool."""
        files = ("--hdf5", f"{WORK}/o.h5", "--spool", SPOOL)
        slots = () if "--check-memory" in options else ("--check-memory", SLOTS)
        return self.command("run", pattern, "--plugin", "softtcpx", *files, *slots, *options, **how)
