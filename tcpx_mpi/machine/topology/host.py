"""Facts of this host: identity, clock, CPUs, caches, memory. Impure, small."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tcpx_mpi.machine.topology.machine import Gpu


@dataclass(frozen=True)
class Host:
    """The facts about the host of this process that a run records or decides by.

    `node` identifies the node and `clock` the domain in which CLOCK_MONOTONIC is shared: neither
    rests on the host name, which simulated nodes share.
    """

    name: str
    node: str
    clock: str
    cpus: tuple[int, ...]
    llc_bytes: int
    memory_available_bytes: int
    kernel: str
    cpu_model: str
    #: The GPUs that this process may use: a launcher may give each rank of a node its own.
    gpus: tuple[Gpu, ...] = ()
    #: What the kernel reads the time from, such as tsc; "" if it does not say.
    clock_source: str = ""


def host_facts(gpus: Sequence[Gpu]) -> Host:
    """The host as this process sees it, with these GPUs; 0 or "" if the system does not say."""
    boot = _read("/proc/sys/kernel/random/boot_id")
    return Host(
        name=socket.gethostname(),
        node="/".join([boot, _namespace("net"), _namespace("mnt"), _namespace("uts")]),
        clock="/".join([boot, _namespace("time")]),
        cpus=tuple(sorted(os.sched_getaffinity(0))),
        llc_bytes=last_level_cache_bytes(),
        memory_available_bytes=_memory_available_bytes(),
        kernel=os.uname().release,
        cpu_model=_cpu_model(),
        gpus=tuple(gpus),
        clock_source=_read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    )


def node_names(hosts: Sequence[str]) -> list[str]:
    """A name for each of several nodes: its host's, numbered where more than one has the same."""
    return [
        host if hosts.count(host) == 1 else f"{host}#{number}" for number, host in enumerate(hosts)
    ]


def last_level_cache_bytes(root: str = "/sys/devices/system/cpu/cpu0/cache") -> int:
    """Size of the largest cache of CPU 0; 0 where unknown."""
    sizes = [_cache_size(_read(str(entry / "size"))) for entry in Path(root).glob("index*")]
    return max(sizes, default=0)


def _cache_size(text: str) -> int:
    unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
    digits = text.rstrip("KMG")
    return int(digits) * unit if digits.isdigit() else 0


def _memory_available_bytes() -> int:
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def _cpu_model() -> str:
    for line in _read("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return os.uname().machine


def _namespace(kind: str) -> str:
    try:
        return os.readlink(f"/proc/self/ns/{kind}")
    except OSError:
        return ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
