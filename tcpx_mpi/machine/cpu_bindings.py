"""TCPX's bindings of its threads: which CPUs send and receive for each NIC. Pure.

The form is `eth1:8-21,112-125;eth2:...`: ranges only, at most 8 a NIC. TCPX drops a bare number,
and ends the process where none is left.
"""

from __future__ import annotations

from collections.abc import Mapping

from tcpx_mpi.cpu_lists import parse_cpu_list, ranges_of
from tcpx_mpi.errors import UsageError
from tcpx_mpi.machine.topology import Topology

TX_VARIABLE = "NCCL_GPUDIRECTTCPX_TX_BINDINGS"
RX_VARIABLE = "NCCL_GPUDIRECTTCPX_RX_BINDINGS"
MAX_RANGES = 8

#: CPUs by name of NIC.
Bindings = Mapping[str, tuple[int, ...]]


def bindings_text(bindings: Bindings) -> str:
    """The value of a variable. Of more ranges than TCPX reads, the longest are kept."""
    parts = []
    for nic, cpus in bindings.items():
        longest = sorted(ranges_of(cpus), key=lambda each: each[0] - each[1])[:MAX_RANGES]
        parts.append(f"{nic}:" + ",".join(f"{a}-{b}" for a, b in sorted(longest)))
    return ";".join(parts)


def parse_bindings(name: str, text: str) -> dict[str, tuple[int, ...]]:
    """The bindings in the text of a variable. Raises UsageError for what TCPX could not read."""
    bindings: dict[str, tuple[int, ...]] = {}
    for part in filter(None, (part.strip() for part in text.split(";"))):
        nic, colon, ranges = part.partition(":")
        words = ranges.split(",")
        try:
            if not nic or not colon or not all("-" in word for word in words):
                raise ValueError(part)
            bindings[nic] = parse_cpu_list(ranges)
        except ValueError:
            raise UsageError(
                f"{name} ({part}) is no binding: write it like eth1:8-21,112-125;eth2:8-8, with "
                "ranges only, which is all that TCPX reads"
            ) from None
        if len(words) > MAX_RANGES:
            raise UsageError(
                f"{name} ({part}) has {len(words)} ranges: TCPX reads {MAX_RANGES} of a NIC; use "
                "fewer"
            )
    return bindings


def bindings_in(environ: Mapping[str, str]) -> dict[str, tuple[int, ...]]:
    """The CPUs that an environment binds TCPX's threads to, by NIC, sending and receiving."""
    bindings: dict[str, set[int]] = {}
    for name in (TX_VARIABLE, RX_VARIABLE):
        for nic, cpus in parse_bindings(name, environ.get(name, "")).items():
            bindings.setdefault(nic, set()).update(cpus)
    return {nic: tuple(sorted(cpus)) for nic, cpus in bindings.items()}


def split_numa_node(topology: Topology, numa_node: int) -> tuple[tuple[int, ...], ...]:
    """The CPUs of a NUMA node for our progress threads, for TCPX's sending and its receiving.

    A third of the cores each, no core in two parts, so that threads that spin never share one;
    TCPX's parts are empty if there are not three cores. Our part has the first cores, where
    the kernel does its own work, because progress threads need the fewest.
    """
    cpus = set(topology.cpus_of(numa_node)) & set(topology.limits.cpuset or topology.cpus)
    cores = [core for core in topology.cores if cpus & set(core)]
    third = len(cores) // 3
    first = len(cores) - 2 * third
    parts = (cores[:first], cores[first : first + third], cores[first + third :])
    return tuple(tuple(sorted(cpus & {cpu for core in part for cpu in core})) for part in parts)
