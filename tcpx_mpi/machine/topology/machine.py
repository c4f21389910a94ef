"""A machine as far as placement needs it: CPUs, NUMA nodes, GPUs, NICs and limits. Facts only."""

from __future__ import annotations

from dataclasses import dataclass

from tcpx_mpi.machine.topology.pci import Distance, distance


@dataclass(frozen=True)
class NumaNode:
    """A NUMA node; `memory_bytes` is 0 where unknown."""

    number: int
    cpus: tuple[int, ...]
    memory_bytes: int


@dataclass(frozen=True)
class Gpu:
    """A GPU that this process may use, by its number here; `path` is its place in sysfs or ""."""

    index: int
    name: str
    uuid: str
    pci: str
    path: str = ""
    numa_node: int = -1


@dataclass(frozen=True)
class Nic:
    """A network interface. -1 stands for unknown; `pci` and `path` are "" for a virtual one."""

    name: str
    #: The kernel's word: up, down, unknown, ...
    state: str
    up: bool
    loopback: bool
    speed_mbps: int
    mtu: int
    pci: str
    path: str
    numa_node: int
    #: The CPUs that its interrupts go to.
    irq_cpus: tuple[int, ...]


@dataclass(frozen=True)
class Limits:
    """The limits of the machine for this process."""

    #: CPUs of the affinity mask.
    affinity: tuple[int, ...]
    #: CPUs of the cgroup; empty if it does not say.
    cpuset: tuple[int, ...]
    #: CPUs' worth of time that the cgroup grants; 0 for no limit.
    cpu_quota: float
    #: Memory that the cgroup grants; 0 for no limit.
    memory_bytes: int


@dataclass(frozen=True)
class Topology:
    """One machine; `about` is the remark of a recorded one, "" for this machine itself."""

    about: str
    cpus: tuple[int, ...]
    #: The CPUs of each core.
    cores: tuple[tuple[int, ...], ...]
    numa_nodes: tuple[NumaNode, ...]
    gpus: tuple[Gpu, ...]
    nics: tuple[Nic, ...]
    limits: Limits
    #: PCI addresses of all GPUs of the machine, in order, also of those that this process has not.
    pci_gpus: tuple[str, ...] = ()

    @property
    def gpu_count(self) -> int:
        """GPUs of the machine: a launcher may show each process its own only."""
        return max(len(self.gpus), len(self.pci_gpus))

    def number_of(self, gpu: Gpu) -> int:
        """The number of a GPU among all of the machine, as nvidia-smi has it."""
        return self.pci_gpus.index(gpu.pci) if gpu.pci in self.pci_gpus else gpu.index

    def nic(self, name: str) -> Nic | None:
        """The NIC of this name."""
        return next((nic for nic in self.nics if nic.name == name), None)

    def line_rate_mbps(self, interface: str, stated: int) -> int:
        """Speed of an interface's link; -1 if its driver does not know, or if it is virtual and its
        driver makes a number up.

        `stated` is a plugin's word, which must have a number for any: it holds where this machine
        has no interface of that name.
        """
        nic = self.nic(interface)
        if nic is None:
            return stated
        return nic.speed_mbps if nic.pci else -1

    def numa_of(self, stated: int) -> int:
        """The NUMA node of a device that states `stated`: where there is only one, that one."""
        if stated < 0 and len(self.numa_nodes) == 1:
            return self.numa_nodes[0].number
        return stated

    def cpus_of(self, numa_node: int) -> tuple[int, ...]:
        """The CPUs of a NUMA node; all where it is unknown."""
        known = {node.number: node.cpus for node in self.numa_nodes}
        return known.get(numa_node, self.cpus)

    def numa_of_cpu(self, cpu: int) -> int:
        """The NUMA node of a CPU, -1 if unknown."""
        return next((node.number for node in self.numa_nodes if cpu in node.cpus), -1)

    def distance(self, gpu: Gpu, nic: Nic) -> tuple[Distance, int]:
        """The distance of a NIC from a GPU, and their common PCI bridges."""
        return distance(
            gpu.path, self.numa_of(gpu.numa_node), nic.path, self.numa_of(nic.numa_node)
        )
