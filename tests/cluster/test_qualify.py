"""Two nodes qualified: what loses packets and what does not fit is named; a bad call is refused."""

from __future__ import annotations

from pathlib import Path

import network_faults as faults
import pytest
from jobs import run, tcpx_mpi
from launcher import Launcher
from nodes import NAMES, Cluster
from qualified import WITHIN, qualify, read_qualified

pytestmark = pytest.mark.multirank


def test_a_nic_that_loses_packets_is_named_with_its_node_and_the_other_node_is_not(
    nodes: Cluster, tmp_path: Path
) -> None:
    nodes.nodes[1].run("sysctl", "-w", "net.ipv4.tcp_rmem=4096 131072 6291457")
    with faults.loss(nodes.nodes[1], "eth2", one_in=100):
        found = qualify(nodes, tmp_path)
    assert found.result.code == 9, found.result.text
    assert found.verdicts[NAMES[1]] == "unfit", found.result.text
    assert "pairs, loses packets: NIC eth2 of tcpx-node-1, receiving: " in found.evidence(NAMES[1])
    assert found.verdicts[NAMES[0]] != "unfit", found.result.text
    first, second = (each["devices"] for each in found.document["nodes"])
    assert [(each["device"], each["verdict"]) for each in second][1] == ("NIC eth2", "unfit")
    assert "unfit" not in [each["verdict"] for each in first]
    # Another setting is no fault, and is said.
    (differs,) = {text for each in found.document["nodes"] for text in each["differs"]}
    assert differs.startswith("net.ipv4.tcp_rmem: "), differs
    assert f"{NAMES[1]} has 4096 131072 6291457" in differs


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "qualify needs nodes: give --hostfile FILE or --ranks N, one of them"),
        (
            ("--ranks", "2", "--within", "5s"),
            "--within (5 s) is shorter than preflight, a smoke test",
        ),
        (("--ranks", "2", "--prom", "none/q.prom"), "--prom: the directory none does not exist"),
        (("--ranks", "2", "--gate", "none.toml"), "none.toml"),
        (("--ranks", "2", "--plugin", "none.so"), "none.so"),
        (("--hostfile", "none"), "--hostfile (none)"),
    ],
)
def test_a_bad_call_is_refused_in_a_line_before_any_rank_starts(
    options: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    refused = run(tcpx_mpi("qualify", *options), tmp_path)
    assert refused.code in (2, 3), refused.text
    assert refused.out == ""
    assert len(refused.err.splitlines()) == 1, refused.text
    assert said in refused.errors[0]


def test_a_rank_of_somebody_elses_launcher_is_told_to_name_no_nodes(tmp_path: Path) -> None:
    refused = run(
        tcpx_mpi("qualify", "--ranks", "2"), tmp_path,
        {"PMIX_RANK": "0", "SLURM_NTASKS": "2"},
    )  # fmt: skip
    assert refused.code == 2, refused.text
    assert "leave out --hostfile and --ranks" in refused.errors[0]
    refused = run(
        tcpx_mpi("qualify"), tmp_path, {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4"}
    )
    assert refused.code == 2, refused.text
    assert "srun --mpi=pmix" in refused.errors[0]


@pytest.mark.variant  # as qualify without a launcher, after the ranks have told where they are
def test_ranks_of_an_mpirun_are_the_nodes_and_the_first_of_them_looks_at_all(
    launcher: Launcher, tmp_path: Path
) -> None:
    first, second = launcher.cluster.nodes
    words = ("qualify", "--plugin", "softtcpx", "--within", WITHIN, "--json", "q.json")
    with faults.loss(second, "eth2", one_in=100):
        result = run(launcher.command(*words, NCCL_SOCKET_IFNAME="eth1,eth2"), tmp_path)
    found = read_qualified(launcher.cluster, result)
    assert found.result.code == 9, result.text
    assert found.verdicts[NAMES[1]] == "unfit", result.text
    assert "pairs, loses packets: NIC eth2 of tcpx-node-1, receiving: " in found.evidence(NAMES[1])
    assert not second.file("q.json").exists()
    assert first.file("q.json").exists()
