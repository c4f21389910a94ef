"""What a preflight says of several nodes: what differs, and the hostfile that names them."""

from __future__ import annotations

import dataclasses
import socket
from pathlib import Path
from typing import Any

import pytest
from machines import machine
from preflight_facts import ETH0, ETH1, GOOD, GPUS, LO, PLUGIN, second, with_

from tcpx_mpi.errors import ExitCode, UsageError
from tcpx_mpi.launch import mpirun as launch
from tcpx_mpi.preflight import story
from tcpx_mpi.preflight.alike import agreement_findings, mpi_family, mpirun_finding
from tcpx_mpi.preflight.findings import Finding, Status
from tcpx_mpi.preflight.hostfile import (
    HostLine,
    hostfile_findings,
    parse_hostfile,
    reach_findings,
    read_hostfile,
    require_known,
)
from tcpx_mpi.preflight.story import nodes_finding


def test_nodes_without_variables_are_told_so_in_words_that_fit_any_interface_variable() -> None:
    (found,) = [f for f in agreement_findings([GOOD, second()]) if f.check == "same environment"]
    # NCCL_SOCKET_IFNAME may be set, and may differ.
    assert found.found == "no variable that must be alike is set"


def test_nodes_that_are_alike_pass_and_one_node_is_not_compared() -> None:
    assert {finding.status for finding in agreement_findings([GOOD, second()])} == {Status.OK}
    assert agreement_findings([GOOD]) == []


@pytest.mark.parametrize(
    ("changes", "check", "status", "words"),
    [
        ({"version": "0.2.0"}, "same tcpx-mpi", Status.FAILED, ("0.1.0", "a3-1 has 0.2.0")),
        ({"source": "def+changes"}, "same tcpx-mpi", Status.FAILED, ("0.1.0 def+changes",)),
        ({"plugin": dataclasses.replace(PLUGIN, sha256="b" * 64)}, "same plugin content",
         Status.FAILED, ("a3-0 has soft sha256 aaaaaaaaaaaa", "a3-1 has soft sha256 bbbbbbbbbbbb")),
        ({"mpi_library": "Open MPI v4.1.4"}, "same MPI", Status.FAILED, ("a3-1 has Open MPI v4",)),
        ({"python": "3.12.1"}, "same Python", Status.WARNING, ("a3-1 has 3.12.1",)),
        ({"interfaces": (ETH0, dataclasses.replace(ETH1, mtu=1500), LO)}, "same MTU",
         Status.WARNING, ("a3-0 has 8244", "a3-1 has 1500")),
        ({"profile": "profile a3 (auto)"}, "same profile", Status.FAILED,
         ("a3-0 has none", "a3-1 has profile a3 (auto)", "--profile")),
        (GPUS, "same GPUs", Status.WARNING,
         ("a3-0 has none", "a3-1 has 2 H100, not usable", "host memory")),
        ({"interface_variables": {"NCCL_SOCKET_IFNAME": "eth1,lo"},
          "interfaces": (ETH1, dataclasses.replace(LO, mtu=ETH1.mtu))}, "same NIC count",
         Status.FAILED, ("a3-0 has 1", "a3-1 has 2")),
        ({"congestion": "bbr"}, "same TCP default", Status.WARNING, ("a3-1 has bbr",)),
        ({"environment": {"NCCL_BUFFSIZE": "1"}}, "same NCCL_BUFFSIZE", Status.FAILED,
         ("a3-0 has not set", "a3-1 has 1", "mpirun -x")),
    ],
)  # fmt: skip
def test_what_differs_names_the_node_and_both_values(
    changes: dict[str, Any], check: str, status: Status, words: tuple[str, ...]
) -> None:
    findings = agreement_findings([GOOD, second(**changes)])
    (finding,) = [f for f in findings if f.status is not Status.OK]
    assert (finding.check, finding.status) == (check, status)
    for word in words:
        assert word in f"{finding.found} -> {finding.remedy}"


def test_nics_of_a_node_that_differ_in_mtu_are_named() -> None:
    both = {"interface_variables": {"NCCL_SOCKET_IFNAME": "eth1,eth2"}}
    eth2 = dataclasses.replace(ETH1, name="eth2")
    nodes = [
        with_(interfaces=(ETH1, eth2), **both),
        second(interfaces=(ETH1, dataclasses.replace(eth2, mtu=1500)), **both),
    ]
    (finding,) = [f for f in agreement_findings(nodes) if f.check == "same MTU"]
    assert finding.found == "a3-0 has 8244, a3-1 has eth1 8244, eth2 1500"


def test_only_the_nodes_that_differ_are_named() -> None:
    third = dataclasses.replace(GOOD, host="a3-2", version="9")
    (finding,) = [
        f for f in agreement_findings([GOOD, second(), third]) if f.status is not Status.OK
    ]
    assert "a3-2 has 9" in finding.found
    assert "a3-1" not in finding.found


def test_nodes_of_one_host_name_are_told_apart() -> None:
    apart = dataclasses.replace(GOOD, version="9")
    said = [f.found for f in agreement_findings([GOOD, apart]) if f.check == "same tcpx-mpi"]
    assert said == ["a3-0#0 has 0.1.0 abc, a3-0#1 has 9 abc"]


@pytest.mark.parametrize(
    ("version", "library", "status"),
    [
        ("mpirun (Open MPI) 5.0.8", "Open MPI v5.0.8, package", Status.OK),
        ("mpirun (Open MPI) 4.1.4", "Open MPI v5.0.8, package", Status.OK),  # it works
        ("HYDRA build details: Version: 4.0.2", "MPICH Version: 4.0.2", Status.OK),
        ("HYDRA build details:", "Open MPI v5.0.8, package", Status.FAILED),
        ("mpirun (Open MPI) 5.0.8", "MPICH Version: 4.0.2", Status.FAILED),
        ("", "MPICH Version: 4.0.2", Status.OK),
    ],
)
def test_mpirun_and_library_must_be_of_one_mpi(version: str, library: str, status: Status) -> None:
    finding = mpirun_finding("/usr/bin/mpirun", version, library)
    assert finding.status is status
    assert "/usr/bin/mpirun" in finding.found


def test_a_node_without_mpirun_may_have_srun() -> None:
    assert mpirun_finding("", "", "MPICH").status is Status.WARNING
    assert mpi_family("something else") == ""


# --- Hostfiles -----------------------------------------------------------------------------------


def test_hostfiles_of_both_mpis_are_read() -> None:
    text = "# nodes\n\nn0 slots=8 max_slots=16\nroot@n1:4 # MPICH\nn2\nn0 slots = 2\n"
    hosts = parse_hostfile(text, "hosts")
    assert hosts == [HostLine(3, "n0", 10), HostLine(4, "root@n1", 4), HostLine(5, "n2", None)]
    assert hosts[1].address == "n1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("n0\nn1 slot=8\n", ("line 2", "'slot=8' is not known", "n1 slots=N")),
        ("n0 slots=many\n", ("line 1", "'slots=many'", "1 or more")),
        ("n0:0\n", ("line 1", "'n0:0'", "1 or more")),
        ("n0 8\n", ("line 1", "'8' is not known")),
        ("n0,n1\n", ("line 1", "'n0,n1' is no host name")),
        ("# only this\n", ("names no host",)),
    ],
)
def test_a_mistake_in_a_hostfile_is_named_by_its_line(text: str, words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as error:
        parse_hostfile(text, "hosts.txt")
    for word in ("--hostfile (hosts.txt)", *words):
        assert word in str(error.value)


def test_a_hostfile_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(UsageError, match="--hostfile"):
            read_hostfile(str(path))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="no text"):
        read_hostfile(str(tmp_path / "binary"))


def test_unknown_hosts_are_all_named_with_their_lines() -> None:
    hosts = [HostLine(1, "n0", 8), HostLine(2, "root@n1", 8), HostLine(4, "n2", 8)]

    def resolve(name: str) -> set[str]:
        if name != "n0":
            raise socket.gaierror
        return {"10.0.0.1"}

    with pytest.raises(UsageError, match=r"unknown host root@n1 \(line 2\), n2 \(line 4\)"):
        require_known(hosts, "hosts.txt", resolve)
    assert require_known(hosts[:1], "hosts.txt", resolve) == {"n0": {"10.0.0.1"}}


def test_two_names_of_one_node_are_refused() -> None:
    addresses = {"n0": {"10.0.0.1", "fd00::1"}, "n1": {"10.0.0.2"}, "alias": {"10.0.0.1"}}
    hosts = [HostLine(line, name, 8) for line, name in enumerate(addresses, start=1)]
    with pytest.raises(
        UsageError, match=r"n0 \(line 1\) and alias \(line 3\) are one node, 10.0.0"
    ):
        require_known(hosts, "hosts.txt", addresses.__getitem__)


def test_fewer_nodes_than_names_fail() -> None:
    assert nodes_finding(2, 2).status is Status.OK
    assert nodes_finding(3, 2).status is Status.FAILED


def test_uneven_slots_are_said() -> None:
    even = [HostLine(1, "n0", 8), HostLine(2, "n1", 8)]
    assert hostfile_findings(even, "h")[0].found == "h: 2 nodes, 16 slots"
    (finding,) = hostfile_findings([*even, HostLine(3, "n2", None)], "h")
    assert (finding.status, finding.exit_code) == (Status.FAILED, ExitCode.USAGE)
    assert "uneven: n0 8, n1 8, n2 1" in finding.found


def test_a_hostfile_is_checked_with_the_profile_that_was_asked_for_and_mpi_off_the_data_nics(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer = story.ANSWER + story.encoded([Finding(Status.OK, "a", "MPI library", "Open MPI v5")])
    started: list[tuple[list[str], dict[str, str]]] = []

    def mpirun(
        ranks: int, program: list[str], environ: dict[str, str], *rest: object
    ) -> tuple[int, str]:
        started.append((program, environ))
        return 0, answer

    monkeypatch.setattr(launch, "run_captured", mpirun)
    monkeypatch.setattr(story, "read_mpirun", lambda environ: ("/usr/bin/mpirun", "Open MPI 5"))
    monkeypatch.setattr(story, "this_machine", lambda: machine("a3-highgpu-8g"))
    (tmp_path / "hosts").write_text("localhost slots=8\n")
    for profile in ("auto", "none"):
        story.check_nodes(str(tmp_path / "hosts"), None, profile, {})
    (auto, with_profile), (none, without) = started
    assert auto[auto.index("--profile") + 1] == "auto"
    assert none[none.index("--profile") + 1] == "none"
    assert with_profile["PRTE_MCA_prte_if_include"] == "eth0"
    assert with_profile["OMPI_MCA_btl_tcp_if_include"] == "eth0"
    assert without == {}


def test_a_host_that_does_not_answer_is_a_warning() -> None:
    hosts = [HostLine(1, "n0", 8), HostLine(2, "root@n1", 8)]
    (finding,) = reach_findings(hosts, {"n0": "", "n1": "no answer"}.__getitem__)
    assert (finding.status, finding.node) == (Status.WARNING, "root@n1")
    assert "no answer" in finding.found


def test_one_rank_a_node_is_asked_for_in_the_words_of_each_mpi() -> None:
    hosts = ["n0", "root@n1"]
    assert launch.one_rank_a_node("MPICH", hosts, ["A"]) == ["-hosts", "n0,root@n1", "-ppn", "1"]
    options = launch.one_rank_a_node("Open MPI", hosts, ["A", "B"])
    expected = ["--host", "n0:1,root@n1:1", "--map-by", "ppr:1:node", "-x", "A", "-x", "B"]
    assert options == expected
