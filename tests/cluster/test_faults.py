"""What a network and a far node can do to a run: who ends, how, what is said and what is kept."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import network_faults as faults
import pytest
from exit_codes import codes_of, telling_code
from jobs import Job, Result, run, started, tcpx_mpi
from launcher import Launcher
from nodes import TREE, Cluster

from tcpx_mpi.records import Run, read_run

pytestmark = pytest.mark.multirank

PAGE = (TREE / "docs" / "how-to" / "clusters.md").read_text()
MIB = 1 << 20
STALL_S = 2
#: The first row is short, the second takes longer than it takes to meet its end.
ENDLESS = ("--sizes", "1,16M", "-n", "1000", "-c", "0", "-w", "0", "--check-memory", "4M",
           "--stall-timeout", str(STALL_S))  # fmt: skip
#: Some seconds of checked bytes.
CHECKED = ("--sizes", "1,4M", "-n", "300", "-w", "0", "--check-memory", "64M")


def in_mid_row(job: Job, nodes: Cluster) -> None:
    """Returns while the second row's bytes cross between the nodes."""
    job.wait_for_row(1)
    node = nodes.nodes[0]
    before = node.network_bytes()["eth1"]
    faults.until(lambda: node.network_bytes()["eth1"] > before + 32 * MIB, "bytes on eth1")


def one_row_in_file(nodes: Cluster, tmp_path: Path) -> Run:
    """The file of a run that ended in its second row; `report` says so."""
    path = str(nodes.nodes[0].file("o.h5"))
    found = read_run(path)
    assert [row.size_bytes for row in found.rows] == [1]
    assert not found.complete
    report = run(tcpx_mpi("report", path), tmp_path)
    assert report.code == 12, report.text
    assert "1 of 2 rows: 16 MiB" in report.errors[0]
    return found


def telling_codes(command: list[str]) -> list[str]:
    """The command of a run, whose ranks tell `codes` how each has ended."""
    at = command.index("tcpx-mpi")
    return [*command[:at], *telling_code("/tmp/code", command[at:])]


def codes(nodes: Cluster) -> dict[int, int]:
    """Rank -> exit code, of those that have ended."""
    return codes_of({rank: nodes.nodes[rank // 2].file(f"/tmp/code.{rank}") for rank in range(4)})


def assert_nothing_runs(nodes: Cluster) -> None:
    for node in nodes.nodes:
        assert node.processes() == [node.keeper.pid]


def test_a_link_that_goes_down_ends_in_a_report_that_names_nics_and_peers_on_both_nodes(
    nodes: Cluster, launcher: Launcher, tmp_path: Path
) -> None:
    second = nodes.nodes[1]
    with started(telling_codes(launcher.run_command("ring", *ENDLESS)), tmp_path) as job:
        in_mid_row(job, nodes)
        with faults.link_down(second, "eth1"):
            result = job.finish()
    assert result.code == 6, result.text
    assert codes(nodes) == dict.fromkeys(range(4), 6)
    assert len(result.errors) == 1, result.text
    assert re.search(r"rank \d on tcpx-node-\d \(NIC eth\d\), row 1 \(16 MiB\): no progress for "
                     r"2 s; waiting for rank \d", result.errors[0])  # fmt: skip
    # Every rank of both nodes says where it stands; those that had finished a batch wait for none.
    for rank in range(4):
        place = rf"rank {rank} on tcpx-node-{rank // 2} \(NIC eth{rank % 2 + 1}\)"
        assert re.search(rf"^# {place}, row 1 ", result.err, re.M), result.text
    # Between the nodes a ring has 1 -> 2 and 3 -> 0: who waits names the other, and its NIC.
    ways = r"receive from rank (1 on tcpx-node-0|3 on tcpx-node-1) \(NIC eth2\), lane 0"
    assert re.search(rf"^#     {ways}, .*, posted ([2-9]|1\d)\.\d s ago; ", result.err, re.M), (
        result.text
    )
    fault = one_row_in_file(nodes, tmp_path).fault
    assert fault is not None
    assert (fault.kind, fault.exit_code, fault.missing_ranks) == ("stall", 6, ())
    assert_nothing_runs(nodes)


def checked_run_survives(result: Result, nodes: Cluster) -> Run:
    """Every byte came right."""
    assert result.code == 0, result.text
    assert [row.wrong for row in result.rows] == [0, 0]
    found = read_run(str(nodes.nodes[0].file("o.h5")))
    assert found.complete
    return found


def sent_again(found: Run) -> int:
    """Segments that had to be sent again."""
    return sum(int(row.tcp_retransmits.sum()) for row in found.rows)


@pytest.mark.variant
def test_a_link_that_flaps_within_the_deadline_costs_no_byte(
    nodes: Cluster, launcher: Launcher, tmp_path: Path
) -> None:
    second = nodes.nodes[1]
    with started(launcher.run_command("ring", *CHECKED), tmp_path) as job:
        in_mid_row(job, nodes)
        with faults.link_down(second, "eth1"):
            faults.until_sending_in_vain(nodes.nodes, "eth1")
        result = job.finish()
    assert sent_again(checked_run_survives(result, nodes)) > 0


def test_lost_packets_are_sent_again_and_every_byte_is_right(
    nodes: Cluster, launcher: Launcher, tmp_path: Path
) -> None:
    with faults.loss(nodes.nodes[1], "eth1", one_in=20):
        # Some 300 packets, each up to 64 KiB: of one in 100 there may be none.
        options = ("--sizes", "1,1M", "-n", "20", "--check-memory", "64M")
        result = run(launcher.run_command("ring", *options), tmp_path)
    assert sent_again(checked_run_survives(result, nodes)) > 0


@pytest.mark.variant
def test_a_slow_link_is_measured_as_slow_and_every_byte_is_right(
    nodes: Cluster, launcher: Launcher, tmp_path: Path
) -> None:
    with faults.rate_limit(nodes.nodes[1], "eth1", "200mbit"):
        options = ("--sizes", "1,1M", "-n", "20", "--check-memory", "64M")
        result = run(launcher.run_command("ring", *options), tmp_path)
    checked_run_survives(result, nodes)
    # 200 Mb/s of packets, and a burst: what is above it did not go by this link.
    row = result.rows[1]
    # Far below it where packets are lost, and a busy machine is late to notice.
    assert 1 < row.size / row.time_us < 27, result.text  # MB/s


def test_connections_that_are_reset_are_an_error_of_their_own(
    nodes: Cluster, launcher: Launcher, tmp_path: Path
) -> None:
    with started(launcher.run_command("ring", *ENDLESS), tmp_path) as job:
        in_mid_row(job, nodes)
        assert faults.reset_connections(nodes.nodes[1], "eth1") > 0
        result = job.finish()
    assert result.code == 7, result.text
    assert len(result.errors) == 1, result.text
    assert re.search(r"^rank \d on tcpx-node-\d \(NIC eth\d\), row 1 \(16 MiB\): plugin call test "
                     r"returned 2 \(system error\): rank \d is gone, or its connection is; "
                     r"(send to|receive from) rank \d on tcpx-node-\d \(NIC eth\d\), ",
                     result.errors[0])  # fmt: skip
    fault = one_row_in_file(nodes, tmp_path).fault
    assert fault is not None
    assert (fault.kind, fault.exit_code) == ("lost_rank", 7)
    assert_nothing_runs(nodes)


def test_ranks_end_by_themselves_when_the_control_network_is_gone_for_good(
    nodes: Cluster, launcher: Launcher, tmp_path: Path
) -> None:
    with started(telling_codes(launcher.run_command("ring", *ENDLESS)), tmp_path) as job:
        in_mid_row(job, nodes)
        with faults.link_down(nodes.nodes[1], "eth0"):
            faults.until(lambda: len(codes(nodes)) == 4, "end of the ranks")
            text = job.wait_for("tcpx-mpi: error: ")
            # mpirun itself waits for its far daemon (docs/how-to/clusters.md).
            job.kill()
    assert codes(nodes) == dict.fromkeys(range(4), 7)
    far = r"2 on tcpx-node-1 \(NIC eth1\), 3 on tcpx-node-1 \(NIC eth2\)"
    assert re.search(rf"error: rank {far} did not answer the roll call; ", text), text
    fault = one_row_in_file(nodes, tmp_path).fault
    assert fault is not None
    assert (fault.kind, fault.exit_code, fault.missing_ranks) == ("lost_rank", 7, (2, 3))
    assert_nothing_runs(nodes)


def test_the_death_of_the_far_node_ends_the_near_one_and_keeps_the_rows(
    nodes: Cluster, launcher: Launcher, tmp_path: Path
) -> None:
    with started(in_a_script(launcher), tmp_path) as job:
        in_mid_row(job, nodes)
        faults.kill(nodes.nodes[1])
        result = job.finish()
    # What is said is mpirun's; its code is 0 or 255, and what a script sees is never 0.
    assert re.search(r"Remote (daemon|host): .*tcpx-node-1", result.out + result.err), result.text
    assert result.code in (12, 255), result.text
    one_row_in_file(nodes, tmp_path)
    assert_nothing_runs(nodes)


@pytest.mark.variant
def test_a_script_sees_a_whole_run_as_a_success(
    nodes: Cluster, launcher: Launcher, tmp_path: Path
) -> None:
    result = run(in_a_script(launcher, "--sizes", "1K", "-n", "5"), tmp_path)
    assert result.code == 0, result.text
    report = nodes.nodes[0].file("report.txt").read_text()
    assert "# Out of bounds values : 0 OK" in report


def in_a_script(launcher: Launcher, *options: str) -> list[str]:
    """The page's line for scripts on the first node, with a run of ours, into o.h5."""
    (line,) = re.findall(r"^ +(mpirun .* && tcpx-mpi report .*)$", PAGE, re.M)
    run_step, report_step = line.replace("ring.h5", "o.h5").split(" && ")
    assert run_step.endswith("--hdf5 o.h5"), line
    command = launcher.run_command("ring", *(options or ENDLESS))
    at = command.index("mpirun")
    return [*command[:at], "bash", "-c", f"{shlex.join(command[at:])} && {report_step}"]


# --- Before anything is measured ------------------------------------------------------------------


def test_an_unknown_host_is_named_and_nothing_is_left(
    nodes: Cluster, launcher: Launcher, tmp_path: Path
) -> None:
    hosts = "tcpx-node-0 slots=2\ntcpx-node-9 slots=2\n"
    result = run(launcher.run_command("ring", hosts=hosts), tmp_path)
    assert result.code != 0
    assert "Could not resolve hostname tcpx-node-9" in result.err
    assert_nothing_runs(nodes)


@pytest.mark.variant
def test_uneven_slots_are_refused_with_the_nodes_named(
    nodes: Cluster, launcher: Launcher, tmp_path: Path
) -> None:
    command = launcher.run_command("ring", hosts=nodes.hostfile((3, 1)))
    result = run(command, tmp_path)
    assert_refused(result, nodes)
    assert "tcpx-node-0 has 3, tcpx-node-1 has 1" in result.errors[0]


def assert_refused(result: Result, nodes: Cluster, code: int = 2) -> None:
    assert result.code == code, result.text
    assert len(result.errors) == 1, result.text
    for node in nodes.nodes:
        assert not node.file("o.h5").exists()
    assert_nothing_runs(nodes)


def test_a_data_interface_that_is_down_is_named_with_its_node(
    nodes: Cluster, launcher: Launcher, tmp_path: Path
) -> None:
    nodes.nodes[1].run("ip", "addr", "flush", "dev", "eth2")
    result = run(launcher.run_command("ring"), tmp_path)
    assert_refused(result, nodes)
    assert result.errors[0].startswith(
        "rank 2 on tcpx-node-1: eth2 of NCCL_SOCKET_IFNAME has no IPv4 address: ip addr add "
        "ADDRESS dev eth2, or leave it out on all nodes; usable are "
    )


@pytest.mark.variant
def test_data_interfaces_of_ipv6_alone_are_said_by_run_and_preflight_alike(
    nodes: Cluster, launcher: Launcher, tmp_path: Path
) -> None:
    for node in nodes.nodes:
        node.run("ip", "addr", "flush", "dev", "eth1")
        node.run("ip", "-6", "addr", "add", f"fd00::{node.index + 1}/64", "dev", "eth1", "nodad")
    result = run(launcher.run_command("pair", NCCL_SOCKET_IFNAME="eth1"), tmp_path)
    assert_refused(result, nodes)
    cause = "eth1 of NCCL_SOCKET_IFNAME has no IPv4 address, but one of IPv6, which is not used"
    assert f"finds 0 devices, {cause} here: ip addr add ADDRESS dev eth1" in result.errors[0]
    command = nodes.nodes[0].command("tcpx-mpi", "preflight", "--plugin", "softtcpx")
    checked = run(command, tmp_path, {"NCCL_SOCKET_IFNAME": "eth1"})
    assert checked.code == 4, checked.text
    assert f"{cause} here -> ip addr add ADDRESS dev eth1" in checked.out


@pytest.mark.variant
def test_a_data_interface_that_is_absent_is_named_with_its_node(
    nodes: Cluster, launcher: Launcher, tmp_path: Path
) -> None:
    nodes.nodes[1].run("ip", "link", "set", "eth4", "down")
    nodes.nodes[1].run("ip", "link", "set", "eth4", "name", "other")
    # The other end of the cable has lost its carrier: left to the test above.
    result = run(launcher.run_command("ring", NCCL_SOCKET_IFNAME="other,eth1"), tmp_path)
    assert_refused(result, nodes)
    assert result.errors[0].startswith(
        "rank 0 on tcpx-node-0: NCCL_SOCKET_IFNAME names other, which is none of eth0, "
    )


def test_a_data_interface_that_lets_nothing_in_is_named_with_both_nodes(
    nodes: Cluster, launcher: Launcher, tmp_path: Path
) -> None:
    with faults.firewall(nodes.nodes[1], "eth1"):
        result = run(launcher.run_command("pair", "--connect-timeout", "1"), tmp_path)
    assert_refused(result, nodes, code=4)
    assert re.search(
        r"^rank 0 on tcpx-node-0 \(NIC eth1\): .* connections did not come up within 1\.000 s: "
        r"to rank 2, .*; rank 2 is on tcpx-node-1 \(NIC eth1\)"
        r".*from rank 0, lane 0", result.errors[0],
    )  # fmt: skip


@pytest.mark.variant
def test_mpi_without_its_control_network_ends_with_the_node_named(
    nodes: Cluster, launcher: Launcher, tmp_path: Path
) -> None:
    with faults.link_down(nodes.nodes[1], "eth0"):
        # mpirun itself finds another way, which would not be there with a real ssh.
        hosts = "".join(f"{node.address('eth4')} slots=2\n" for node in nodes.nodes)
        for node in nodes.nodes:
            lines = [f"{n.address('eth4')} {n.name} {n.keeper.pid}\n" for n in nodes.nodes]
            node.file("/tmp/nodes").write_text("".join(lines))
        result = run(launcher.run_command("ring", hosts=hosts), tmp_path)
    assert result.code == 4, result.text
    assert result.errors
    # Rank 0 may find time to say what it waited for when mpirun ends it.
    causes = [line for line in result.errors if "interrupted by signal 15 in set-up" not in line]
    assert causes
    assert causes[0] == result.errors[0]
    assert all("MPI cannot reach every other rank" in line for line in causes), result.text
    assert re.search(r"rank [0-3] on tcpx-node-[01]: ", result.errors[0])
    assert_nothing_runs(nodes)
