"""The circumstances of a run: versions as loaded, host facts, git state, every rank's place."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import tcpx_mpi
from tcpx_mpi import world
from tcpx_mpi.rank_setup import RankEngine
from tcpx_mpi.records import RankInfo
from tcpx_mpi.topology import Host, cpu_list_text, interface_numa_node


def rank_info(rank: int, host: Host, engine: RankEngine) -> RankInfo:
    """Where this rank runs and what it drives."""
    placement, plugin = engine.placement, engine.plugin
    nic = plugin.nic(placement.device)
    return RankInfo(
        rank=rank,
        host=host.name,
        node=host.node,
        pid=os.getpid(),
        device=placement.local_rank,
        device_name="host memory",
        nic=nic["name"],
        nic_pci=os.path.basename(nic["pci_path"]),
        nic_speed_mbps=nic["speed_mbps"],
        numa_node=interface_numa_node(nic["name"]),
        cpus=cpu_list_text(host.cpus),
        progress_cpu=placement.progress_cpu,
        plugin_path=plugin.file.path,
        plugin_sha256=plugin.file.sha256,
        plugin_abi=plugin.file.abi,
        plugin_name=plugin.file.name,
        memory=engine.settings.memory_kind()[0],
    )


def versions() -> dict[str, str]:
    """Versions as loaded, for the record."""
    found = {
        "tcpx-mpi": tcpx_mpi.__version__,
        "git": _git_state(),
        "python": platform.python_version(),
        "mpi": world.library_version(),
    }
    for package in ("mpi4py", "numpy", "h5py"):
        found[package] = version(package)
    return found


def facts(host: Host, engine: RankEngine) -> dict[str, str]:
    """What is true of rank 0's host and plugin and may explain a number."""
    plugin = engine.plugin
    return {
        "kernel": host.kernel,
        "cpu_model": host.cpu_model,
        "cpus": cpu_list_text(host.cpus),
        "memory_available_bytes": str(host.memory_available_bytes),
        "plugin_found": plugin.how,
        "plugin_said": "\n".join(plugin.said),
        "congestion_control": str(engine.native.sockets()["congestion_control"]) or "unknown",
    }


def _git_state() -> str:
    """Commit of the source tree this package runs from, "+changes" where it differs; "" if none."""
    tree = Path(__file__).resolve().parent.parent
    if not (tree / ".git").exists():
        return ""

    def git(*arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(tree), *arguments], capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    try:
        return git("describe", "--always", "--dirty=+changes", "--exclude=*")
    except OSError:
        return ""
