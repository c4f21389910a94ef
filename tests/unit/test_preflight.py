"""The checks of a preflight, each over invented facts."""

from __future__ import annotations

import dataclasses
import socket
from pathlib import Path
from typing import Any

import pytest
from machines import machine

from tcpx_mpi import launch
from tcpx_mpi.errors import ExitCode, UsageError
from tcpx_mpi.preflight import facts as reading
from tcpx_mpi.preflight import story
from tcpx_mpi.preflight.alike import agreement_findings, mpi_family, mpirun_finding
from tcpx_mpi.preflight.checks import name_matches, node_findings
from tcpx_mpi.preflight.facts import Interface, NodeFacts, PluginFacts
from tcpx_mpi.preflight.findings import Finding, Status, exit_code, lines
from tcpx_mpi.preflight.hostfile import (
    HostLine,
    hostfile_findings,
    parse_hostfile,
    reach_findings,
    read_hostfile,
    require_known,
)
from tcpx_mpi.preflight.story import nodes_finding

PLUGIN = PluginFacts(
    path="/opt/libnccl-net-soft.so", how="--plugin", exists=True, readable=True, mount="/",
    sha256="a" * 64, abi_versions=(7,), name="soft", devices=("eth1 200000 Mb/s",),
)  # fmt: skip
TCPX = dataclasses.replace(PLUGIN, path="/usr/local/tcpx/libnccl-net.so", name="GPUDirectTCPX_v7")
ETH0 = Interface("eth0", True, 1460, 0, ("10.0.0.1",))
ETH1 = Interface("eth1", True, 8244, 200000, ("10.0.1.1",))
LO = Interface("lo", True, 65536, 0, ("127.0.0.1",))

#: A node with nothing wrong.
GOOD = NodeFacts(
    host="a3-0", node="boot/1", version="0.1.0", source="abc", python="3.11.2",
    executable="/venv/bin/python", mpi_library="Open MPI v5.0.8", mpi_problem="",
    profile="", profile_asked=False, profile_problem="", plugin=PLUGIN,
    libraries=(), interfaces=(ETH0, ETH1, LO), tcpx_reasons=(), manager_directory="/run/tcpx",
    manager_sockets={}, gpus=(), gpu_models=(), gpus_on_pci=0,
    open_files=65536, locked_memory=-1, shm_free=1 << 30,
    congestion="cubic", congestion_available=("reno", "cubic"), wmem_max=4 << 20,
    rmem_max=4 << 20, cpus=tuple(range(8)), cpu_count=8, environment={}, interface_variables={},
)  # fmt: skip


def with_(**changes: Any) -> NodeFacts:
    return dataclasses.replace(GOOD, **changes)


def found(facts: NodeFacts, check: str) -> Finding:
    """The one finding of a check."""
    (finding,) = [f for f in node_findings(facts, facts.host) if f.check == check]
    return finding


def test_a_good_node_passes_every_check() -> None:
    findings = node_findings(GOOD, "a3-0")
    assert {finding.status for finding in findings} == {Status.OK}
    assert exit_code(findings) == ExitCode.OK


def plugin(**changes: Any) -> NodeFacts:
    return with_(plugin=dataclasses.replace(PLUGIN, **changes))


NOTHING = {"sha256": "", "abi_versions": (), "name": "", "devices": ()}
MANAGER = {"rx_rule_manager": "", "get_gpu_fd_0000:04:00.0": ""}
GPUS = {"gpus": ("0000:04:00.0", "0000:05:00.0"), "gpu_models": ("H100", "H100")}
NO_CUPY = "CuPy is missing on a3-0: pip install 'tcpx-mpi[cuda12]'"
A3 = {"plugin": TCPX, "tcpx_reasons": ("/run/tcpx",), "manager_sockets": MANAGER}

#: what is wrong: facts, check, status, words of what was found and what to do
WRONG: dict[str, tuple[NodeFacts, str, Status, tuple[str, ...]]] = {
    "no MPI": (
        with_(mpi_problem="no MPI library can be loaded"), "MPI library", Status.FAILED,
        ("no MPI library", "MPI4PY_LIBMPI")),
    "no MPI, and what to do": (
        with_(mpi_problem="no MPI library on a (x.so: not found): set MPI4PY_LIBMPI"),
        "MPI library", Status.FAILED, ("no MPI library on a (x.so: not found) -> set MPI4PY",)),
    "a profile that cannot be": (
        with_(profile_asked=True, profile_problem="a3-0 has no NIC eth3"), "profile",
        Status.FAILED, ("no NIC eth3", "--profile")),
    "a profile that almost fits": (
        with_(profile_problem="profile a3 fits but for its NICs: NIC eth3 down"), "profile",
        Status.WARNING, ("NIC eth3 down", "ip link", "--profile none")),
    "GPUs without CuPy": (
        with_(**GPUS, plugin=dataclasses.replace(PLUGIN, no_cuda=NO_CUPY)), "GPUs", Status.WARNING,
        ("2 H100, but buffers in host memory: CuPy is missing on a3-0 -> pip install",)),
    "GPUs without a driver": (
        with_(gpus_on_pci=8), "GPUs", Status.WARNING,
        ("8 on PCI, but this process sees none", "driver", "container", "CUDA_VISIBLE_DEVICES")),
    "GPUs that fail": (
        with_(**GPUS, plugin=dataclasses.replace(PLUGIN, cuda_problem="CudaError: cuInit: 999")),
        "GPUs", Status.FAILED,
        ("2 H100, which cannot be used: CudaError: cuInit: 999", "--memory host")),
    "plugin asked for and missing": (
        plugin(path="", exists=False, problem="TCPX is asked for; set PATH", **NOTHING),
        "plugin file", Status.FAILED, ("TCPX is asked for -> set PATH",)),
    "a variable that no run takes": (
        plugin(settings_problem="NCCL_X: 'abc' is not a size", problem="as well", **NOTHING),
        "settings", Status.FAILED, ("'abc' is not a size -> correct that variable",)),
    "no such file": (
        plugin(exists=False, **NOTHING), "plugin file", Status.FAILED,
        ("/opt/libnccl-net-soft.so", "no such file", "tcpx-mpi plugins")),
    "unreadable": (
        plugin(readable=False, **NOTHING), "plugin file", Status.FAILED, ("may read", "chmod a+r")),
    "noexec": (
        plugin(noexec=True, mount="/var/lib/tcpx", **NOTHING), "plugin file", Status.FAILED,
        ("/var/lib/tcpx, which is mounted noexec", "copy the file", "remount,exec /var/lib/tcpx")),
    "no plugin": (
        plugin(problem="no NCCL network plugin", **NOTHING), "plugin file", Status.FAILED,
        ("no NCCL network plugin", "tcpx-mpi plugins")),
    "init fails": (
        plugin(problem="init returned 3", devices=()), "plugin devices", Status.FAILED,
        ("init failed: init returned 3", "UCCL_TCPX_DEBUG=1")),
    "a device that the plugin lacks": (
        plugin(problem="NCCL_SOCKET_IFNAME names eth2: bring it up", advised=True, devices=()),
        "plugin devices", Status.FAILED, ("NCCL_SOCKET_IFNAME names eth2 -> bring it up",)),
    "a variable of the plugin that cannot be": (
        plugin(problem="NCCL_X (1) is too small; unset it", advised=True, devices=()),
        "plugin devices", Status.FAILED, ("NCCL_X (1) is too small -> unset it",)),
    "hidden by another of its name": (
        with_(libraries=(("/x/libnccl-net.so", "b" * 64), ("/opt/libnccl-net.so", "a" * 64))),
        "plugin found first", Status.WARNING,
        ("/x/libnccl-net.so hides /opt/libnccl-net.so", "directory of /opt/libnccl-net.so first")),
    "NCCL would take another": (
        with_(libraries=(("/x/libnccl-net.so", "b" * 64),)), "plugin found first", Status.WARNING,
        ("NCCL would load /x/libnccl-net.so", "NCCL_NET_PLUGIN=/opt/libnccl-net-soft.so")),
    "no manager": (
        with_(**{**A3, "manager_sockets": {}}), "datapath manager", Status.FAILED,
        ("no socket rx_rule_manager in /run/tcpx", "NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX")),
    "a manager that has ended": (
        with_(**{**A3, "manager_sockets": {**MANAGER, "rx_rule_manager": "connection refused"}}),
        "datapath manager", Status.FAILED,
        ("rx_rule_manager: connection refused (/run/tcpx)", "it has ended", "start the receive")),
    "a manager that this user may not reach": (
        with_(**{**A3, "manager_sockets": {**MANAGER, "rx_rule_manager": "permission denied"}}),
        "datapath manager", Status.FAILED, ("rx_rule_manager: permission denied", "let this user")),
    "a manager without GPUs": (
        with_(**{**A3, "manager_sockets": {"rx_rule_manager": ""}}), "datapath manager",
        Status.FAILED, ("no socket get_gpu_fd_<pci> for any GPU", "start the")),
    "a manager without one GPU": (
        with_(**A3, gpus=("0000:04:00.0", "0000:8B:00.0")), "datapath manager", Status.FAILED,
        ("get_gpu_fd_<pci> for 0000:8B:00.0", "restart it for all", "CUDA_VISIBLE_DEVICES")),
    "no manager, but another plugin": (
        with_(tcpx_reasons=("NCCL_GPUDIRECTTCPX_CTRL_DEV",)), "datapath manager", Status.WARNING,
        ("rx_rule_manager",)),
    "an interface that is not there": (
        with_(interface_variables={"NCCL_SOCKET_IFNAME": "ens9"}), "interfaces", Status.FAILED,
        ("NCCL_SOCKET_IFNAME names ens9, which is none of eth0, eth1, lo -> correct the name",)),
    "one of two interfaces that is not there": (
        with_(interface_variables={"NCCL_SOCKET_IFNAME": "=eth1,eth"}), "interfaces",
        Status.FAILED, ("NCCL_SOCKET_IFNAME names =eth, which is none of",)),
    "an interface that is down": (
        with_(
            interfaces=(ETH0, dataclasses.replace(ETH1, up=False, enabled=False)),
            interface_variables={"NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": "eth1"}),
        "interfaces", Status.FAILED,
        ("eth1 of NCCL_GPUDIRECTTCPX_SOCKET_IFNAME is down -> ip link set eth1 up",)),
    "an interface without a link, and one that is down": (
        with_(
            interfaces=(
                dataclasses.replace(ETH0, up=False, enabled=False),
                dataclasses.replace(ETH1, up=False)),
            interface_variables={"NCCL_SOCKET_IFNAME": "eth"}),
        "interfaces", Status.FAILED,
        ("eth0 of NCCL_SOCKET_IFNAME is down; eth1 of NCCL_SOCKET_IFNAME is enabled, but has no "
         "link -> ip link set eth0 up; see to the other end of eth1",)),
    "an interface without an address": (
        with_(
            interfaces=(dataclasses.replace(ETH0, addresses=()), ETH1),
            interface_variables={"NCCL_GPUDIRECTTCPX_CTRL_DEV": "eth0"}),
        "interfaces", Status.FAILED, ("eth0", "no IPv4 address", "ip addr add")),
    "loopback alone": (
        with_(interfaces=(LO,)), "interfaces", Status.WARNING, ("none but lo", "IFNAME")),
    "few files": (
        with_(open_files=512), "open files", Status.WARNING, ("ulimit -n is 512", "1024")),
    "too few files": (
        with_(open_files=128), "open files", Status.FAILED, ("ulimit -n is 128", "1024")),
    "locked memory": (
        with_(**A3, locked_memory=8 << 20), "locked memory", Status.WARNING,
        ("8 MiB", "ulimit -l unlimited")),
    "locked memory of zero-copy": (
        with_(environment={"NCCL_MIN_ZCOPY_SIZE": "4096"}, locked_memory=8 << 20),
        "locked memory", Status.WARNING, ("8 MiB", "zero-copy")),
    "no /dev/shm": (with_(shm_free=None), "/dev/shm", Status.WARNING, ("not there", "--shm-size")),
    "small /dev/shm": (with_(shm_free=1 << 20), "/dev/shm", Status.WARNING, ("1 MiB free",)),
    "no cubic": (
        with_(congestion_available=("reno",)), "congestion control", Status.WARNING,
        ("cubic is not available", "modprobe tcp_cubic")),
    "small send buffers": (
        with_(wmem_max=212992), "TCP buffers", Status.WARNING,
        ("208 KiB", "sysctl -w net.core.wmem_max=4194304")),
    "bound to one core": (
        with_(cpus=(3,)), "CPUs", Status.WARNING, ("bound to one: 3, 1 of 8", "--bind-to none")),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_what_is_wrong_is_found_with_what_to_do(mistake: str) -> None:
    facts, check, status, words = WRONG[mistake]
    finding = found(facts, check)
    assert finding.status is status
    text = f"{finding.found} -> {finding.remedy}"
    assert finding.remedy
    for word in words:
        assert word in text
    assert "\n" not in text


def test_gpus_that_can_be_used_are_named_with_what_they_are_used_by() -> None:
    usable = dataclasses.replace(PLUGIN, cuda="CUDA 12.8, CuPy 13.6.0")
    finding = found(with_(**GPUS, plugin=usable), "GPUs")
    assert finding.status is Status.OK
    assert finding.found == "2 H100: buffers in GPU memory (CUDA 12.8, CuPy 13.6.0)"
    assert found(GOOD, "GPUs").found == "none: buffers in host memory"


def test_without_a_plugin_nothing_is_said_of_gpus() -> None:
    dead = dataclasses.replace(PLUGIN, problem="init returned 3")
    assert "GPUs" not in {f.check for f in node_findings(with_(**GPUS, plugin=dead), "a")}


def test_a_profile_is_named() -> None:
    assert found(with_(profile="profile a3 (auto)"), "profile").found == "profile a3 (auto)"


def test_a_manager_that_answers_for_every_gpu_is_good() -> None:
    gpus = ("0000:04:00.0",)
    assert found(with_(**A3, gpus=gpus), "datapath manager").status is Status.OK


def test_where_nothing_asks_for_tcpx_its_manager_is_not_looked_for() -> None:
    assert "datapath manager" not in {f.check for f in node_findings(GOOD, "a")}


def test_the_same_plugin_under_another_path_hides_nothing() -> None:
    same = with_(libraries=(("/x/libnccl-net.so", "a" * 64), ("/y/libnccl-net.so", "b" * 64)))
    assert found(same, "plugin found first").status is Status.OK


def test_one_core_of_one_is_no_binding() -> None:
    assert found(with_(cpus=(0,), cpu_count=1), "CPUs").status is Status.OK


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ("eth", "eth0 eth1"),
        ("=eth", ""),
        ("=eth1,lo", "eth1 lo"),
        ("^eth", "lo"),
        ("^=lo", "eth0 eth1"),
    ],
)
def test_interfaces_are_named_as_nccl_names_them(spec: str, names: str) -> None:
    assert [n for n in ("eth0", "eth1", "lo") if name_matches(spec, n)] == names.split()


# --- All nodes -----------------------------------------------------------------------------------


def second(**changes: Any) -> NodeFacts:
    return dataclasses.replace(GOOD, host="a3-1", node="boot/2", **changes)


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


# --- What is printed -----------------------------------------------------------------------------


def test_a_missing_plugin_outweighs_other_failures_and_a_warning_none() -> None:
    def failed(code: ExitCode) -> Finding:
        return Finding(Status.FAILED, "n", "c", "f", "r", code)

    warning = Finding(Status.WARNING, "n", "c", "f", "r")
    assert exit_code([warning]) == ExitCode.OK
    assert exit_code([warning, failed(ExitCode.SETUP_FAILED)]) == ExitCode.SETUP_FAILED
    both = [failed(ExitCode.SETUP_FAILED), failed(ExitCode.PLUGIN_MISSING)]
    assert exit_code(both) == ExitCode.PLUGIN_MISSING


def test_each_finding_is_a_line_with_what_to_do_and_the_last_line_counts() -> None:
    findings = [
        Finding(Status.OK, "n0", "CPUs", "0-7"),
        Finding(Status.FAILED, "", "same MPI", "differs", "use one"),
    ]
    assert lines(findings) == [
        "OK       n0         CPUs      0-7",
        "FAILED   all nodes  same MPI  differs -> use one",
        "# 1 OK, 1 FAILED",
    ]


# --- What is read --------------------------------------------------------------------------------


def facts_on_a3(monkeypatch: pytest.MonkeyPatch, profile: str, **environ: str) -> NodeFacts:
    """The facts of a node that is an A3 machine as far as can be read."""
    monkeypatch.setattr(reading, "this_machine", lambda: machine("a3-highgpu-8g"))
    monkeypatch.setattr(reading, "mpi_library", lambda: ("Open MPI", ""))
    monkeypatch.setattr(reading, "_plugin", lambda *asked: TCPX)
    return reading.read_facts(None, profile, environ)


def test_what_a_profile_will_set_is_what_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = facts_on_a3(monkeypatch, "auto")
    assert facts.profile == "profile a3-highgpu-8g (auto)"
    assert facts.manager_directory == "/run/tcpx"
    assert facts.interface_variables["NCCL_GPUDIRECTTCPX_SOCKET_IFNAME"] == "eth1,eth2,eth3,eth4"
    assert facts.environment == {}, "ranks compare what the user has set"
    assert len(facts.gpus) == len(facts.gpu_models) == 8
    users = facts_on_a3(monkeypatch, "auto", NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX="/elsewhere")
    assert users.manager_directory == "/elsewhere"
    none = facts_on_a3(monkeypatch, "none")
    assert (none.profile, none.manager_directory, none.interface_variables) == ("", "/tmp", {})


def test_a_profile_of_another_machine_or_none_at_all_is_a_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts = facts_on_a3(monkeypatch, "a4")
    assert facts.profile_asked
    assert "--profile (a4) is unknown" in facts.profile_problem
    monkeypatch.setattr(reading, "this_machine", lambda: machine("laptop"))
    facts = reading.read_facts(None, "a3-highgpu-8g", {})
    assert "has no NIC eth1" in facts.profile_problem


def test_a_socket_that_nobody_listens_at_is_told_from_one_that_answers(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as alive, socket.socket(socket.AF_UNIX) as dead:
        alive.bind(str(tmp_path / "rx_rule_manager"))
        alive.listen()
        dead.bind(str(tmp_path / "get_gpu_fd_0000:04:00.0"))
        (tmp_path / "something_else").touch()
        found = reading._manager_sockets(str(tmp_path))
    assert found["rx_rule_manager"] == ""
    assert "refused" in found["get_gpu_fd_0000:04:00.0"]
    assert len(found) == 2


def test_gpus_on_pci_are_those_of_nvidia_that_display_or_compute(tmp_path: Path) -> None:
    devices = {"a": ("0x10de", "0x030200"), "b": ("0x10de", "0x030000"),
               "its bridge": ("0x10de", "0x068000"), "other": ("0x1ae0", "0x020000")}  # fmt: skip
    for name, (vendor, kind) in devices.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "class").write_text(f"{kind}\n")
    (tmp_path / "gone").mkdir()
    assert reading._gpus_on_pci(str(tmp_path)) == 2
    assert reading._gpus_on_pci(str(tmp_path / "nothing")) == 0


def test_libraries_come_in_the_order_of_the_loader(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "libnccl-net.so").write_text(name)
        (tmp_path / name / "libother.so").touch()
    environ = {"LD_LIBRARY_PATH": f"{tmp_path}/b::{tmp_path}/a:/nowhere"}
    paths = [path for path, _ in reading._libraries(environ)]
    assert paths == [str(tmp_path / name / "libnccl-net.so") for name in ("b", "a")]


def test_the_mount_of_a_path_is_found_and_a_path_that_is_not_there_is_not_noexec() -> None:
    assert reading.mount_of("/proc/self/status") == "/proc"
    assert not reading.noexec("/nowhere/at/all")
    # The kernel mounts what has no programs without them, in containers too.
    assert reading.noexec("/proc/self/status") or "noexec" not in Path("/proc/mounts").read_text()


def test_a_limit_that_is_none_is_minus_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        reading.resource, "getrlimit", lambda kind: (reading.resource.RLIM_INFINITY, 5)
    )
    assert reading._limit(0) == -1


def test_an_ssh_port_that_answers_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    from tcpx_mpi.preflight import hostfile

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        monkeypatch.setattr(hostfile, "_SSH_PORT", server.getsockname()[1])
        # The kernel completes a connection before anybody accepts it.
        assert reach_findings([HostLine(1, "127.0.0.1", 1)]) == []
    (finding,) = reach_findings([HostLine(1, "127.0.0.1", 1)])
    assert "refused" in finding.found
