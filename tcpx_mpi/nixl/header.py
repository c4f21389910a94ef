"""What is known of a measurement before its first row."""

from __future__ import annotations

import os
import platform
import secrets
from collections.abc import Mapping, Sequence

from tcpx_mpi import _native
from tcpx_mpi._version import installed_version, source_state
from tcpx_mpi.cpu_lists import cpu_list_text
from tcpx_mpi.machine.topology import Host
from tcpx_mpi.nixl.request import kv_shape
from tcpx_mpi.nixl.roles import Roles
from tcpx_mpi.nixl.settings import BESIDE, NixlSettings
from tcpx_mpi.nixl.wheel import BACKEND, Wheel
from tcpx_mpi.records import (
    APART,
    INITIATORS,
    SYNCHRONISED,
    TARGETS,
    BaselineInfo,
    Plan,
    RankInfo,
    RunHeader,
    filter_environment,
    utc_now,
)
from tcpx_mpi.units import counted


def header_of(
    settings: NixlSettings, roles: Roles, hosts: Sequence[Host], pids: Mapping[int, int],
    wheel: Wheel, command: Sequence[str], beside: Sequence[str], lost: Mapping[str, str],
) -> RunHeader:  # fmt: skip
    """`hosts` are those of all ranks; `beside` are backends that run, `lost` says why one does
    not."""
    host = hosts[0]
    plugin = settings.plugin or os.environ.get("TCPX_NIXL_PLUGIN", "") or "softtcpx"
    memory = "device" if settings.memory == "vram" else "host"
    return RunHeader(
        run_id=secrets.token_hex(8),
        pattern=f"nixl-{settings.operation}",
        start_time=utc_now(),
        command=list(command),
        plan=Plan(
            sizes=tuple(
                request.payload_bytes * len(roles.targets) for request in settings.requests
            ),
            iters=settings.iterations,
            warmup_iters=settings.warmup_iterations,
            agg_iters=settings.batch,
            check=int(settings.check),
        ),
        settings=[(name, value, "command line") for name, value in _texts(settings, roles).items()],
        versions={
            "tcpx-mpi": installed_version(),
            "git": source_state(),
            "build": ", ".join(_native.BUILD.values()),
            "python": platform.python_version(),
            wheel.name: wheel.version,
        },
        environment=filter_environment(os.environ),
        facts={
            "kernel": host.kernel,
            "cpu_model": host.cpu_model,
            INITIATORS: cpu_list_text(roles.initiators),
            TARGETS: cpu_list_text(roles.targets),
        },
        ranks=[
            _rank(rank, roles, hosts, pids[rank], plugin, memory) for rank in range(roles.world)
        ],
        world=roles.world,
        busbw_factor=1.0,
        time_divisor=1,
        plugin_path=plugin,
        plugin_sha256="",
        plugin_abi=-1,
        plugin_name=os.path.basename(plugin),
        memory=memory,
        unpack="",
        llc_bytes=host.llc_bytes,
        mode=SYNCHRONISED if len(roles.initiators) == 1 else APART,
        notes=_notes(settings, roles, wheel),
        baselines=[_baseline(backend, lost) for backend in [*beside, *lost]],
    )


def fingerprint_of(settings: NixlSettings, roles: Roles) -> str:
    """Equal on all ranks that were asked for the same; only the leader writes files."""
    told = {name: value for name, value in _texts(settings, roles).items() if name != "hdf5"}
    return "\n".join(f"{name}={value}" for name, value in told.items())


def _texts(settings: NixlSettings, roles: Roles) -> dict[str, str]:
    return {
        "operation": settings.operation,
        "memory": settings.memory,
        "size": ",".join(str(request.payload_bytes) for request in settings.requests),
        "descriptors": str(settings.requests[0].blocks),
        "kv": settings.kv or "none",
        "initiators": cpu_list_text(roles.initiators),
        "targets": cpu_list_text(roles.targets),
        "batch": str(settings.batch),
        "threads": str(settings.threads),
        "iterations": str(settings.iterations),
        "warmup_iterations": str(settings.warmup_iterations),
        "against": ",".join(settings.against) or "none",
        "check": str(settings.check),
        "progress_thread": str(settings.progress_thread),
        "plugin": settings.plugin,
        "device": ",".join(map(str, settings.devices)),
        "hdf5": settings.hdf5,
    }


def _notes(settings: NixlSettings, roles: Roles, wheel: Wheel) -> list[str]:
    one = len(roles.initiators) == 1
    clock = f"rank {roles.initiators[0]}'s" if one else "that of the rank that asks"
    shape = counted(settings.requests[0].blocks, "descriptor") + " a request"
    if settings.kv:
        shape = kv_shape(settings.kv).text()
    at_once = f", {settings.batch} at a time to each target" if settings.batch > 1 else ""
    by = f", by {settings.threads} threads" if settings.threads > 1 else ""
    notes = [
        f"NIXL {wheel.version} ({wheel.name}), backend {BACKEND}: {roles.text()}",
        f"a time is {clock}, from the post to the end that NIXL tells; of its `send` phase, until "
        "all posts have returned",
        f"{shape}{at_once}{by}",
    ]
    if len(roles.targets) > 1:
        notes.append("a size is that of one request to each target")
    return notes


def _baseline(backend: str, lost: Mapping[str, str]) -> BaselineInfo:
    beside = next(each for each in BESIDE.values() if each.backend == backend)
    name, value = next(iter(beside.variables().items()))
    return BaselineInfo(
        name=backend.lower(),
        kind=backend.lower(),
        streams=0,
        two_way=True,
        congestion_control="",
        send_buffer_bytes=0,
        description=f"NIXL's backend {backend}, {name}={value}"
        + (f"; n/a: {lost[backend]}" if backend in lost else ""),
        own_process=True,
    )


def _rank(
    rank: int, roles: Roles, hosts: Sequence[Host], pid: int, plugin: str, memory: str
) -> RankInfo:
    host = hosts[rank]
    return RankInfo(
        rank=rank,
        host=host.name,
        node=host.node,
        pid=pid,
        device=0,
        device_name=f"NIXL {roles.role(rank)}",
        nic="",
        nic_pci="",
        nic_speed_mbps=-1,
        numa_node=-1,
        cpus=cpu_list_text(host.cpus),
        progress_cpu=-1,
        plugin_path=plugin,
        plugin_sha256="",
        plugin_abi=-1,
        plugin_name=os.path.basename(plugin),
        memory=memory,
    )
