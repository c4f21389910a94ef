"""Reads a machine out of a tree: works without GPUs, NICs, NUMA nodes, and in containers."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from tcpx_mpi.cpu_lists import MOST_CPUS, parse_cpu_list
from tcpx_mpi.errors import UsageError
from tcpx_mpi.machine.topology.gpus import find_gpus, gpus_on_pci
from tcpx_mpi.machine.topology.machine import Gpu, Limits, Nic, NumaNode, Topology
from tcpx_mpi.machine.topology.pci import pci_address, pci_function
from tcpx_mpi.machine.topology.tree import PATH_LETTERS, Tree

_CPU = "/sys/devices/system/cpu"
_NODE = "/sys/devices/system/node"
_STATUS = "/proc/self/status"
_IFF_UP = 0x1
_LOOPBACK_TYPE = 772
_NODE_NAME = re.compile(r"node[0-9]{1,5}")
_FLAGS = re.compile(r"0x[0-9a-f]{1,16}")
#: Threads of a core; POWER has 8.
_SIBLINGS = 64
_CGROUPS = "/sys/fs/cgroup"
_MOST = {"GPUs": 64, "NUMA nodes": 1024, "NICs": 1024}
_Part = TypeVar("_Part")


def read_topology(tree: Tree) -> Topology:
    """The machine of a tree. Raises UsageError for a recorded tree that is none."""
    affinity = _cpus(tree.field(_STATUS, "Cpus_allowed_list"))
    cpus = _cpus(tree.text(f"{_CPU}/online")) or affinity
    if not cpus:
        raise UsageError(
            f"{tree.name} has no {_STATUS}: give a file that `tcpx-mpi topo --record` has made"
        )
    gpus = tuple(_located(tree, gpu) for gpu in _bounded(tree, "GPUs", _gpus(tree)))
    # What a recorded tree knows of GPUs are those that its process had.
    pci_gpus = gpus_on_pci() if tree.live else sorted(gpu.pci for gpu in gpus)
    return Topology(
        about=tree.about,
        cpus=cpus,
        cores=_cores(tree, cpus),
        numa_nodes=tuple(_bounded(tree, "NUMA nodes", _numa_nodes(tree))),
        gpus=gpus,
        nics=tuple(_bounded(tree, "NICs", _nics(tree))),
        limits=_limits(tree, affinity),
        pci_gpus=tuple(pci_gpus),
    )


def gpu_facts(gpus: Sequence[Gpu]) -> list[dict[str, str]]:
    """The facts that a recorded tree keeps of the GPUs, as no file of the system has them."""
    return [{"name": gpu.name, "uuid": gpu.uuid, "pci": gpu.pci} for gpu in gpus]


def _bounded(tree: Tree, what: str, found: list[_Part]) -> list[_Part]:
    """The same. Raises UsageError if a file tells more than any machine has: each is held
    against each other."""
    most = _MOST[what]
    if not tree.live and len(found) > most:
        raise UsageError(f"{tree.name} has {len(found)} {what}, more than the {most} that may be")
    return found


def _gpus(tree: Tree) -> list[Gpu]:
    if tree.live:
        return find_gpus(os.environ.get("CUDA_VISIBLE_DEVICES"))
    try:
        return [
            Gpu(index, str(fact["name"]), str(fact.get("uuid", "")), pci_address(str(fact["pci"])))
            for index, fact in enumerate(tree.gpu_facts)
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(
            f'{tree.name}: "gpus" is no list of GPUs ({type(error).__name__}: {error}): each has '
            "a name, a uuid and a pci address"
        ) from None


def _located(tree: Tree, gpu: Gpu) -> Gpu:
    path = tree.target(f"/sys/bus/pci/devices/{gpu.pci}") if gpu.pci else ""
    numa = tree.number(f"{path}/numa_node") if path else -1
    return dataclasses.replace(gpu, path=path, numa_node=numa)


def _cores(tree: Tree, cpus: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    cores: list[tuple[int, ...]] = []
    left = set(cpus)
    for cpu in cpus:
        if cpu not in left:
            continue
        siblings = _cpus(tree.text(f"{_CPU}/cpu{cpu}/topology/thread_siblings_list"), _SIBLINGS)
        core = sorted(sibling for sibling in {cpu, *siblings} if sibling in left)
        left.difference_update(core)
        cores.append(tuple(core))
    return tuple(cores)


def _numa_nodes(tree: Tree) -> list[NumaNode]:
    numbers = [int(name[4:]) for name in tree.names(_NODE) if _NODE_NAME.fullmatch(name)]
    nodes = []
    for number in sorted(numbers):
        cpus = _cpus(tree.text(f"{_NODE}/node{number}/cpulist"))
        memory = tree.field(f"{_NODE}/node{number}/meminfo", f"Node {number} MemTotal")
        nodes.append(NumaNode(number, cpus, _kilobytes(memory)))
    return nodes


def _nics(tree: Tree) -> list[Nic]:
    nics = []
    irq_cpus = functools.cache(functools.partial(_irq_cpus, tree))
    for name in tree.names("/sys/class/net"):
        path = tree.target(f"/sys/class/net/{name}")
        if path:  # bonding puts a file among them
            nics.append(_nic(tree, name, path, irq_cpus))
    return nics


def _nic(tree: Tree, name: str, path: str, irq_cpus: Callable[[str], tuple[int, ...]]) -> Nic:
    function = pci_function(path)
    state = tree.text(f"{path}/operstate") or "unknown"
    flags = tree.text(f"{path}/flags")
    administratively_up = bool(_FLAGS.fullmatch(flags) and int(flags, 16) & _IFF_UP)
    return Nic(
        name=name,
        state=state,
        # Loopback and tunnels never say more than unknown.
        up=administratively_up and state in ("up", "unknown"),
        loopback=tree.number(f"{path}/type") == _LOOPBACK_TYPE,
        speed_mbps=max(tree.number(f"{path}/speed"), -1) or -1,
        mtu=tree.number(f"{path}/mtu"),
        pci=os.path.basename(function),
        path=function,
        numa_node=tree.number(f"{function}/numa_node") if function else -1,
        irq_cpus=irq_cpus(function) if function else (),
    )


def _irq_cpus(tree: Tree, function: str) -> tuple[int, ...]:
    cpus: set[int] = set()
    for irq in tree.names(f"{function}/msi_irqs"):
        tree.text(f"{function}/msi_irqs/{irq}")  # a recorded tree lists what was read
        # "effective" is where they go, of all the CPUs where they might.
        effective = tree.text(f"/proc/irq/{irq}/effective_affinity_list")
        cpus.update(_cpus(effective or tree.text(f"/proc/irq/{irq}/smp_affinity_list")))
    return tuple(sorted(cpus))


# --- Limits ---------------------------------------------------------------------------------------


def _limits(tree: Tree, affinity: tuple[int, ...]) -> Limits:
    paths = _cgroup_paths(tree)
    return Limits(
        affinity=affinity,
        cpuset=_cpus(
            _nearest(tree, _directories(paths, "cpuset"), "cpuset.cpus.effective")
            or _nearest(tree, _directories(paths, "cpuset"), "cpuset.effective_cpus")
        ),
        cpu_quota=_cpu_quota(tree, paths),
        memory_bytes=_memory_limit(tree, paths),
    )


def _cgroup_paths(tree: Tree) -> dict[str, str]:
    """The cgroup of each controller, "" that of version 2, as directories below /sys/fs/cgroup."""
    paths = {}
    for line in tree.text("/proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        for controller in controllers.split(","):
            mount = f"{_CGROUPS}/{controllers}" if controllers else _CGROUPS
            paths[controller] = f"{mount}{path}".rstrip("/")
    return paths


def _directories(paths: dict[str, str], controller: str) -> list[str]:
    """The folders with limits of a controller: from the process's own cgroup up to the root.

    A container sees its own cgroup as the root, whatever path the kernel tells it.
    """
    own = paths.get(controller) or paths.get("")
    if own is None:
        return []
    # The kernel tells a cgroup above the root of this namespace by "..": none of its limits can be
    # read, those of the root can.
    below = os.path.normpath(own[:PATH_LETTERS])
    directories = []
    while below.startswith(f"{_CGROUPS}/"):
        directories.append(below)
        below = os.path.dirname(below)
    return [*directories, _CGROUPS]


def _nearest(tree: Tree, directories: Sequence[str], name: str) -> str:
    return next((text for each in directories if (text := tree.text(f"{each}/{name}"))), "")


def _cpu_quota(tree: Tree, paths: dict[str, str]) -> float:
    """The tightest of the limits from the process's cgroup up."""
    quotas = []
    for directory in _directories(paths, "cpu"):
        quota, _, period = tree.text(f"{directory}/cpu.max").partition(" ")
        if not quota:
            quota = tree.text(f"{directory}/cpu.cfs_quota_us")
            period = tree.text(f"{directory}/cpu.cfs_period_us")
        if _is_index(quota) and _is_index(period) and int(period) > 0:  # else "max" or -1
            quotas.append(int(quota) / int(period))
    return min(quotas, default=0.0)


def _memory_limit(tree: Tree, paths: dict[str, str]) -> int:
    limits = []
    for directory in _directories(paths, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = tree.text(f"{directory}/{name}")
            # Version 1 writes "no limit" as the largest whole number of pages.
            if _is_index(text) and int(text) < 1 << 62:
                limits.append(int(text))
    return min(limits, default=0)


def _kilobytes(text: str) -> int:
    amount, _, unit = text.partition(" ")
    return int(amount) * 1024 if _is_index(amount) and unit == "kB" else 0


def _is_index(text: str) -> bool:
    """Whether a text is a number from 0 on that has 63 bits or little more."""
    return text.isdecimal() and len(text) <= 19


def _cpus(text: str, most: int = MOST_CPUS) -> tuple[int, ...]:
    try:
        return parse_cpu_list(text, most)
    except ValueError:
        return ()
