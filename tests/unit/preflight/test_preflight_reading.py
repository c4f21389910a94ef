"""What a preflight reads of a node: sockets, GPUs, libraries, mounts, limits, profiles."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from machines import machine
from preflight_facts import TCPX

from tcpx_mpi.preflight import facts as reading
from tcpx_mpi.preflight.facts import AskedPlugin, NodeFacts
from tcpx_mpi.preflight.hostfile import reach_findings
from tcpx_mpi.preflight.hostfile_forms import HostLine


def facts_on_a3(monkeypatch: pytest.MonkeyPatch, profile: str, **environ: str) -> NodeFacts:
    """The facts of a node that is an A3 machine as far as can be read."""
    monkeypatch.setattr(reading, "this_machine", lambda: machine("a3-highgpu-8g"))
    monkeypatch.setattr(reading, "mpi_library", lambda: ("Open MPI", ""))
    monkeypatch.setattr(reading, "_plugin", lambda *asked: TCPX)
    return reading.read_facts(AskedPlugin(), profile, environ)


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
    facts = reading.read_facts(AskedPlugin(), "a3-highgpu-8g", {})
    assert "has no NIC eth1" in facts.profile_problem


def test_the_congestion_control_that_softtcpx_will_ask_for_is_asked_of_the_kernel() -> None:
    asked = {"SOFTTCPX_CONGESTION": "no_such_one"}
    refusal = reading.read_facts(AskedPlugin(), "none", asked).congestion_refusal
    assert refusal is not None
    assert refusal.cause.startswith("no_such_one is not available")


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
    assert reading._limit(0, raised=True) == 5  # as a run raises it


def test_an_ssh_port_that_answers_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    from tcpx_mpi.preflight import hostfile

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        monkeypatch.setattr(hostfile, "_SSH_PORT", server.getsockname()[1])
        # The kernel completes a connection before anybody accepts it.
        assert reach_findings([HostLine(1, "127.0.0.1", 1)]) == []
    (finding,) = reach_findings([HostLine(1, "127.0.0.1", 1)])
    assert "refused" in finding.text
