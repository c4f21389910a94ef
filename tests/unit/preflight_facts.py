"""Invented facts of nodes, for the checks of a preflight."""

from __future__ import annotations

import dataclasses
from typing import Any

from tcpx_mpi.findings import Finding
from tcpx_mpi.machine.interfaces import Interface
from tcpx_mpi.preflight.checks import node_findings
from tcpx_mpi.preflight.facts import NodeFacts, PluginFacts

PLUGIN = PluginFacts(
    path="/opt/libnccl-net-soft.so", how="--plugin", exists=True, readable=True, mount="/",
    sha256="a" * 64, abi_versions=(7,), name="soft", devices=("eth1 200000 Mb/s",),
)  # fmt: skip
TCPX = dataclasses.replace(PLUGIN, path="/usr/local/tcpx/libnccl-net.so", name="GPUDirectTCPX_v7")
ETH0 = Interface("eth0", True, 1460, 0, ("10.0.0.1",))
ETH1 = Interface("eth1", True, 8244, 200000, ("10.0.1.1",))
LO = Interface("lo", True, 65536, 0, ("127.0.0.1",))

TUNING = {f"net.core.{way}mem_max": str(4 << 20) for way in "rw"}

#: A node with nothing wrong.
GOOD = NodeFacts(
    host="a3-0", node="boot/1", version="0.1.0", source="abc", python="3.11.2",
    executable="/venv/bin/python", mpi_library="Open MPI v5.0.8", mpi_problem="",
    profile="", profile_asked=False, profile_problem="", plugin=PLUGIN,
    libraries=(), interfaces=(ETH0, ETH1, LO), tcpx_reasons=(), manager_directory="/run/tcpx",
    manager_sockets={}, gpus=(), gpu_models=(), gpus_on_pci=0,
    open_files=65536, locked_memory=-1, shm_free=1 << 30,
    congestion="cubic", congestion_available=("reno", "cubic"),
    congestion_refusal=None, tuning=TUNING,
    cpus=tuple(range(8)), cpu_count=8, environment={}, interface_variables={},
)  # fmt: skip
GPUS = {"gpus": ("0000:04:00.0", "0000:05:00.0"), "gpu_models": ("H100", "H100")}


def with_(**changes: Any) -> NodeFacts:
    return dataclasses.replace(GOOD, **changes)


def found(facts: NodeFacts, check: str) -> Finding:
    """The one finding of a check."""
    (finding,) = [f for f in node_findings(facts, facts.host) if f.title == check]
    return finding


def second(**changes: Any) -> NodeFacts:
    return dataclasses.replace(GOOD, host="a3-1", node="boot/2", **changes)
