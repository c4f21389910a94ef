"""The metadata of a run: versions as loaded, host facts, git state, every rank's place."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence

import tcpx_mpi
from tcpx_mpi import _native, world
from tcpx_mpi._version import source_state
from tcpx_mpi.cpu_lists import cpu_list_text
from tcpx_mpi.machine.topology import Host, Tree, node_names, this_machine
from tcpx_mpi.machine.tuning import of_all_nodes, read_tuning
from tcpx_mpi.patterns.groups import group_numbers
from tcpx_mpi.records import RankInfo, SetupTimes
from tcpx_mpi.transport.engine import RankEngine
from tcpx_mpi.transport.load_plugin import ToTell
from tcpx_mpi.transport.overhead import measure_overhead


def rank_info(rank: int, host: Host, engine: RankEngine, clock: int) -> RankInfo:
    """The place of this rank and what it drives."""
    placement, plugin = engine.placement, engine.plugin
    nic = plugin.nic(placement.device)
    return RankInfo(
        rank=rank,
        host=host.name,
        node=host.node,
        pid=os.getpid(),
        device=placement.local_rank,
        device_name=engine.gpu.name if engine.gpu is not None else "host memory",
        nic=nic["name"],
        nic_pci=os.path.basename(nic["pci_path"]),
        nic_speed_mbps=this_machine().line_rate_mbps(nic["name"], nic["speed_mbps"]),
        numa_node=placement.numa_node,
        cpus=cpu_list_text(host.cpus),
        progress_cpu=placement.progress_cpu,
        plugin_path=plugin.file.path,
        plugin_sha256=plugin.file.sha256,
        plugin_abi=plugin.file.abi,
        plugin_name=plugin.file.name,
        memory=engine.settings.memory,
        gpu=placement.gpu,
        gpu_pci=placement.gpu_pci,
        plugin_cpus=cpu_list_text(placement.plugin_cpus),
        memory_node=placement.memory_node,
        gpu_name=engine.gpu.name if engine.gpu is not None else "",
        gpu_numa_node=placement.gpu_numa_node,
        group=group_numbers(engine.settings.groups(), rank + 1)[rank],
        clock=clock,
    )


def connections(ranks: Sequence[RankInfo], setup: SetupTimes, sockets: int) -> dict[str, str]:
    """The NIC with the most data connections, both ways, of so many sockets a comm; {} for none.

    Those between ranks of one node do not count: whatever NIC they name, the kernel keeps their
    bytes on its loopback.
    """
    place = {info.rank: (info.node, info.nic, info.host) for info in ranks}
    count: Counter[tuple[str, str, str]] = Counter()
    for phase in ("connect", "accept"):
        of_phase = setup.of(phase)
        for rank, peer in zip(of_phase["rank"].tolist(), of_phase["peer"].tolist(), strict=True):
            if place[rank][0] != place[peer][0]:
                count[place[rank]] += sockets
    if not count:
        return {}
    (_, nic, host), most = count.most_common(1)[0]
    return {"connections_a_nic": str(most), "busiest_nic": f"{nic} of {host}"}


def versions() -> dict[str, str]:
    """Versions as loaded, for the record."""
    from importlib.metadata import version  # 10 ms that only rank 0 pays

    found = {
        "tcpx-mpi": tcpx_mpi.__version__,
        "git": source_state(),
        "build": ", ".join(_native.BUILD.values()),
        "python": platform.python_version(),
        "mpi": world.library_version(),
    }
    for package in ("mpi4py", "numpy", "h5py"):
        found[package] = version(package)
    return found


def by_ranks(texts: Sequence[Sequence[str]]) -> list[str]:
    """The texts of the ranks, each once: `text` of all, `text (rank 1, 3)` of some.

    `texts` has the lines of each rank.
    """
    lines = []
    for text in dict.fromkeys(text for of_rank in texts for text in of_rank):
        ranks = [str(rank) for rank, of_rank in enumerate(texts) if text in of_rank]
        lines.append(text if len(ranks) == len(texts) else f"{text} (rank {', '.join(ranks)})")
    return lines


def facts(host: Host, engine: RankEngine, told: Sequence[ToTell]) -> dict[str, str]:
    """Facts of rank 0's host and plugin that may explain a number.

    `told` has what the plugin of each rank has to tell.
    """
    plugin = engine.plugin
    cost = measure_overhead(plugin.handle if plugin.file.name == "null" else None)
    return {
        "own_clock_ns": f"{cost.clock_ns:.1f}",
        "own_clock_step_ns": str(cost.clock_step_ns),
        "own_chunk_ns": f"{cost.chunk_ns:.1f}",
        "clock_source": host.clock_source or "unknown",
        "kernel": host.kernel,
        "cpu_model": host.cpu_model,
        "cpus": cpu_list_text(host.cpus),
        "memory_available_bytes": str(host.memory_available_bytes),
        "plugin_found": plugin.how,
        "plugin_said": "\n".join(plugin.said),
        "congestion_control": engine.native.sockets()["congestion_control"] or "unknown",
        **_of_every_rank(told),
        **(engine.gpu.facts() if engine.gpu is not None else {}),
    }


def tuning(engine: RankEngine) -> dict[str, str]:
    """The settings of this rank's node, the NICs of its plugin among them."""
    return read_tuning(Tree(), this_machine(), [nic["name"] for nic in engine.plugin.nics])


def tuning_of_nodes(
    ranks: Sequence[RankInfo], of_ranks: Sequence[Mapping[str, str]]
) -> dict[str, str]:
    """The same of all nodes, each by its first rank."""
    hosts: dict[str, str] = {}
    of_nodes: dict[str, Mapping[str, str]] = {}
    for info, found in zip(ranks, of_ranks, strict=True):
        hosts.setdefault(info.node, info.host)
        of_nodes.setdefault(info.node, found)
    return of_all_nodes(dict(zip(node_names(list(hosts.values())), of_nodes.values(), strict=True)))


def _of_every_rank(told: Sequence[ToTell]) -> dict[str, str]:
    found = {
        "plugin_warned": "\n".join(by_ranks([each.warned for each in told])),
        "traps": ", ".join(by_ranks([each.traps for each in told])),
        "turned_off": "\n".join(by_ranks([each.turned_off for each in told])),
    }
    return {name: text for name, text in found.items() if text}
