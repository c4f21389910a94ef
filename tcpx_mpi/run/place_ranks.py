"""A rank's place: settings and facts into `machine.placement`, its result into this process."""

from __future__ import annotations

import dataclasses
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tcpx_mpi import _native
from tcpx_mpi.config.settings import Settings
from tcpx_mpi.cpu_lists import parse_cpu_list
from tcpx_mpi.errors import UsageError
from tcpx_mpi.machine.cpu_bindings import bindings_in
from tcpx_mpi.machine.gpu.choice import (
    decided,
    obstacle_of_baselines,
    obstacle_of_host,
    obstacle_to_cuda,
)
from tcpx_mpi.machine.placement import (
    Node,
    Placement,
    Request,
    channels_within,
    identity,
    place_on_node,
    rank_gpus,
)
from tcpx_mpi.machine.placement_file import read_placement
from tcpx_mpi.machine.topology import Gpu, Host, this_machine
from tcpx_mpi.patterns import load
from tcpx_mpi.plugin.find import is_tcpx
from tcpx_mpi.plugin.request_limits import within_requests_of
from tcpx_mpi.plugin.sockets import data_sockets
from tcpx_mpi.plugin.softtcpx_defaults import (
    progress_threads_for,
    with_defaults,
    with_progress_threads,
    workers_for,
)
from tcpx_mpi.plugin.turned_off import turned_off
from tcpx_mpi.transport.in_place import agree_in_place
from tcpx_mpi.transport.load_plugin import LoadedPlugin
from tcpx_mpi.world import World


@dataclass(frozen=True)
class GpuChoice:
    """The decision on a node's ranks before a plugin is loaded."""

    request: Request
    #: By local rank; None: no GPU.
    gpus: Sequence[Gpu | None]
    #: Workers a rank for our own plugin, which reads their number before it can say anything of
    #: memory; 0: its own default, if a rank has no GPU whose memory it could use.
    workers: int
    #: And how many progress threads drive it.
    threads: int

    def is_shared(self) -> bool:
        """Whether ranks of this node share a GPU."""
        return max(Counter(map(identity, self.gpus)).values(), default=1) > 1


def choose_gpus(world: World, settings: Settings, hosts: Sequence[Host]) -> GpuChoice:
    """Collective: what the settings ask of placement, and the GPU of each rank of this node.

    Raises UsageError on all ranks if a GPU that is asked for cannot be had on one of them.
    """
    host = hosts[world.rank]
    may_use = settings.memory == "auto" and not obstacle_of_baselines(settings.against)
    with world.agree("GPUs"):
        request = request_of(settings)
        local = local_ranks(world.rank, hosts)
        node = Node(host=host.name, topology=this_machine(), devices=())
        gpus = rank_gpus(node, [hosts[other].gpus for other in local], request)
        mine = gpus[local.index(world.rank)]
        usable = may_use and mine is not None and not obstacle_of_host(host.name)
    if may_use:
        usable = all(world.allgather(usable, "GPUs"))
    wanted = usable or settings.memory == "cuda"
    if wanted:
        return GpuChoice(request, gpus, workers_for(hosts), 1)
    return GpuChoice(request, gpus, 0, progress_threads_for(settings, hosts))


def place_rank(
    world: World,
    settings: Settings,
    plugin: LoadedPlugin,
    hosts: Sequence[Host],
    chosen: GpuChoice,
) -> tuple[Placement, Settings]:
    """Collective: this rank's place, with its memory bound; and the settings, with the memory kind
    that it can have and fitted to the NICs.

    Every rank raises UsageError if a request cannot be fulfilled on one of them.
    """
    with world.agree("placement"):
        node = Node(
            host=hosts[world.rank].name,
            topology=this_machine(),
            devices=net_devices(plugin),
            bindings=bindings_in(os.environ),
            nic_of_gpu=plugin.profile.nic_of_gpu if plugin.profile is not None else (),
        )
        placement = place_at(world.rank, hosts, node, chosen.request, chosen.gpus)
        if placement.memory_node >= 0 and not _native.bind_memory_to(placement.memory_node):
            # In some containers: what is not so must not be recorded.
            placement = dataclasses.replace(placement, memory_node=-1)
    mine = (hosts[world.rank].node, placement.nic), placement.gpu_sharers > 1
    nics, shares = zip(*world.allgather(mine, "places"), strict=True)
    settings = with_memory(world, settings, plugin, placement, hosts[world.rank].name)
    settings = agree_in_place(world, settings, plugin, placement, os.environ)
    settings = within_requests_of(plugin.file.abi, settings)  # raises alike on all ranks
    peers = load(settings.pattern).peers_sent(world.size)
    ours = [name for name, _, source in plugin.derived if not source.startswith("profile")]
    lost = turned_off(settings, plugin.file.name, os.environ, ours, hosts, peers, any(shares))
    plugin.to_tell = dataclasses.replace(plugin.to_tell, turned_off=lost)
    settings = with_progress_threads(settings, plugin.file.name, os.environ, hosts)
    settings = with_defaults(settings, plugin.file.name, os.environ, peers, any(shares))
    sockets = data_sockets(plugin.file.name, os.environ)
    return placement, fitted(settings, max(Counter(nics).values()), sockets)


def place_at(
    rank: int,
    hosts: Sequence[Host],
    node: Node,
    request: Request,
    gpus: Sequence[Gpu | None] | None = None,
) -> Placement:
    """The place of a rank among those of its node; `gpus` are theirs if they are chosen."""
    local = local_ranks(rank, hosts)
    if gpus is None:
        gpus = rank_gpus(node, [hosts[other].gpus for other in local], request)
    places = place_on_node(node, [hosts[other].cpus for other in local], request, gpus)
    return places[local.index(rank)]


def local_ranks(rank: int, hosts: Sequence[Host]) -> list[int]:
    """The ranks of a rank's node, itself included."""
    return [other for other, host in enumerate(hosts) if host.node == hosts[rank].node]


def with_memory(
    world: World, settings: Settings, plugin: LoadedPlugin, placement: Placement, host: str
) -> Settings:
    """Collective: the settings with a memory kind in place of "auto", its reason as the source.

    A GPU's memory where every rank can use one, and every baseline. Raises UsageError on all ranks
    where `--memory cuda` asks for what one of them has not.
    """
    if settings.memory not in ("auto", "cuda"):
        return settings
    unfit = obstacle_of_baselines(settings.against)
    with world.agree("memory kind"):
        properties = plugin.nic(placement.device)
        needs_pci = is_tcpx(plugin.file.name)
        obstacle = obstacle_to_cuda(plugin.file.name, properties, placement, host, needs_pci)
        if obstacle and settings.memory == "cuda":
            raise UsageError(f"--memory cuda: {obstacle}; or use --memory host")
        if unfit and settings.memory == "cuda":
            raise UsageError(
                f"{unfit}, and the buffers are a GPU's: use --memory host, or --against nccl alone"
            )
    if settings.memory == "cuda":
        return settings
    return decided(settings, world.allgather(unfit or obstacle, "memory kind"))


def fitted(settings: Settings, ranks_a_nic: int, sockets: int) -> Settings:
    """With fewer channels where the pattern would have more connections a NIC than are of use."""
    if not load(settings.pattern).fits_nics or settings.sources["channels"] != "default":
        return settings
    channels = channels_within(ranks_a_nic, sockets, settings.channels)
    if channels == settings.channels:
        return settings
    source = f"default with {ranks_a_nic} ranks a NIC"
    return dataclasses.replace(
        settings, channels=channels, sources={**settings.sources, "channels": source}
    )


def request_of(settings: Settings) -> Request:
    """The request of the settings for placement. Raises UsageError for a bad file."""
    gpus = None
    if settings.gpu is not None:
        gpus = () if settings.gpu == "none" else tuple(map(int, settings.gpu.split(",")))
    path = settings.placement_path
    return Request(
        nics=tuple(settings.nic.split(",")) if settings.nic else (),
        gpus=gpus,
        share_gpu=settings.share_gpu,
        needs_gpus=settings.memory == "cuda",
        cpus=parse_cpu_list(settings.cpus or ""),
        rank_places=read_placement(path) if path is not None else {},
        places_from=f"--placement {path}",
    )


def net_devices(plugin: LoadedPlugin) -> list[tuple[str, str]]:
    """The plugin's devices: name and PCI address, "" without one."""
    return [(each["name"], os.path.basename(each["pci_path"])) for each in plugin.nics]
