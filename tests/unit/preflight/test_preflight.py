"""The checks of a preflight on one node, each over invented facts; and what is printed."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from preflight_facts import ETH0, ETH1, GOOD, GPUS, LO, PLUGIN, TCPX, found, with_

from tcpx_mpi.errors import ExitCode
from tcpx_mpi.findings import Finding, Severity
from tcpx_mpi.machine.congestion import Refusal
from tcpx_mpi.machine.interfaces import name_matches
from tcpx_mpi.preflight.checks import node_findings
from tcpx_mpi.preflight.facts import NodeFacts
from tcpx_mpi.preflight.findings import FAILED, OK, WARNING, Checked, CheckFinding, exit_code, lines


def test_a_good_node_passes_every_check() -> None:
    findings = node_findings(GOOD, "a3-0")
    assert {finding.severity for finding in findings} == {OK}
    assert exit_code(findings) == ExitCode.OK


def plugin(**changes: Any) -> NodeFacts:
    return with_(plugin=dataclasses.replace(PLUGIN, **changes))


NOTHING = {"sha256": "", "abi_versions": (), "name": "", "devices": ()}
MANAGER = {"rx_rule_manager": "", "get_gpu_fd_0000:04:00.0": ""}
NO_CUPY = "CuPy is missing on a3-0: pip install 'tcpx-mpi[cuda12]'"
A3 = {"plugin": TCPX, "tcpx_reasons": ("/run/tcpx",), "manager_sockets": MANAGER}

#: what is wrong: facts, check, status, words of what was found and what to do
WRONG: dict[str, tuple[NodeFacts, str, Severity, tuple[str, ...]]] = {
    "no MPI": (
        with_(mpi_problem="no MPI library can be loaded"), "MPI library", FAILED,
        ("no MPI library", "MPI4PY_LIBMPI")),
    "no MPI, and what to do": (
        with_(mpi_problem="no MPI library on a (x.so: not found): set MPI4PY_LIBMPI"),
        "MPI library", FAILED, ("no MPI library on a (x.so: not found) -> set MPI4PY",)),
    "a profile that cannot be": (
        with_(profile_asked=True, profile_problem="a3-0 has no NIC eth3"), "profile",
        FAILED, ("no NIC eth3", "--profile")),
    "a profile that almost fits": (
        with_(profile_problem="profile a3 fits but for its NICs: NIC eth3 down"), "profile",
        WARNING, ("NIC eth3 down", "ip link", "--profile none")),
    "GPUs without CuPy": (
        with_(**GPUS, plugin=dataclasses.replace(PLUGIN, no_cuda=NO_CUPY)), "GPUs", WARNING,
        ("2 H100, but buffers in host memory: CuPy is missing on a3-0 -> pip install",)),
    "GPUs without a driver": (
        with_(gpus_on_pci=8), "GPUs", WARNING,
        ("8 on PCI, but this process sees none", "driver", "container", "CUDA_VISIBLE_DEVICES")),
    "GPUs that fail": (
        with_(**GPUS, plugin=dataclasses.replace(PLUGIN, cuda_problem="CudaError: cuInit: 999")),
        "GPUs", FAILED,
        ("2 H100, which cannot be used: CudaError: cuInit: 999", "--memory host")),
    "plugin asked for and missing": (
        plugin(path="", exists=False, problem="TCPX is asked for; set PATH", **NOTHING),
        "plugin file", FAILED, ("TCPX is asked for -> set PATH",)),
    "a variable that no run takes": (
        plugin(settings_problem="NCCL_X: 'abc' is not a size", problem="as well", **NOTHING),
        "settings", FAILED, ("'abc' is not a size -> correct that variable",)),
    "no such file": (
        plugin(exists=False, **NOTHING), "plugin file", FAILED,
        ("/opt/libnccl-net-soft.so", "no such file", "tcpx-mpi plugins")),
    "unreadable": (
        plugin(readable=False, **NOTHING), "plugin file", FAILED, ("may read", "chmod a+r")),
    "noexec": (
        plugin(noexec=True, mount="/var/lib/tcpx", **NOTHING), "plugin file", FAILED,
        ("/var/lib/tcpx, which is mounted noexec", "copy the file", "remount,exec /var/lib/tcpx")),
    "no plugin": (
        plugin(problem="no NCCL network plugin", **NOTHING), "plugin file", FAILED,
        ("no NCCL network plugin", "tcpx-mpi plugins")),
    "init fails": (
        plugin(problem="init returned 3", devices=()), "plugin devices", FAILED,
        ("init failed: init returned 3", "UCCL_TCPX_DEBUG=1 tcpx-mpi run smoke --ranks 2")),
    "a device that the plugin lacks": (
        plugin(problem="NCCL_SOCKET_IFNAME names eth2: bring it up", advised=True, devices=()),
        "plugin devices", FAILED, ("NCCL_SOCKET_IFNAME names eth2 -> bring it up",)),
    "a variable that TCPX dies of": (
        with_(**{**A3, "plugin": dataclasses.replace(
            TCPX, fatal_value="NCCL_X (0) kills; use 3", problem="the same", advised=True)}),
        "plugin variables", FAILED, ("NCCL_X (0) kills -> use 3",)),
    "a variable of the plugin that cannot be": (
        plugin(problem="NCCL_X (1) is too small; unset it", advised=True, devices=()),
        "plugin devices", FAILED, ("NCCL_X (1) is too small -> unset it",)),
    "hidden by another of its name": (
        with_(libraries=(("/x/libnccl-net.so", "b" * 64), ("/opt/libnccl-net.so", "a" * 64))),
        "plugin found first", WARNING,
        ("/x/libnccl-net.so hides /opt/libnccl-net.so", "directory of /opt/libnccl-net.so first")),
    "NCCL would take another": (
        with_(libraries=(("/x/libnccl-net.so", "b" * 64),)), "plugin found first", WARNING,
        ("NCCL would load /x/libnccl-net.so", "NCCL_NET_PLUGIN=/opt/libnccl-net-soft.so")),
    "no manager": (
        with_(**{**A3, "manager_sockets": {}}), "datapath manager", FAILED,
        ("no socket rx_rule_manager in /run/tcpx", "NCCL_GPUDIRECTTCPX_UNIX_CLIENT_PREFIX")),
    "a manager that has ended": (
        with_(**{**A3, "manager_sockets": {**MANAGER, "rx_rule_manager": "connection refused"}}),
        "datapath manager", FAILED,
        ("rx_rule_manager: connection refused (/run/tcpx)", "it has ended", "start the receive")),
    "a manager that this user may not reach": (
        with_(**{**A3, "manager_sockets": {**MANAGER, "rx_rule_manager": "permission denied"}}),
        "datapath manager", FAILED, ("rx_rule_manager: permission denied", "let this user")),
    "a manager without GPUs": (
        with_(**{**A3, "manager_sockets": {"rx_rule_manager": ""}}), "datapath manager",
        FAILED, ("no socket get_gpu_fd_<pci> for any GPU", "start the")),
    "a manager without one GPU": (
        with_(**A3, gpus=("0000:04:00.0", "0000:8B:00.0")), "datapath manager", FAILED,
        ("get_gpu_fd_<pci> for 0000:8B:00.0", "restart it for all", "CUDA_VISIBLE_DEVICES")),
    "no manager, but another plugin": (
        with_(tcpx_reasons=("NCCL_GPUDIRECTTCPX_CTRL_DEV",)), "datapath manager", WARNING,
        ("rx_rule_manager",)),
    "an interface that is not there": (
        with_(interface_variables={"NCCL_SOCKET_IFNAME": "ens9"}), "interfaces", FAILED,
        ("NCCL_SOCKET_IFNAME names ens9, which is none of eth0, eth1, lo -> correct the name",)),
    "one of two interfaces that is not there": (
        with_(interface_variables={"NCCL_SOCKET_IFNAME": "=eth1,eth"}), "interfaces",
        FAILED, ("NCCL_SOCKET_IFNAME names =eth, which is none of",)),
    "an interface that is down": (
        with_(
            interfaces=(ETH0, dataclasses.replace(ETH1, up=False, enabled=False)),
            interface_variables={"NCCL_GPUDIRECTTCPX_SOCKET_IFNAME": "eth1"}),
        "interfaces", FAILED,
        ("eth1 of NCCL_GPUDIRECTTCPX_SOCKET_IFNAME is down -> ip link set eth1 up",)),
    "an interface without a link, and one that is down": (
        with_(
            interfaces=(
                dataclasses.replace(ETH0, up=False, enabled=False),
                dataclasses.replace(ETH1, up=False)),
            interface_variables={"NCCL_SOCKET_IFNAME": "eth"}),
        "interfaces", FAILED,
        ("eth0 of NCCL_SOCKET_IFNAME is down; eth1 of NCCL_SOCKET_IFNAME is enabled, but has no "
         "link -> ip link set eth0 up; see to the other end of eth1",)),
    "an interface without an address": (
        with_(
            interfaces=(dataclasses.replace(ETH0, addresses=()), ETH1),
            interface_variables={"NCCL_GPUDIRECTTCPX_CTRL_DEV": "eth0"}),
        "interfaces", FAILED, ("eth0", "no IPv4 address", "ip addr add")),
    "all interfaces excluded": (
        with_(interface_variables={"NCCL_SOCKET_IFNAME": "^lo,eth"}), "interfaces", FAILED,
        ("NCCL_SOCKET_IFNAME (^lo,eth) leaves none of eth0, eth1, lo that is up with an address",
         "exclude fewer")),
    "loopback alone": (
        with_(interfaces=(LO,)), "interfaces", WARNING, ("none but lo", "IFNAME")),
    "few files": (
        with_(open_files=512), "open files", WARNING, ("ulimit -Hn is 512", "1024")),
    "too few files": (
        with_(open_files=128), "open files", FAILED, ("ulimit -Hn is 128", "1024")),
    "locked memory": (
        with_(**A3, locked_memory=8 << 20), "locked memory", WARNING,
        ("8 MiB", "ulimit -l unlimited")),
    "locked memory of zero-copy": (
        with_(environment={"NCCL_MIN_ZCOPY_SIZE": "4096"}, locked_memory=8 << 20),
        "locked memory", WARNING, ("8 MiB", "zero-copy")),
    "no /dev/shm": (with_(shm_free=None), "/dev/shm", WARNING, ("not there", "--shm-size")),
    "small /dev/shm": (with_(shm_free=1 << 20), "/dev/shm", WARNING, ("1 MiB free",)),
    "no cubic": (
        with_(congestion_refusal=Refusal("cubic is not available", "modprobe tcp_cubic")),
        "congestion control", WARNING, ("cubic is not available", "modprobe tcp_cubic")),
    "small send buffers": (
        with_(tuning={"net.core.wmem_max": "212992"}), "TCP buffers", WARNING,
        ("208 KiB", "sysctl -w net.core.wmem_max=4194304")),
    "bound to one core": (
        with_(cpus=(3,)), "CPUs", WARNING, ("bound to one: 3, 1 of 8", "--bind-to none")),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_what_is_wrong_is_found_with_what_to_do(mistake: str) -> None:
    facts, check, status, words = WRONG[mistake]
    finding = found(facts, check)
    assert finding.severity is status
    text = f"{finding.text} -> {finding.remedy}"
    assert finding.remedy
    for word in words:
        assert word in text
    assert "\n" not in text


@pytest.mark.parametrize(
    "change", [{"up": False}, {"up": False, "enabled": False}, {"addresses": ()}]
)
def test_where_others_are_excluded_an_interface_that_cannot_be_used_is_not_missed(
    change: dict[str, Any],
) -> None:
    interfaces = (ETH0, dataclasses.replace(ETH1, **change), LO)
    facts = with_(interfaces=interfaces, interface_variables={"NCCL_SOCKET_IFNAME": "^lo"})
    finding = found(facts, "interfaces")
    assert (finding.severity, finding.text) == (OK, "eth0 10.0.0.1 MTU 1460")


def test_gpus_that_can_be_used_are_named_with_what_they_are_used_by() -> None:
    usable = dataclasses.replace(PLUGIN, cuda="CUDA 12.8, CuPy 13.6.0")
    finding = found(with_(**GPUS, plugin=usable), "GPUs")
    assert finding.severity is OK
    assert finding.text == "2 H100: buffers in GPU memory (CUDA 12.8, CuPy 13.6.0)"
    assert found(GOOD, "GPUs").text == "none: buffers in host memory"


def test_devices_that_are_alike_are_described_once() -> None:
    facts = plugin(devices=("eth1 25 Mb/s (host)", "eth2 9 Mb/s", "eth3 25 Mb/s (host)"))
    assert found(facts, "plugin devices").text == "3: eth1, eth3 25 Mb/s (host), eth2 9 Mb/s"


def test_without_a_plugin_nothing_is_said_of_gpus() -> None:
    dead = dataclasses.replace(PLUGIN, problem="init returned 3")
    assert "GPUs" not in {f.title for f in node_findings(with_(**GPUS, plugin=dead), "a")}


def test_a_profile_is_named() -> None:
    assert found(with_(profile="profile a3 (auto)"), "profile").text == "profile a3 (auto)"


def test_a_manager_that_answers_for_every_gpu_is_good() -> None:
    gpus = ("0000:04:00.0",)
    assert found(with_(**A3, gpus=gpus), "datapath manager").severity is OK


def test_where_nothing_asks_for_tcpx_its_manager_is_not_looked_for() -> None:
    assert "datapath manager" not in {f.title for f in node_findings(GOOD, "a")}


def test_the_same_plugin_under_another_path_hides_nothing() -> None:
    same = with_(libraries=(("/x/libnccl-net.so", "a" * 64), ("/y/libnccl-net.so", "b" * 64)))
    assert found(same, "plugin found first").severity is OK


def test_one_core_of_one_is_no_binding() -> None:
    assert found(with_(cpus=(0,), cpu_count=1), "CPUs").severity is OK


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


# --- What is printed -----------------------------------------------------------------------------


def test_a_missing_plugin_outweighs_other_failures_and_a_warning_none() -> None:
    def failed(code: ExitCode) -> CheckFinding:
        return Finding(FAILED, "c", "f", "r", Checked("n", code))

    warning = Finding(WARNING, "c", "f", "r", Checked("n"))
    assert exit_code([warning]) == ExitCode.OK
    assert exit_code([warning, failed(ExitCode.SETUP_FAILED)]) == ExitCode.SETUP_FAILED
    for other in (ExitCode.SETUP_FAILED, ExitCode.USAGE):
        both = [failed(other), failed(ExitCode.PLUGIN_MISSING)]
        assert exit_code(both) == ExitCode.PLUGIN_MISSING


def test_each_finding_is_a_line_with_what_to_do_and_the_last_line_counts() -> None:
    findings = [
        Finding(OK, "CPUs", "0-7", evidence=Checked("n0")),
        Finding(FAILED, "same MPI", "differs", "use one"),
    ]
    assert lines(findings) == [
        "OK       n0         CPUs      0-7",
        "FAILED   all nodes  same MPI  differs -> use one",
        "# 1 OK, 1 FAILED",
    ]
