"""The recorded machines of tests/fixtures/topology, and ones that a test makes up."""

from __future__ import annotations

import functools
from pathlib import Path

from tcpx_mpi.machine.topology import Gpu, Limits, Nic, NumaNode, Topology, open_tree, read_topology

FIXTURES = Path(__file__).parents[1] / "fixtures" / "topology"
GOLDEN = FIXTURES / "golden"
MACHINES = ("a3-highgpu-8g", "gpu-server", "laptop", "two-h200")


def record_of(name: str) -> str:
    """The file of a machine of the fixtures."""
    return str(FIXTURES / f"{name}.json")


@functools.cache
def machine(name: str) -> Topology:
    """A machine of the fixtures."""
    return read_topology(open_tree(record_of(name)))


def nic(name: str, **changes: object) -> Nic:
    """A virtual interface that is up."""
    facts: dict[str, object] = {
        "name": name, "state": "up", "up": True, "loopback": False, "speed_mbps": -1, "mtu": 1500,
        "pci": "", "path": "", "numa_node": -1, "irq_cpus": (),
    }  # fmt: skip
    return Nic(**{**facts, **changes})  # type: ignore[arg-type]  # names and types are above


def flat(cpus: int, nics: int = 1, gpus: int = 0) -> Topology:
    """A machine with nothing but so many CPUs, each a core, on one NUMA node, and virtual NICs."""
    numbers = tuple(range(cpus))
    return Topology(
        about="",
        cpus=numbers,
        cores=tuple((cpu,) for cpu in numbers),
        numa_nodes=(NumaNode(0, numbers, 1 << 30),),
        gpus=tuple(
            Gpu(index, "GPU", f"GPU-{index}", f"0000:0{index}:00.0") for index in range(gpus)
        ),
        nics=tuple(nic(f"eth{index}") for index in range(nics)),
        limits=Limits(numbers, (), 0.0, 0),
    )
