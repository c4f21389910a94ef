"""Network interfaces of a node, and errors in variables that name them.

A run and a preflight say it in the same words. Read by `read_interfaces`, judged by what is pure.
"""

from __future__ import annotations

import socket
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import psutil


@dataclass(frozen=True)
class Interface:
    """A network interface; speed 0 where the kernel does not know. `addresses` are of IPv4.

    `enabled` is what `ip link set up` does; `up` is that with a link.
    """

    name: str
    up: bool
    mtu: int
    speed_mbps: int
    addresses: tuple[str, ...]
    enabled: bool = True
    #: Whether it has an address of IPv6 that is more than the kernel's own of the link.
    ipv6: bool = False


@dataclass(frozen=True)
class Problem:
    """A problem that keeps an interface from being used, and the remedy."""

    cause: str
    remedy: str


def read_interfaces() -> list[Interface]:
    """Those of this node, by name."""
    addresses = psutil.net_if_addrs()
    return [
        Interface(
            name, stats.isup, stats.mtu, stats.speed,
            tuple(a.address for a in addresses.get(name, ()) if a.family == socket.AF_INET),
            "up" in stats.flags.split(","),
            any(
                a.family == socket.AF_INET6 and not a.address.lower().startswith("fe80:")
                for a in addresses.get(name, ())
            ),
        )
        for name, stats in sorted(psutil.net_if_stats().items())
    ]  # fmt: skip


def name_matches(spec: str, name: str) -> bool:
    """Whether NCCL's list of interfaces means this one: prefixes, `=` exact, `^` all but these."""
    negated = spec.startswith("^")
    rest = spec[1:] if negated else spec
    exact = rest.startswith("=")
    parts = [part for part in rest.removeprefix("=").split(",") if part]
    listed = any(name == part if exact else name.startswith(part) for part in parts)
    return listed != negated


def name_lists(spec: str) -> list[str]:
    """NCCL's list of interfaces as one list for each name; nothing for those but which all are."""
    spec = spec.strip()
    exact = "=" if spec.startswith("=") else ""
    names = [] if spec.startswith("^") else spec.removeprefix("=").split(",")
    return [exact + name for name in names if name]


def meant(spec: str, interfaces: Sequence[Interface]) -> list[Interface]:
    """Those that a list of NCCL's means; of "all but": those that can be used."""
    spec = spec.strip()
    found = [nic for nic in interfaces if name_matches(spec, nic.name)]
    return [nic for nic in found if nic.up and nic.addresses] if spec.startswith("^") else found


def problems_of(variable: str, spec: str, interfaces: Sequence[Interface]) -> list[Problem]:
    """The problems of the interfaces that a variable names, in the order of the names."""
    spec = spec.strip()
    there = ", ".join(nic.name for nic in interfaces)
    if spec.startswith("^"):
        if meant(spec, interfaces):
            return []
        cause = f"{variable} ({spec}) leaves none of {there} that is up with an address"
        return [Problem(cause, "exclude fewer, or bring one up")]
    found = []
    for part in name_lists(spec):
        named = [nic for nic in interfaces if name_matches(part, nic.name)]
        if not named:
            cause = f"{variable} names {part}, which is none of {there}"
            found.append(Problem(cause, "correct the name"))
        # One that has this very name is meant; of those with a prefix a plugin takes what is up.
        wanted = [nic for nic in named if nic.name == part] or named
        bad = [problem for nic in wanted if (problem := _of_interface(variable, nic))]
        found += bad if len(bad) == len(wanted) else []
    return list(dict.fromkeys(found))


def problem_of_all(interfaces: Sequence[Interface]) -> Problem | None:
    """The problem if no variable names any: why only the loopback one could be used."""
    if any(nic.up and nic.addresses and nic.name != "lo" for nic in interfaces):
        return None
    only = [nic.name for nic in interfaces if nic.up and nic.ipv6 and nic.name != "lo"]
    of_ipv6 = f" ({', '.join(only)} {'has' if len(only) == 1 else 'have'} IPv6 alone)"
    return Problem(
        f"none named, and none but lo is up with an IPv4 address{of_ipv6 if only else ''}",
        f"ip addr add ADDRESS dev {only[0]}, or set NCCL_SOCKET_IFNAME (lo is good for one node)"
        if only
        else "bring one up, or set NCCL_SOCKET_IFNAME (lo is good for one node)",
    )


def problem_without_devices(
    variable: str, spec: str, interfaces: Sequence[Interface]
) -> Problem | None:
    """Why a plugin that takes interfaces for its devices has none; None: not for these.

    `variable` is the one that chooses them, "" for none.
    """
    if not variable:
        return problem_of_all(interfaces)
    found = problems_of(variable, spec, interfaces)
    return _joined(found) if found else None


def missing_interface(
    variable: str, spec: str, devices: Collection[str], interfaces: Sequence[Interface]
) -> Problem | None:
    """The problem of names that none of the plugin's devices has; None: all are good.

    A plugin just goes on with fewer of them, and nodes whose numbers differ then meet on a wrong
    network.
    """
    if not set(devices) & {nic.name for nic in interfaces}:
        return None  # the devices of this plugin are no interfaces
    found: list[Problem] = []
    for part in name_lists(spec):
        if any(name_matches(part, name) for name in devices):
            continue
        nothing = Problem(
            f"{variable} names {part}, which is no device of this plugin", "correct the name"
        )
        found += problems_of(variable, part, interfaces) or [nothing]
    if not found:
        return None
    problem = _joined(found)
    others = f", or leave it out on all nodes; usable are {', '.join(devices)}"
    return Problem(problem.cause, problem.remedy + others)


def _of_interface(variable: str, nic: Interface) -> Problem | None:
    if not nic.enabled:
        return Problem(f"{nic.name} of {variable} is down", f"ip link set {nic.name} up")
    if not nic.up:
        cause = f"{nic.name} of {variable} is enabled, but has no link"
        return Problem(cause, f"see to the other end of {nic.name}: cable, switch, peer")
    if not nic.addresses:
        alone = ", but one of IPv6, which is not used here" if nic.ipv6 else ""
        cause = f"{nic.name} of {variable} has no IPv4 address{alone}"
        return Problem(cause, f"ip addr add ADDRESS dev {nic.name}")
    return None


def _joined(problems: Sequence[Problem]) -> Problem:
    causes = dict.fromkeys(problem.cause for problem in problems)
    remedies = dict.fromkeys(problem.remedy for problem in problems)
    return Problem(" and ".join(causes), " and ".join(remedies))
