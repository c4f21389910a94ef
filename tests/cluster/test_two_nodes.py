"""Ranks on two nodes that share nothing but Ethernets, started by the quickstart's command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from jobs import run
from launcher import Launcher, cluster_or_skip
from nodes import DATA, SPOOL, TREE, WORK, Cluster
from timelines import Timeline, require_sound
from variants import variant

from tcpx_mpi.cpu_lists import parse_cpu_list
from tcpx_mpi.records import Run, read_run
from tcpx_mpi.report import summarise_row

pytestmark = pytest.mark.multirank

SIZE, ITERS = 1 << 20, 20
MIB = 1 << 20
#: What a control network carries in a run of some seconds, at most.
LITTLE = 2 * MIB
QUICKSTART, CLUSTERS = (
    (TREE / "docs" / name).read_text() for name in ("quickstart.md", "how-to/clusters.md")
)
IDENTITY = "from tcpx_mpi.machine.topology import read_host as r; h = r(); print(h.node, h.clock)"


def file_of(nodes: Cluster) -> Run:
    """The file of a run that ended well: on the first node, and nothing else on any."""
    first, second = nodes.nodes
    assert sorted(path.name for path in first.file().iterdir()) == ["hosts", "o.h5"]
    assert [path.name for path in second.file().iterdir()] == ["hosts"]
    for node in nodes.nodes:
        assert list(node.file(SPOOL).iterdir()) == [], "journals are left"
        assert node.processes() == [node.keeper.pid]
    found = read_run(str(first.file("o.h5")))
    assert found.complete
    return found


@pytest.mark.parametrize("pattern", ["ring", variant("mesh"), variant("pair")])
def test_two_nodes_exchange_checked_bytes_over_their_data_networks(
    pattern: str, nodes: Cluster, launcher: Launcher, tmp_path: Path
) -> None:
    before = [node.network_bytes() for node in nodes.nodes]
    command = launcher.run_command(
        pattern, "--sizes", f"17,{SIZE}", "-n", str(ITERS), "--check-memory", "64M"
    )
    result = run(command, tmp_path)
    assert result.code == 0, result.text
    assert [row.wrong for row in result.rows] == [0, 0]
    found = file_of(nodes)
    ranks = found.header.ranks
    assert [info.host for info in ranks] == [name for name in nodes.names for _ in (0, 1)]
    assert len({info.node for info in ranks}) == 2
    assert [info.nic for info in ranks] == ["eth1", "eth2"] * 2

    # MPI keeps to eth0; what leaves a node goes to the NIC of the rank that it is for.
    for node, were in zip(nodes.nodes, before, strict=True):
        carried = {name: total - were[name] for name, total in node.network_bytes().items()}
        # A ring has one message each way between the nodes, both to a rank on eth1; mesh has four
        # quarters on each of two NICs, pair one message.
        across = {"ring": [2, 0], "mesh": [1, 1], "pair": [1, 1]}[pattern]
        for nic, messages in zip(DATA, [*across, 0, 0], strict=True):
            payload = messages * ITERS * SIZE
            assert payload <= carried[nic] <= 1.5 * payload + LITTLE, (node.name, nic, carried)
        assert 0 < carried["eth0"] < LITTLE, carried


@pytest.mark.parametrize(("pattern", "idle"), [("ring", [1, 3]), variant("pair", [])])
def test_a_nic_that_idles_while_its_rank_sends_is_in_the_footer(
    pattern: str, idle: list[int], launcher: Launcher, tmp_path: Path
) -> None:
    # In a ring ranks 1 and 3 send to ranks on eth1, so what they send leaves by eth1.
    command = launcher.run_command(pattern, "--sizes", str(SIZE), "-n", str(ITERS))
    result = run(command, tmp_path)
    assert result.code == 0, result.text
    warnings = [line for line in result.out.splitlines() if line.startswith("# WARNING")]
    found = [line for line in warnings if "the bytes took another network" in line]
    assert len(found) == len(idle), result.text
    for rank, line in zip(idle, found, strict=True):
        assert f"rank {rank} on tcpx-node-{rank // 2} " in line
        assert "NIC eth2 carried " in line


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs cpus: one for each thread")
def test_threads_of_the_plugin_leave_progress_threads_their_cpus(
    nodes: Cluster, launcher: Launcher, tmp_path: Path
) -> None:
    options = ("--sizes", str(SIZE), "-n", str(10 * ITERS))
    one_each = nodes.hostfile((1, 1))
    command = launcher.run_command("pair", *options, hosts=one_each, NCCL_SOCKET_NTHREADS="2")
    result = run(command, tmp_path)
    assert result.code == 0, result.text
    found = file_of(nodes)
    (row,) = found.rows
    for info, seen in zip(found.header.ranks, row.proof, strict=True):
        others = os.sched_getaffinity(0) - {info.progress_cpu}
        assert seen.plugin_threads == 2
        assert {*parse_cpu_list(seen.plugin_cpus)} <= others


@pytest.mark.parametrize(("pattern", "warned"), [("ring", True), variant("pair", False)])
def test_more_connections_between_nodes_than_a_nic_is_good_for_are_in_the_footer(
    pattern: str, warned: bool, launcher: Launcher, tmp_path: Path
) -> None:
    # 8 sockets a channel: ring keeps its 2 channels, pair makes do with 1. Threads by the cores
    # would have more.
    options = ("--sizes", "64K", "--progress-threads", "1")
    command = launcher.run_command(
        pattern, *options, NCCL_NSOCKS_PERTHREAD="8", NCCL_SOCKET_IFNAME=",".join(DATA)
    )
    result = run(command, tmp_path)
    assert result.code == 0, result.text
    warning = "16 data connections on eth2 of tcpx-node-0, more than the 8 that a NIC of an A3"
    assert (warning in result.out) is warned, result.text
    assert ("data connections on" in result.out) is warned, result.text


def test_the_page_on_clusters_has_the_quickstarts_command() -> None:
    (line,) = [line for line in QUICKSTART.splitlines() if line.startswith("mpirun -hostfile")]
    assert f"\n       {line}\n" in CLUSTERS
    assert f"\n    {line} --hdf5 ring.h5 && tcpx-mpi report ring.h5 >report.txt\n" in CLUSTERS


@pytest.fixture
def namesakes() -> Iterator[Cluster]:
    """Two nodes with one host name."""
    with cluster_or_skip(names=("node", "node")) as made:
        assert {node.run("hostname").strip() for node in made.nodes} == {"node"}
        yield made


def test_nodes_of_one_name_have_an_identity_each_and_one_clock(namesakes: Cluster) -> None:
    identities = [node.run(sys.executable, "-c", IDENTITY).split() for node in namesakes.nodes]
    (node_a, clock_a), (node_b, clock_b) = identities
    assert node_a != node_b
    assert clock_a == clock_b, "one kernel has one clock"


@pytest.mark.variant
def test_ranks_on_nodes_of_one_name_are_told_apart_in_table_and_file(
    namesakes: Cluster, tmp_path: Path
) -> None:
    launcher = Launcher(namesakes)
    options = ("--sizes", str(SIZE), "-n", str(ITERS), "--check-memory", "64M")
    result = run(launcher.run_command("pair", *options), tmp_path)
    assert result.code == 0, result.text
    assert [row.wrong for row in result.rows] == [0]
    ranks = file_of(namesakes).header.ranks
    names = ["node#0", "node#0", "node#1", "node#1"]
    assert [info.host for info in ranks] == names
    assert ranks[0].node == ranks[1].node != ranks[2].node == ranks[3].node
    # As many ranks on each node as NICs are free there: four of one node would have four.
    assert [info.nic for info in ranks] == ["eth1", "eth2"] * 2
    lines = re.findall(r"^#  Rank +(\d) .* on +(\S+) device", result.out, re.M)
    assert lines == [(str(rank), name) for rank, name in enumerate(names)]
    # Between nodes, as pair is to be: rank 0 to 2 and 1 to 3, so all of it by the data NICs.
    for node in namesakes.nodes:
        carried = node.network_bytes()
        assert min(carried["eth1"], carried["eth2"]) >= ITERS * SIZE, carried


def test_what_one_node_writes_no_other_sees(nodes: Cluster) -> None:
    first, second = nodes.nodes
    for directory in (WORK, SPOOL, "/tmp", "/var/tmp", "/dev/shm"):
        first.run("touch", f"{directory}/mine")
        assert not second.file(f"{directory}/mine").exists()
    for shared in (str(TREE), str(Path.home()), "/etc", "/run", "/usr", str(Path("/"))):
        with pytest.raises(subprocess.CalledProcessError) as refused:
            first.run("touch", f"{shared}/mine")
        assert "Read-only file system" in refused.value.stderr


def test_the_launch_agent_passes_on_no_more_than_ssh(nodes: Cluster) -> None:
    agent = str(TREE / "tests" / "cluster" / "agent.sh")
    call = ("env", "SECRET=1", agent, "-x", "-p", "22", "tcpx-node-1", "hostname;", "env")
    said = subprocess.run(
        nodes.nodes[0].command(*call),
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    assert said[0] == "tcpx-node-1"
    names = {line.partition("=")[0] for line in said[1:]}
    assert names - {"_", "PWD", "SHLVL", "OLDPWD"} == {"HOME", "USER", "SHELL", "PATH"}


def test_a_mistake_of_ranks_on_another_node_is_one_line(launcher: Launcher, tmp_path: Path) -> None:
    result = run(launcher.run_command("ring", "--chunk", "3M"), tmp_path)
    assert result.code == 2, result.text
    assert len(result.errors) == 1, result.text


#: The clock of the second node is so far ahead.
DAYS_S = 3 * 86_400
#: A quarter of a MiB at 100 Mbit/s, but for the burst.
SLOW_NS = 15_000_000


def test_two_clocks_days_apart_are_one_within_the_bound(tmp_path: Path) -> None:
    with cluster_or_skip(ahead_s=DAYS_S) as made:
        launcher = Launcher(made)
        # What the second node sends leaves slowly, and so one direction is slow.
        for nic in DATA:
            shape = ("tbf", "rate", "100mbit", "burst", "32kb", "limit", "4mb")
            made.nodes[1].run("tc", "qdisc", "add", "dev", nic, "root", *shape)
        options = ("--sizes", "8,256K", "-n", "20", "--trace", "64", "-z", "1", "--one-way")
        result = run(launcher.run_command("pingpong", *options), tmp_path)
        assert result.code == 0, result.text
        found = file_of(made)
        assert [info.clock for info in found.header.ranks] == [0, 0, 1, 1]
        assert len(found.rows) == 2
        for row in found.rows:
            assert row.clock is not None
            (fit,) = row.clock.fits
            assert (fit.moved_ns, fit.suspended_ns) == (0, 0)
            for knot in row.clock.tree.edges[1].knots:
                # The kernel's own offset, to the nanosecond.
                assert abs(knot.offset_ns - DAYS_S * 10**9) <= knot.bound_ns < 10**7
            # All ranks mean one instant by an agreed start.
            starts = np.array([
                row.clock.tree.to_common(info.clock, row.batch_start[info.rank])
                for info in found.header.ranks
            ])  # fmt: skip
            assert np.ptp(starts, axis=0).max() <= 2 * row.clock.bound_ns
            ways = summarise_row(found.header, row).one_way
            assert ways is not None
            assert ways.bound_ns == row.clock.bound_ns
            if row.size_bytes > 8:
                assert ways.back_ns + ways.bound_ns > SLOW_NS
                assert 0 < ways.there_ns + ways.bound_ns < SLOW_NS
        assert "# Clock                : 2 clocks on one time, +-" in result.out
        # And so is the timeline: a message goes there and back, never before it was sent.
        export = ("export", f"{WORK}/o.h5", "--perfetto", f"{WORK}/o.json.gz")
        made.nodes[0].run(f"{Path(sys.executable).parent}/tcpx-mpi", *export)
        timeline = Timeline(made.nodes[0].file("o.json.gz"))
        bound_us = max(row.clock.bound_ns for row in found.rows if row.clock is not None) / 1e3
        assert timeline.facts["bound_us"] == bound_us
        require_sound(timeline, bound_us)
