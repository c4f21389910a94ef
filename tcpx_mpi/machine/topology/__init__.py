"""This machine: host identity, CPUs, NUMA nodes, GPUs, NICs, limits. Impure, small.

`read_host` is what every rank tells the others; `read_topology` what placement on this node needs.
"""

from __future__ import annotations

import functools

from tcpx_mpi.machine.topology.gpus import CUDA
from tcpx_mpi.machine.topology.host import Host, host_facts, node_names
from tcpx_mpi.machine.topology.machine import Gpu, Limits, Nic, NumaNode, Topology
from tcpx_mpi.machine.topology.pci import Distance, pci_address
from tcpx_mpi.machine.topology.reader import gpu_facts, read_topology
from tcpx_mpi.machine.topology.tree import Tree, open_tree


@functools.cache
def this_machine() -> Topology:
    """The machine of this process, read once."""
    return read_topology(Tree())


def read_host() -> Host:
    """The host as this process sees it."""
    return host_facts(this_machine().gpus)


__all__ = [
    "CUDA",
    "Distance",
    "Gpu",
    "Host",
    "Limits",
    "Nic",
    "NumaNode",
    "Topology",
    "Tree",
    "gpu_facts",
    "node_names",
    "open_tree",
    "pci_address",
    "read_host",
    "read_topology",
    "this_machine",
]
