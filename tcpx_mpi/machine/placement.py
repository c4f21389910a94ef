"""The placement of a rank's work: GPU, NIC, NUMA node, CPUs. Pure: decides from facts, touches
nothing.

One rank a GPU, or a slot where there are too few. The NIC nearest to the GPU by PCI, then by NUMA
node, then the one with the fewest ranks. The progress thread gets a CPU of that NUMA node that is
on no core with the plugin's own threads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tcpx_mpi.cpu_lists import cpu_list_text
from tcpx_mpi.errors import UsageError
from tcpx_mpi.machine.cpu_bindings import Bindings
from tcpx_mpi.machine.topology import Distance, Gpu, Nic, Topology
from tcpx_mpi.units import counted

#: Data connections that a NIC of an A3 machine is good for.
CONNECTIONS_A_NIC = 8


@dataclass(frozen=True)
class Placement:
    """One rank's place. -1 stands for none or unknown.

    `progress_cpu` -1: the thread is left to the scheduler. `memory_node` -1: so is memory.
    """

    local_rank: int
    local_ranks: int
    #: The plugin's number for the NIC.
    device: int
    progress_cpu: int
    oversubscribed: bool
    nic: str = ""
    gpu: int = -1
    gpu_pci: str = ""
    gpu_numa_node: int = -1
    #: Ranks that have this GPU, or that have none.
    gpu_sharers: int = 1
    numa_node: int = -1
    #: The CPUs that the plugin's threads for this NIC are bound to; empty: its own choice.
    plugin_cpus: tuple[int, ...] = ()
    #: Those for threads of the plugin that it binds to none; empty: all that the rank has.
    unbound_cpus: tuple[int, ...] = ()
    memory_node: int = -1


@dataclass(frozen=True)
class RankPlace:
    """The place of one local rank by a placement file; None: as without the file."""

    nic: str | None = None
    gpu: int | None = None
    cpu: int | None = None
    memory_node: int | None = None


@dataclass(frozen=True)
class Request:
    """The user's request: lists by local rank, taken in turn if they are shorter."""

    nics: tuple[str, ...] = ()
    #: None: as many as there are; (): none.
    gpus: tuple[int, ...] | None = None
    share_gpu: bool = False
    #: A rank without a GPU is an error, and no slot.
    needs_gpus: bool = False
    cpus: tuple[int, ...] = ()
    rank_places: Mapping[int, RankPlace] = field(default_factory=dict)
    places_from: str = ""

    def rank_place(self, local_rank: int) -> RankPlace:
        return self.rank_places.get(local_rank, RankPlace())


@dataclass(frozen=True)
class Node:
    """The resources that the ranks of a node share."""

    host: str
    topology: Topology
    #: The plugin's devices, in its order: each its name and its PCI address, "" without one.
    devices: Sequence[tuple[str, str]]
    #: The CPUs of the plugin's threads, by NIC.
    bindings: Bindings = field(default_factory=dict)
    #: A profile's NIC of GPU (or slot) 0, 1, ...
    nic_of_gpu: tuple[str, ...] = ()


def place_node(
    node: Node,
    masks: Sequence[Sequence[int]],
    request: Request,
    visible: Sequence[Sequence[Gpu]] | None = None,
) -> list[Placement]:
    """Places of all ranks of a node. `masks` are their affinity masks; the GPUs that each may use
    go by the numbers that it knows them by (None: the node's).

    Raises UsageError for a request that this node cannot fulfil.
    """
    gpus = rank_gpus(node, visible or [node.topology.gpus] * len(masks), request)
    return place_on_node(node, masks, request, gpus)


def place_on_node(
    node: Node,
    masks: Sequence[Sequence[int]],
    request: Request,
    gpus: Sequence[Gpu | None],
) -> list[Placement]:
    """The same once the GPU of each rank is known (`rank_gpus`)."""
    ranks = range(len(masks))
    sharers = Counter(map(identity, gpus))
    devices = _devices(node, gpus, request)
    numa = [_numa_node(node, gpus[rank], devices[rank]) for rank in ranks]
    cpus = _progress_cpus(node, masks, numa, request)
    topology = node.topology
    # A rank without a NUMA node of its devices' has that of its CPU.
    numa = [
        topology.numa_of_cpu(cpu) if known < 0 and cpu >= 0 else known
        for known, cpu in zip(numa, cpus, strict=True)
    ]
    return [
        Placement(
            local_rank=rank,
            local_ranks=len(masks),
            device=devices[rank],
            progress_cpu=cpus[rank],
            oversubscribed=_oversubscribed(node, masks, rank),
            nic=node.devices[devices[rank]][0],
            gpu=gpu.index if (gpu := gpus[rank]) is not None else -1,
            gpu_pci=gpu.pci if gpu is not None else "",
            gpu_numa_node=topology.numa_of(gpu.numa_node) if gpu is not None else -1,
            gpu_sharers=sharers[identity(gpu)],
            numa_node=numa[rank],
            plugin_cpus=tuple(node.bindings.get(node.devices[devices[rank]][0], ())),
            unbound_cpus=_unbound_cpus(masks, cpus, rank),
            memory_node=_memory_node(node, rank, numa[rank], request),
        )
        for rank in ranks
    ]


def channels_within(ranks_a_nic: int, sockets: int, wanted: int) -> int:
    """The most channels, at most `wanted`, that keep a NIC to CONNECTIONS_A_NIC; at least 1.

    Each of its ranks has one comm a channel, of so many sockets.
    """
    return max(1, min(wanted, CONNECTIONS_A_NIC // max(ranks_a_nic * sockets, 1)))


# --- GPUs -----------------------------------------------------------------------------------------


def rank_gpus(node: Node, visible: Sequence[Sequence[Gpu]], request: Request) -> list[Gpu | None]:
    """The GPU of each rank of a node: the first of those that it may use that fewest have before
    it; None: no GPU.

    Raises UsageError for a GPU that is not there, and for one that two ranks would have.
    """
    by_file = {
        rank: place.gpu for rank, place in request.rank_places.items() if place.gpu is not None
    }
    gpus: list[Gpu | None] = []
    if request.gpus is None and not by_file:
        # Not asked for: more ranks than GPUs are slots, unless the GPUs are to be shared.
        if not all(visible):
            return [None] * len(visible)
        taken: Counter[str] = Counter()
        for each in visible:
            gpus.append(min(each, key=lambda gpu: taken[identity(gpu)]))
            taken[identity(gpus[-1])] += 1
        if max(taken.values()) > 1 and not request.share_gpu and not request.needs_gpus:
            return [None] * len(visible)
    else:
        for rank, each in enumerate(visible):
            if rank in by_file:
                gpus.append(_gpu(node, each, by_file[rank], request.places_from))
            elif request.gpus:
                number = request.gpus[rank % len(request.gpus)]
                gpus.append(_gpu(node, each, number, "--gpu"))
            else:
                gpus.append(None)
    if not request.share_gpu:
        _require_one_each(node, gpus)
    return gpus


def identity(gpu: Gpu | None) -> str:
    """The mark that tells a GPU from others of its node: ranks may number them differently."""
    return (gpu.pci or gpu.uuid or str(gpu.index)) if gpu is not None else ""


def _gpu(node: Node, visible: Sequence[Gpu], number: int, asked_by: str) -> Gpu:
    gpu = next((each for each in visible if each.index == number), None)
    if gpu is not None:
        return gpu
    if not visible:
        raise UsageError(
            f"{asked_by}: GPU {number} is asked for and {node.host} has none: leave GPUs out, or "
            "start on machines that have them"
        )
    has = ("GPUs " if len(visible) > 1 else "GPU ") + cpu_list_text(each.index for each in visible)
    raise UsageError(f"{asked_by}: {node.host} has no GPU {number}: it has {has}")


def _require_one_each(node: Node, gpus: Sequence[Gpu | None]) -> None:
    """Raises UsageError if two ranks have the same GPU."""
    owner: dict[str, int] = {}
    for rank, gpu in enumerate(gpus):
        if gpu is not None and owner.setdefault(identity(gpu), rank) != rank:
            raise UsageError(
                f"local ranks {owner[identity(gpu)]} and {rank} of {node.host} would both have "
                f"GPU {gpu.index}: name one for each, start fewer ranks, or give --share-gpu"
            )


# --- NICs -----------------------------------------------------------------------------------------


def _devices(node: Node, gpus: Sequence[Gpu | None], request: Request) -> list[int]:
    """The plugin's device of each rank."""
    chosen: list[int] = []
    for rank, gpu in enumerate(gpus):
        if (name := request.rank_place(rank).nic) is not None:
            chosen.append(_device_named(node, name, request.places_from))
        elif request.nics:
            chosen.append(_device_named(node, request.nics[rank % len(request.nics)], "--nic"))
        else:
            chosen.append(_nearest(node, rank, gpu, Counter(chosen)))
    return chosen


def _device_named(node: Node, name: str, asked_by: str) -> int:
    names = [device for device, _ in node.devices]
    if name in names:
        return names.index(name)
    nic = node.topology.nic(name)
    if nic is None:
        has = ", ".join(each.name for each in node.topology.nics)
        raise UsageError(f"{asked_by}: {node.host} has no NIC {name}: it has {has}")
    if not nic.up:
        raise UsageError(
            f"{asked_by}: NIC {name} of {node.host} is {nic.state}: bring it up, or name another"
        )
    raise UsageError(
        f"{asked_by}: the plugin does not offer NIC {name} of {node.host}, only "
        f"{', '.join(names)}: name one of these, or select it by NCCL_GPUDIRECTTCPX_SOCKET_IFNAME"
    )


def _nearest(node: Node, rank: int, gpu: Gpu | None, taken: Counter[int]) -> int:
    slot = node.topology.number_of(gpu) if gpu is not None else rank
    names = [device for device, _ in node.devices]
    if slot < len(node.nic_of_gpu) and node.nic_of_gpu[slot] in names:
        return names.index(node.nic_of_gpu[slot])

    def cost(device: int) -> tuple[int, int, int, int]:
        level, common = Distance.UNKNOWN, 0
        nic = _nic_of(node, device)
        if gpu is not None and nic is not None:
            level, common = node.topology.distance(gpu, nic)
        return int(level), -common, taken[device], device

    return min(range(len(node.devices)), key=cost)


def _nic_of(node: Node, device: int) -> Nic | None:
    name, pci = node.devices[device]
    by_pci = (nic for nic in node.topology.nics if pci and nic.pci == pci)
    return node.topology.nic(name) or next(by_pci, None)


# --- CPUs and memory ------------------------------------------------------------------------------


def _numa_node(node: Node, gpu: Gpu | None, device: int) -> int:
    """The NIC's, because its threads and interrupts are there; else the GPU's."""
    nic = _nic_of(node, device)
    for stated in (nic.numa_node if nic else -1, gpu.numa_node if gpu else -1):
        if (known := node.topology.numa_of(stated)) >= 0:
            return known
    return -1


def _progress_cpus(
    node: Node, masks: Sequence[Sequence[int]], numa: Sequence[int], request: Request
) -> list[int]:
    """The CPU of each rank's progress thread."""
    if request.cpus:
        cpus = _given(request.cpus, len(masks), node.host)
    else:
        cpus = _chosen_cpus(node, masks, numa)
    for rank, place in request.rank_places.items():
        if rank < len(cpus) and place.cpu is not None:
            cpus[rank] = place.cpu
    for rank, cpu in enumerate(cpus):
        asked_by = "--cpus" if request.rank_place(rank).cpu is None else request.places_from
        if cpu >= 0:
            _require_in(masks[rank], cpu, rank, node.host, asked_by)
        if cpu >= 0 and request.rank_place(rank).cpu is not None and cpus.count(cpu) > 1:
            raise UsageError(
                f"{asked_by}: two progress threads on {node.host} would have CPU {cpu}: give each "
                "a CPU of its own"
            )
    return cpus


def _chosen_cpus(node: Node, masks: Sequence[Sequence[int]], numa: Sequence[int]) -> list[int]:
    """Near the rank's devices where there is room for all, else anywhere, else not at all."""
    groups: dict[tuple[int, tuple[int, ...]], list[int]] = {}
    for rank, mask in enumerate(masks):
        groups.setdefault((numa[rank], tuple(mask)), []).append(rank)
    near = [-1] * len(masks)
    # Those that may be anywhere leave the others their place.
    for (numa_node, mask), members in sorted(groups.items(), reverse=True):
        candidates = _candidates(node, mask, numa_node, len(members), {*near} - {-1})
        for rank, cpu in zip(members, _spread(candidates, len(members)), strict=False):
            near[rank] = cpu
    if -1 not in near:
        return near
    anywhere = []
    for rank, mask in enumerate(masks):
        cpus = _spread(_candidates(node, mask, -1, len(masks), set()), len(masks))
        anywhere.append(cpus[rank] if cpus else -1)
    return anywhere


def _candidates(
    node: Node, mask: Sequence[int], numa_node: int, needed: int, taken: set[int]
) -> list[int]:
    """CPUs for so many progress threads, the best kind of which there are enough, or none.

    Best is a core each, away from the plugin's threads, the NICs' interrupts and CPU 0, where the
    kernel does its own work.
    """
    near = set(node.topology.cpus_of(numa_node)) & set(mask) - taken
    plugins = {cpu for cpus in node.bindings.values() for cpu in cpus}
    noisy = {0}.union(*(nic.irq_cpus for nic in node.topology.nics))
    cores = [core for core in node.topology.cores if near & set(core) and not taken & set(core)]
    free = [core for core in cores if not plugins & set(core)]
    quiet = [core for core in free if not noisy & set(core)]
    kinds = (
        _first_of(quiet, near),
        _first_of(free, near),
        sorted(cpu for core in free for cpu in core if cpu in near),
        sorted(near),
    )
    return next((kind for kind in kinds if len(kind) >= needed), [])


def _first_of(cores: Sequence[Sequence[int]], allowed: set[int]) -> list[int]:
    return [next(cpu for cpu in core if cpu in allowed) for core in cores]


def require_cpus(cpus: Sequence[int], ranks: int, mask: Sequence[int], host: str) -> None:
    """Raises UsageError if so many ranks that all start here, with this mask or less of it,
    cannot have these CPUs."""
    for rank, cpu in enumerate(_given(cpus, ranks, host)):
        _require_in(mask, cpu, rank, host, "--cpus")


def _given(cpus: Sequence[int], ranks: int, host: str) -> list[int]:
    """A CPU for each rank of those asked for. Raises UsageError where they are too few."""
    found = _spread(cpus, ranks)
    if not found:
        raise UsageError(
            f"--cpus has {counted(len(cpus), 'CPU')} for {ranks} ranks of {host}: name at least "
            "one for each"
        )
    return found


def _spread(cpus: Sequence[int], ranks: int) -> list[int]:
    """A CPU for each rank, evenly over these; none if there are too few."""
    if len(cpus) < ranks:
        return []
    return [cpus[rank * len(cpus) // ranks] for rank in range(ranks)]


def _require_in(mask: Sequence[int], cpu: int, rank: int, host: str, asked_by: str) -> None:
    if cpu not in mask:
        raise UsageError(
            f"{asked_by}: CPU {cpu} is outside of the affinity mask of local rank {rank} on "
            f"{host} ({cpu_list_text(mask)}): name CPUs of the mask, or start with "
            "`mpirun --bind-to none`"
        )


def _oversubscribed(node: Node, masks: Sequence[Sequence[int]], rank: int) -> bool:
    """Whether ranks have less than a CPU each, so that idle loops must yield at once."""
    mine = set(masks[rank])
    sharers = sum(bool(mine & set(mask)) for mask in masks)
    quota = node.topology.limits.cpu_quota
    # A launcher that binds each rank to one CPU binds the plugin's threads to it as well.
    bound_to_one = len(mine) == 1 and len(masks) > 1
    return sharers > len(mine) or bound_to_one or 0 < quota < len(masks)


def _unbound_cpus(
    masks: Sequence[Sequence[int]], progress: Sequence[int], rank: int
) -> tuple[int, ...]:
    """The rank's CPUs without those of any progress thread, where ranks keep one each."""
    left = {*masks[rank]} - {*progress}
    sharers = sum(bool(left & {*mask}) for mask in masks)
    return tuple(sorted(left)) if len(left) >= max(sharers, 1) else ()


def _memory_node(node: Node, rank: int, numa_node: int, request: Request) -> int:
    """The NUMA node to bind memory to, where there is more than one."""
    numbers = {each.number for each in node.topology.numa_nodes if each.memory_bytes}
    if (asked := request.rank_place(rank).memory_node) is not None:
        if asked not in numbers:
            has = cpu_list_text(numbers) or "none that is known"
            raise UsageError(
                f"{request.places_from}: {node.host} has no NUMA node {asked} with memory: it has "
                f"{has}"
            )
        return asked
    return numa_node if len(numbers) > 1 and numa_node in numbers else -1
