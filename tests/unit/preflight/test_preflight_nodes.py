"""What a preflight says of several nodes: what differs, and the hostfile that names them."""

from __future__ import annotations

import dataclasses
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from machines import machine
from preflight_facts import ETH0, ETH1, GOOD, GPUS, LO, PLUGIN, TUNING, second, with_

from tcpx_mpi.errors import ExitCode, UsageError
from tcpx_mpi.findings import Finding, Severity
from tcpx_mpi.launch import mpirun as launch
from tcpx_mpi.preflight import story
from tcpx_mpi.preflight.agreement import agreement_findings, mpi_family, mpirun_finding
from tcpx_mpi.preflight.facts import AskedPlugin
from tcpx_mpi.preflight.findings import FAILED, OK, WARNING, Checked, checked, encoded
from tcpx_mpi.preflight.hostfile import (
    hostfile_findings,
    needs_ssh,
    reach_findings,
    read_hostfile,
    require_known,
    rereadable_hostfile,
)
from tcpx_mpi.preflight.hostfile_forms import HostLine, Hosts, Launcher
from tcpx_mpi.preflight.story import nodes_finding


def test_nodes_without_variables_are_told_so_in_words_that_fit_any_interface_variable() -> None:
    (found,) = [f for f in agreement_findings([GOOD, second()]) if f.title == "same environment"]
    # NCCL_SOCKET_IFNAME may be set, and may differ.
    assert found.text == "no variable that must be alike is set"


def test_nodes_that_are_alike_pass_and_one_node_is_not_compared() -> None:
    assert {finding.severity for finding in agreement_findings([GOOD, second()])} == {OK}
    assert agreement_findings([GOOD]) == []


@pytest.mark.parametrize(
    ("changes", "check", "status", "words"),
    [
        ({"version": "0.2.0"}, "same tcpx-mpi", FAILED, ("0.1.0", "a3-1 has 0.2.0")),
        ({"source": "def+changes"}, "same tcpx-mpi", FAILED, ("0.1.0 def+changes",)),
        ({"plugin": dataclasses.replace(PLUGIN, sha256="b" * 64)}, "same plugin content",
         FAILED, ("a3-0 has soft sha256 aaaaaaaaaaaa", "a3-1 has soft sha256 bbbbbbbbbbbb")),
        ({"mpi_library": "Open MPI v4.1.4"}, "same MPI", FAILED, ("a3-1 has Open MPI v4",)),
        ({"python": "3.12.1"}, "same Python", WARNING, ("a3-1 has 3.12.1",)),
        ({"interfaces": (ETH0, dataclasses.replace(ETH1, mtu=1500), LO)}, "same MTU",
         WARNING, ("a3-0 has 8244", "a3-1 has 1500")),
        ({"profile": "profile a3 (auto)"}, "same profile", FAILED,
         ("a3-0 has none", "a3-1 has profile a3 (auto)", "--profile")),
        (GPUS, "same GPUs", WARNING,
         ("a3-0 has none", "a3-1 has 2 H100, not usable", "host memory")),
        ({"interface_variables": {"NCCL_SOCKET_IFNAME": "eth1,lo"},
          "interfaces": (ETH1, dataclasses.replace(LO, mtu=ETH1.mtu))}, "same NIC count",
         FAILED, ("a3-0 has 1", "a3-1 has 2")),
        ({"congestion": "bbr"}, "same TCP default", WARNING, ("a3-1 has bbr",)),
        ({"tuning": {**TUNING, "cpu_governor": "powersave"}}, "same cpu_governor", WARNING,
         ("a3-0 has unknown", "a3-1 has powersave", "set the nodes alike")),
        ({"environment": {"NCCL_BUFFSIZE": "1"}}, "same NCCL_BUFFSIZE", FAILED,
         ("a3-0 has not set", "a3-1 has 1", "mpirun -x")),
    ],
)  # fmt: skip
def test_what_differs_names_the_node_and_both_values(
    changes: dict[str, Any], check: str, status: Severity, words: tuple[str, ...]
) -> None:
    findings = agreement_findings([GOOD, second(**changes)])
    (finding,) = [f for f in findings if f.severity is not OK]
    assert (finding.title, finding.severity) == (check, status)
    for word in words:
        assert word in f"{finding.text} -> {finding.remedy}"


def test_nics_of_a_node_that_differ_in_mtu_are_named() -> None:
    both = {"interface_variables": {"NCCL_SOCKET_IFNAME": "eth1,eth2"}}
    eth2 = dataclasses.replace(ETH1, name="eth2")
    nodes = [
        with_(interfaces=(ETH1, eth2), **both),
        second(interfaces=(ETH1, dataclasses.replace(eth2, mtu=1500)), **both),
    ]
    (finding,) = [f for f in agreement_findings(nodes) if f.title == "same MTU"]
    assert finding.text == "a3-0 has 8244, a3-1 has eth1 8244, eth2 1500"


def test_of_many_nodes_that_are_set_otherwise_a_few_are_named() -> None:
    nodes = [
        dataclasses.replace(GOOD, host=f"n{number}", tuning={"nic_interrupt_cpus": str(number)})
        for number in range(100)
    ]
    (finding,) = [f for f in agreement_findings(nodes) if f.title == "same nic_interrupt_cpus"]
    assert finding.text.startswith("n0 has 0, n1 has 1, ")
    assert finding.text.endswith(", n7 has 7, and 92 more")
    # What keeps a node from a run is said of each.
    apart = [dataclasses.replace(node, version=node.host) for node in nodes]
    (finding,) = [f for f in agreement_findings(apart) if f.title == "same tcpx-mpi"]
    assert "n99 has n99" in finding.text


def test_only_the_nodes_that_differ_are_named() -> None:
    third = dataclasses.replace(GOOD, host="a3-2", version="9")
    (finding,) = [f for f in agreement_findings([GOOD, second(), third]) if f.severity is not OK]
    assert "a3-2 has 9" in finding.text
    assert "a3-1" not in finding.text


def test_nodes_of_one_host_name_are_told_apart() -> None:
    apart = dataclasses.replace(GOOD, version="9")
    said = [f.text for f in agreement_findings([GOOD, apart]) if f.title == "same tcpx-mpi"]
    assert said == ["a3-0#0 has 0.1.0 abc, a3-0#1 has 9 abc"]


@pytest.mark.parametrize(
    ("version", "library", "status"),
    [
        ("mpirun (Open MPI) 5.0.8", "Open MPI v5.0.8, package", OK),
        ("mpirun (Open MPI) 4.1.4", "Open MPI v5.0.8, package", OK),  # it works
        ("HYDRA build details: Version: 4.0.2", "MPICH Version: 4.0.2", OK),
        ("HYDRA build details:", "Open MPI v5.0.8, package", FAILED),
        ("mpirun (Open MPI) 5.0.8", "MPICH Version: 4.0.2", FAILED),
        ("", "MPICH Version: 4.0.2", OK),
    ],
)
def test_mpirun_and_library_must_be_of_one_mpi(
    version: str, library: str, status: Severity
) -> None:
    finding = mpirun_finding("/usr/bin/mpirun", version, library)
    assert finding.severity is status
    assert "/usr/bin/mpirun" in finding.text


def test_a_node_without_mpirun_may_have_srun() -> None:
    assert mpirun_finding("", "", "MPICH").severity is WARNING
    assert mpi_family("something else") == ""


# --- Hostfiles: test_hostfile_forms.py has what each launcher takes ------------------------------

OPEN_MPI = Launcher("Open MPI 5.0.11")


def test_a_hostfile_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(UsageError, match="--hostfile"):
            read_hostfile(str(path), OPEN_MPI)
    for content in (b"\xff\xfe", "n0 slots=2\n".encode("utf-16-le")):
        (tmp_path / "binary").write_bytes(content)
        with pytest.raises(UsageError, match="no text"):
            read_hostfile(str(tmp_path / "binary"), OPEN_MPI)


def test_a_hostfile_in_a_pipe_is_read_once_and_kept_for_mpirun(tmp_path: Path) -> None:
    reader, writer = os.pipe()  # as of <(...)
    os.write(writer, b"n0 slots=2\n")
    os.close(writer)
    with rereadable_hostfile(f"/dev/fd/{reader}") as kept:
        assert Path(kept).is_file()
        for _ in range(2):
            assert read_hostfile(kept, OPEN_MPI).lines == (HostLine(1, "n0", 2),)
    os.close(reader)
    assert not Path(kept).exists()
    with rereadable_hostfile("hosts") as kept:
        assert kept == "hosts"
    (tmp_path / "windows").write_bytes(b"n0 slots=2\r\n")
    with pytest.raises(UsageError, match=r"--hostfile \(hosts\), line 1 ends in CR LF"):
        read_hostfile(str(tmp_path / "windows"), OPEN_MPI, shown="hosts")


def test_unknown_hosts_are_all_named_with_their_lines() -> None:
    hosts = [HostLine(1, "n0", 8), HostLine(2, "n1", 8, "root"), HostLine(4, "n2", 8)]

    def resolve(name: str) -> set[str]:
        if name != "n0":
            raise socket.gaierror
        return {"10.0.0.1"}

    with pytest.raises(UsageError, match=r"unknown host n1 \(line 2\), n2 \(line 4\)"):
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
    assert nodes_finding(2, 2).severity is OK
    assert nodes_finding(3, 2).severity is FAILED


def test_uneven_slots_are_said() -> None:
    even = (HostLine(1, "n0", 8), HostLine(2, "n1", 8))
    (finding,) = hostfile_findings(Hosts(even), "h", OPEN_MPI)
    assert (finding.severity, finding.text) == (OK, "h: 2 nodes, 16 slots")
    (finding,) = hostfile_findings(Hosts((*even, HostLine(3, "n2", 1))), "h", OPEN_MPI)
    assert (finding.severity, checked(finding).exit_code) == (FAILED, ExitCode.USAGE)
    assert "uneven: n0 8, n1 8, n2 1" in finding.text


def test_slots_that_no_line_gives_are_not_made_up() -> None:
    cores = (HostLine(1, "n0", None), HostLine(2, "n1", None))
    (finding,) = hostfile_findings(Hosts(cores), "h", OPEN_MPI)
    assert (finding.severity, finding.text) == (
        OK, "h: 2 nodes, as many slots as each has cores: no line gives any",
    )  # fmt: skip
    (finding,) = hostfile_findings(Hosts((*cores, HostLine(3, "n2", 8))), "h", OPEN_MPI)
    assert finding.severity is WARNING
    assert "n1 its cores, n2 8" in finding.text


def test_what_a_launcher_passes_over_is_a_warning_and_intels_counts_are_said_to_be() -> None:
    hosts = Hosts((HostLine(1, "n0", 2),), ("line 1: Open MPI passes over 'x': take it out",))
    finding = hostfile_findings(hosts, "h", OPEN_MPI)[1]
    assert (finding.severity, finding.remedy) == (WARNING, "take it out")
    assert finding.text == "h, line 1: Open MPI passes over 'x'"
    (finding,) = hostfile_findings(Hosts(hosts.lines), "h", Launcher("Intel MPI 2021", True))
    assert "takes the counts with -machinefile, and passes over them with -f" in finding.text


def test_a_hostfile_is_checked_with_the_profile_that_was_asked_for_and_mpi_off_the_data_nics(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer = story.ANSWER + encoded(
        [Finding(OK, "MPI library", "Open MPI v5", evidence=Checked("a"))]
    )
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
        story.check_nodes(str(tmp_path / "hosts"), AskedPlugin("mine", 9), profile, {})
    (auto, with_profile), (none, without) = started
    assert auto[-4:] == ["--plugin", "mine", "--abi", "9"]
    assert auto[auto.index("--profile") + 1] == "auto"
    assert none[none.index("--profile") + 1] == "none"
    assert with_profile["PRTE_MCA_prte_if_include"] == "eth0"
    assert with_profile["OMPI_MCA_btl_tcp_if_include"] == "eth0"
    assert without == {}


def test_a_host_that_does_not_answer_is_a_warning() -> None:
    hosts = [HostLine(1, "n0", 8), HostLine(2, "n1", 8, "root", 2222)]
    found = {("n0", 22): "", ("n1", 2222): "no answer"}
    (finding,) = reach_findings(hosts, lambda name, port: found[name, port])
    assert (finding.severity, checked(finding).node) == (WARNING, "n1")
    assert "port 2222: no answer" in finding.text


def test_an_ipv6_address_of_this_very_node_is_asked_for_ssh() -> None:
    own = {"::1", "127.0.0.1"}
    assert needs_ssh(HostLine(1, "::1", 2), {"::1"}, own)
    assert not needs_ssh(HostLine(1, "localhost", 2), {"::1", "127.0.0.1"}, own)
    assert needs_ssh(HostLine(1, "n1", 2), {"10.0.0.7"}, own)
    (finding,) = reach_findings([HostLine(1, "::1", 2)], lambda name, port: "refused")
    assert "write localhost" in finding.remedy


def test_ranks_a_node_are_asked_for_in_the_words_of_each_mpi() -> None:
    assert launch.ranks_a_node(2, "MPICH", "h", ["A"]) == ["-f", "h", "-ppn", "2"]
    options = launch.ranks_a_node(1, "Open MPI", "h", ["A", "B"])
    assert options == ["--hostfile", "h", "--map-by", "ppr:1:node", "-x", "A", "-x", "B"]
