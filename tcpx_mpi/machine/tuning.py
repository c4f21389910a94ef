"""The network settings that an operator can make, and forgets on one of many nodes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from tcpx_mpi.cpu_lists import cpu_list_text
from tcpx_mpi.machine.ethtool import Driver, read_driver
from tcpx_mpi.machine.topology import Topology, Tree
from tcpx_mpi.units import format_size

_CPU = "/sys/devices/system/cpu"
#: What says whether a core may go above its nominal clock, and the word for yes.
_TURBO = {f"{_CPU}/intel_pstate/no_turbo": "0", f"{_CPU}/cpufreq/boost": "1"}
_HUGE_PAGES = "/sys/kernel/mm/transparent_hugepage/enabled"
_CHOSEN = re.compile(r"\[(\w+)\]")
#: Of /proc/sys, by the names that sysctl has for them.
_SYSCTLS = (
    "kernel.numa_balancing",
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.netdev_budget",
    "net.core.netdev_max_backlog",
    "net.core.optmem_max",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
)


def read_tuning(
    tree: Tree,
    machine: Topology,
    nics: Sequence[str],
    driver_of: Callable[[str], Driver] = read_driver,
) -> dict[str, str]:
    """The settings of this node that are known, those of its data NICs `nics` among them."""
    found = {
        "cpu_governor": _governors(tree),
        "cpu_turbo": _turbo(tree),
        "transparent_huge_pages": _word(tree.text(_HUGE_PAGES)),
        "cgroup_cpus": f"{machine.limits.cpu_quota:g}" if machine.limits.cpu_quota else "no limit",
        "cgroup_memory": _size(machine.limits.memory_bytes),
        **{name: _sysctl(tree, name) for name in _SYSCTLS},
        **_of_nics(machine, nics, driver_of),
    }
    return {name: value for name, value in found.items() if value}


def of_all_nodes(of_each: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """The settings of nodes, by their names, one text for each: `1 on a; 0 on b` if they differ,
    and without the nodes of a value that more than half of them have."""
    names = dict.fromkeys(name for tuning in of_each.values() for name in tuning)
    return {
        name: _text_of({node: tuning.get(name, "unknown") for node, tuning in of_each.items()})
        for name in names
    }


def _text_of(values: Mapping[str, str]) -> str:
    nodes = defaultdict(list)
    for node, value in values.items():
        nodes[value].append(node)
    in_order = sorted(nodes, key=lambda value: -len(nodes[value]))
    usual = in_order[0] if 2 * len(nodes[in_order[0]]) > len(values) else None
    return "; ".join(
        value if value == usual else f"{value} on {', '.join(nodes[value])}" for value in in_order
    )


def _governors(tree: Tree) -> str:
    policies = f"{_CPU}/cpufreq"
    found = [
        tree.text(f"{policies}/{policy}/scaling_governor")
        for policy in tree.names(policies)
        if policy.startswith("policy")
    ]
    return ", ".join(sorted({governor for governor in found if governor}))


def _turbo(tree: Tree) -> str:
    for path, yes in _TURBO.items():
        if text := tree.text(path):
            return "on" if text == yes else "off"
    return ""


def _word(text: str) -> str:
    found = _CHOSEN.search(text)
    return found[1] if found else ""


def _size(memory_bytes: int) -> str:
    return format_size(memory_bytes) if memory_bytes else "no limit"


def _sysctl(tree: Tree, name: str) -> str:
    return " ".join(tree.text(f"/proc/sys/{name.replace('.', '/')}").split())


def _of_nics(
    machine: Topology, nics: Sequence[str], driver_of: Callable[[str], Driver]
) -> dict[str, str]:
    here = [nic for name in nics if (nic := machine.nic(name)) is not None]
    drivers = {nic.name: driver_of(nic.name) for nic in here}
    found = {
        f"nic_{what}": {nic: str(getattr(driver, what)) for nic, driver in drivers.items()}
        for what in ("driver", "firmware", "rings", "offloads", "header_split", "private_flags")
    }
    found["nic_interrupt_cpus"] = {nic.name: cpu_list_text(nic.irq_cpus) for nic in here}
    return {name: _text_by_nic(values) for name, values in found.items()}


def _text_by_nic(by_nic: Mapping[str, str]) -> str:
    """The one value that all NICs have, else that of each; "" if no NIC has any."""
    if len(set(by_nic.values())) == 1:
        return next(iter(by_nic.values()))
    return "; ".join(f"{nic} {value or 'unknown'}" for nic, value in by_nic.items())
