"""What is wrong with network interfaces that variables name, for a run and a preflight alike."""

from __future__ import annotations

import dataclasses

import pytest

from tcpx_mpi.machine import interfaces
from tcpx_mpi.machine.interfaces import (
    Interface,
    Problem,
    missing_interface,
    problem_without_devices,
    problems_of,
    read_interfaces,
)

NCCL = "NCCL_SOCKET_IFNAME"
LO = Interface("lo", True, 65536, 0, ("127.0.0.1",))
ETH0 = Interface("eth0", True, 1460, 0, ("10.0.0.1",))
ETH1 = Interface("eth1", True, 8244, 0, ("10.0.1.1",))
#: Down; without a link; without an address; with one of IPv6 alone.
ETH2 = Interface("eth2", False, 8244, 0, (), enabled=False)
ETH3 = Interface("eth3", False, 8244, 0, ())
ETH4 = Interface("eth4", True, 8244, 0, ())
ETH5 = Interface("eth5", True, 8244, 0, (), ipv6=True)
ALL = (LO, ETH0, ETH1, ETH2, ETH3, ETH4, ETH5)

WRONG = {
    "eth7": (f"{NCCL} names eth7, which is none of lo, eth0, eth1", "correct the name"),
    "eth2": (f"eth2 of {NCCL} is down", "ip link set eth2 up"),
    "eth3": (f"eth3 of {NCCL} is enabled, but has no link", "see to the other end of eth3"),
    "eth4": (f"eth4 of {NCCL} has no IPv4 address", "ip addr add ADDRESS dev eth4"),
    "=eth5": (
        f"eth5 of {NCCL} has no IPv4 address, but one of IPv6, which is not used here",
        "ip addr add ADDRESS dev eth5",
    ),
    "^lo,eth0,eth1": (f"{NCCL} (^lo,eth0,eth1) leaves none of lo, eth0", "exclude fewer"),
}


@pytest.mark.parametrize("spec", WRONG)
def test_a_plugin_without_devices_has_the_cause_that_a_preflight_has(spec: str) -> None:
    (seen,) = problems_of(NCCL, spec, ALL)
    cause, remedy = WRONG[spec]
    assert seen.cause.startswith(cause)
    assert seen.remedy.startswith(remedy)
    assert problem_without_devices(NCCL, spec, ALL) == seen


@pytest.mark.parametrize("spec", [spec for spec in WRONG if not spec.startswith("^")])
def test_a_plugin_with_fewer_devices_than_names_has_it_too(spec: str) -> None:
    (seen,) = problems_of(NCCL, spec, ALL)
    refusal = missing_interface(NCCL, f"{spec},eth1", ["eth1"], ALL)
    assert refusal is not None
    assert refusal.cause == seen.cause
    assert refusal.remedy == f"{seen.remedy}, or leave it out on all nodes; usable are eth1"


@pytest.mark.parametrize(
    ("spec", "devices"),
    [
        ("eth0,eth1", ["eth0", "eth1"]),
        ("eth", ["eth1"]),  # a prefix means what there is
        ("^eth7", ["eth1"]),
        ("eth7", ["null0"]),  # devices that are no interfaces
        ("", ["eth1"]),
    ],
)
def test_names_that_a_device_has_are_no_problem(spec: str, devices: list[str]) -> None:
    assert missing_interface(NCCL, spec, devices, ALL) is None


def test_a_prefix_is_no_problem_while_one_of_those_it_means_is_good() -> None:
    assert problems_of(NCCL, "eth", ALL) == []
    broken = [nic for nic in ALL if nic.name in ("eth2", "eth3")]
    assert [problem.cause for problem in problems_of(NCCL, "eth", broken)] == [
        f"eth2 of {NCCL} is down", f"eth3 of {NCCL} is enabled, but has no link",
    ]  # fmt: skip
    longer = Interface("eth22", True, 1500, 0, ("10.0.0.9",))
    (problem,) = problems_of(NCCL, "eth2", [*ALL, longer])  # the name of one, in full
    assert problem.cause == f"eth2 of {NCCL} is down"


def test_a_good_interface_that_the_plugin_passes_over_is_said_to_be_no_device() -> None:
    refusal = missing_interface(NCCL, "eth0,eth1", ["eth1"], ALL)
    assert refusal is not None
    assert refusal.cause == f"{NCCL} names eth0, which is no device of this plugin"


def test_without_a_variable_a_node_of_ipv6_alone_is_told_from_one_of_nothing() -> None:
    alone = problem_without_devices("", "", (LO, ETH5))
    assert alone == Problem(
        "none named, and none but lo is up with an IPv4 address (eth5 has IPv6 alone)",
        "ip addr add ADDRESS dev eth5, or set NCCL_SOCKET_IFNAME (lo is good for one node)",
    )
    nothing = problem_without_devices("", "", (LO, ETH2))
    assert nothing is not None
    assert nothing.cause.endswith("none but lo is up with an IPv4 address")
    assert nothing.remedy.startswith("bring one up")
    assert problem_without_devices("", "", ALL) is None


def test_several_problems_are_all_said_once() -> None:
    seen = problem_without_devices(NCCL, "eth2,eth4,eth2", ALL)
    assert seen is not None
    assert seen.cause == f"eth2 of {NCCL} is down and eth4 of {NCCL} has no IPv4 address"
    assert seen.remedy == "ip link set eth2 up and ip addr add ADDRESS dev eth4"


def test_an_address_of_the_link_alone_is_no_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    (lo,) = [nic for nic in read_interfaces() if nic.name == "lo"]
    assert lo.addresses[:1] == ("127.0.0.1",) or not lo.addresses
    entry = next(iter(interfaces.psutil.net_if_addrs()["lo"]))
    for address, counts in (("fe80::1%lo", False), ("fd00::1", True)):
        made = entry._replace(family=interfaces.socket.AF_INET6, address=address)
        monkeypatch.setattr(interfaces.psutil, "net_if_addrs", lambda made=made: {"lo": [made]})
        (seen,) = [nic for nic in read_interfaces() if nic.name == "lo"]
        assert (seen.addresses, seen.ipv6) == ((), counts)
        assert dataclasses.replace(seen, ipv6=lo.ipv6, addresses=lo.addresses) == lo
