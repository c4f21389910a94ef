"""The two nodes themselves: made by hand, removed always."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import nodes as bench
import pytest
from namespaces import NoCluster, Process, ip
from network_faults import until
from nodes import HERE, clusters, remove_stale

MAKER = """
import sys; sys.path.insert(0, sys.argv[1])
from nodes import up
made = up()
print(*made.spaces, *(keeper.pid for keeper in made.keepers), flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _able(nodes: bench.Cluster) -> None:
    """Skips where there can be no nodes; those of the fixture must survive what is done here."""


#: Not the tree's own, which somebody may type at.
LABEL = f"test {os.getpid()}"


def cluster_py(*words: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "TCPX_MPI_CLUSTER": LABEL}
    command = [sys.executable, str(HERE / "cluster.py"), *words]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


def test_a_cluster_made_by_hand_runs_what_it_prints_and_is_gone_when_it_is_down(
    nodes: bench.Cluster,
) -> None:
    done = cluster_py("up")
    try:
        assert done.returncode == 0, done.stderr
        (line,) = re.findall(r"^  (.* on 0 mpirun .*)$", done.stdout, re.M)
        environ = {**os.environ, "TCPX_MPI_CLUSTER": LABEL}
        printed = subprocess.run(
            line, shell=True, env=environ, capture_output=True, text=True, check=False
        )
        assert printed.returncode == 0, printed.stdout + printed.stderr
        assert "# Out of bounds values : 0 OK" in printed.stdout
        assert "Written              : tcpx-mpi-ring-" in printed.stdout
        again = cluster_py("up")
        assert again.returncode == 2
        assert again.stderr.splitlines() == [
            "a cluster is up already: use it, or cluster.py down first"
        ]
    finally:
        down = cluster_py("down")
    assert (down.returncode, down.stdout) == (0, "down\n")
    assert [found.spaces for found in clusters() if found.by_hand == LABEL] == []
    assert cluster_py("on", "0", "true").stderr == "no cluster is up: cluster.py up\n"
    assert all(keeper.alive for keeper in nodes.keepers)


def test_what_a_killed_owner_leaves_is_removed_by_the_next(nodes: bench.Cluster) -> None:
    maker = subprocess.Popen(
        [sys.executable, "-c", MAKER, str(HERE)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert maker.stdout is not None
    *spaces, first, second = maker.stdout.readline().split()
    keepers = [Process.of(int(pid)) for pid in (first, second)]
    maker.send_signal(signal.SIGKILL)
    maker.communicate()
    until(lambda: not any(keeper.alive for keeper in keepers), "end of the keepers")
    assert set(spaces) <= set(network_namespaces())
    remove_stale()
    assert not set(spaces) & set(network_namespaces())
    assert not any(set(found.spaces) & set(spaces) for found in clusters())
    assert set(nodes.spaces) <= set(network_namespaces())


def network_namespaces() -> list[str]:
    return [line.split()[0] for line in ip("netns").splitlines()]


def test_who_cannot_have_nodes_is_told_so_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 1000)
        with pytest.raises(NoCluster, match=r"^only root can make network namespaces: .*$"):
            bench.up()
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        with pytest.raises(NoCluster, match=r"^ip, tc, .* not found: install iproute2 .*$"):
            bench.up()
