"""Bringing a rank's engine up: plugin, device, comms, memory. Local steps, no MPI."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tcpx_mpi import _native
from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import SetupFailed, UsageError
from tcpx_mpi.launch.mpirun import under_launcher
from tcpx_mpi.machine.gpu.choice import obstacle_of_nic
from tcpx_mpi.machine.gpu.driver import ordinal_of
from tcpx_mpi.machine.placement import Placement
from tcpx_mpi.machine.profiles import NODE_VARIABLES, Profile, environment_of, find_profile
from tcpx_mpi.machine.topology import Host, this_machine
from tcpx_mpi.plugin.find import (
    PluginFile,
    answer_variables,
    choose_plugin,
    inspect,
    is_softtcpx,
    is_tcpx,
    missing_interface,
    prepare_environment,
)
from tcpx_mpi.plugin.softtcpx_defaults import WORKERS_VARIABLE, worker_variables
from tcpx_mpi.plugin.unsafe_settings import refuse_fatal_values
from tcpx_mpi.records import RowFacts
from tcpx_mpi.schedule.table import BufferId, Layout, Schedule
from tcpx_mpi.transport.gpu_memory import RankGpu
from tcpx_mpi.transport.gpu_watch import RowWatch
from tcpx_mpi.transport.interface import RankContext, Surroundings, TimedLoop, load_native
from tcpx_mpi.transport.observed_placement import thread_ids
from tcpx_mpi.transport.setup_errors import setup_errors
from tcpx_mpi.transport.time_limit import require_time
from tcpx_mpi.units import format_size

#: Idle sweeps before the core is offered to others, where every rank has a core of its own.
SPINS_BEFORE_YIELD = 100

#: Native names of the ways to put received fragments together.
UNPACK_MODES = {
    "kernel": _native.UNPACK_KERNEL,
    "d2d": _native.UNPACK_COPIES,
    "host": _native.UNPACK_HOST,
    "none": _native.UNPACK_NONE,
}


#: Variables that may differ from node to node.
_OF_A_NODE = (*NODE_VARIABLES, WORKERS_VARIABLE)


#: What makes softtcpx break a rule on purpose.
TRAP_PREFIX = "SOFTTCPX_TRAP_"
#: Sets many of them.
LIKE_VARIABLE = "SOFTTCPX_LIKE"


class RefusedAfterInit(UsageError):
    """What was set is wrong, and the plugin has read it: once a process."""


@dataclass(frozen=True)
class ToTell:
    """What a reader must know of this rank's plugin: it may have been set otherwise elsewhere."""

    #: What it warned of while it was initialised, such as a setting that it does not use.
    warned: Sequence[str] = ()
    #: Faults on purpose, NAME=VALUE.
    traps: Sequence[str] = ()


@dataclass
class LoadedPlugin:
    """A plugin in this process: its file, its handle, and what was set for it beforehand."""

    file: PluginFile
    how: str
    handle: Any
    derived: list[tuple[str, str, str]]
    profile: Profile | None
    #: The last lines that it logged while it was initialised: its settings and devices.
    said: list[str]
    #: Threads that it had started by the end of its initialisation.
    threads: frozenset[int] = frozenset()
    to_tell: ToTell = field(default_factory=ToTell)

    @property
    def devices(self) -> int:
        return int(self.handle.devices())

    def nic(self, device: int) -> dict[str, Any]:
        """What the plugin says of a device: name, pci_path, speed_mbps, ptr_support, ..."""
        found: dict[str, Any] = self.handle.properties(device)
        return found

    def fingerprint(self) -> str:
        """What must be equal on all ranks, a `name=value` line each."""
        lines = [f"plugin_sha256={self.file.sha256}", f"plugin_name={self.file.name}"]
        lines += [f"profile={self.profile.source if self.profile else 'none'}"]
        # NICs and CPUs may have other names on another node.
        equal = [each for each in self.derived if each[0] not in _OF_A_NODE]
        return "\n".join(lines + [f"{name}={value}" for name, value, _ in equal])


def load_plugin(
    settings: Settings, environ: MutableMapping[str, str], workers: int = 0
) -> LoadedPlugin:
    """Find, map and initialise the plugin; variables that it needs are set before it is mapped.

    `workers` are those of our own plugin where it is to move GPUs' memory; 0: its own default.
    Raises UsageError, PluginMissing, or SetupFailed where init or the device list fails.
    """
    topology = this_machine()
    profile = find_profile(settings.profile, topology)
    if profile is not None:
        profile.require(topology, socket.gethostname())
    # Before the profile sets variables that would ask for TCPX.
    choice = choose_plugin(settings, environ)
    derived = prepare_environment(settings, environ, environment_of(profile, topology, environ))
    _set(environ, derived)
    if settings.debug:
        _native.print_plugin_log(3)
    file = inspect(choice)
    refuse_fatal_values(file.name, environ)
    if is_softtcpx(file.name):
        ours = answer_variables(environ)
        if workers:
            ours += worker_variables(workers, environ)
        _set(environ, ours)  # it reads them when it is initialised
        derived += ours
    launched, host = under_launcher(environ), socket.gethostname()
    _native.name_process(host if launched is None else f"rank {launched.rank} on {host}")
    before = thread_ids()
    handle = _native.Plugin(choice.path)
    try:
        handle.init()
        devices = handle.devices()
    except _native.PluginError as error:
        raise SetupFailed(f"{file.path}: {error}") from None
    if devices < 1:
        raise RefusedAfterInit(
            f"{file.path} finds 0 devices, at least 1 is needed: check that a network interface "
            "is up and that NCCL_SOCKET_IFNAME or NCCL_GPUDIRECTTCPX_SOCKET_IFNAME selects one"
        )
    names = [handle.properties(device)["name"] for device in range(devices)]
    present = [name for _, name in socket.if_nameindex()]
    if refusal := missing_interface(environ, names, present):
        raise RefusedAfterInit(refusal)
    said, warned = _native.plugin_log_lines(), _native.plugin_log_first_warnings()
    traps = traps_of(environ) if is_softtcpx(file.name) else []
    started = thread_ids() - before
    return LoadedPlugin(
        file, choice.how, handle, derived, profile, said, started, ToTell(warned, traps)
    )


def traps_of(environ: Mapping[str, str]) -> list[str]:
    """softtcpx's traps that are set, NAME=VALUE; [] where there is but a choice of whom to trap."""
    found = {
        name: value
        for name, value in sorted(environ.items())
        if (name.startswith(TRAP_PREFIX) or name == LIKE_VARIABLE) and value.strip()
    }
    if found.keys() <= {f"{TRAP_PREFIX}RANK", f"{TRAP_PREFIX}SIDE"}:
        return []
    return [f"{name}={value}" for name, value in found.items()]


def _set(environ: MutableMapping[str, str], variables: Sequence[tuple[str, str, str]]) -> None:
    environ.update({name: value for name, value, _ in variables})


def require_memory(kind: str, plugin: LoadedPlugin, device: int, asked_by: str = "") -> int:
    """How buffers of this kind are registered; raises UsageError where the plugin has no such."""
    asked_by = asked_by or f"--memory {kind}"
    if kind == "emulated" and not is_softtcpx(plugin.file.name):
        # TCPX would take such pages for a GPU's, and where its queue is no CPU can read.
        raise UsageError(
            f"{asked_by}: plugin {plugin.file.name} has no receive path of GPUs for host memory, "
            "which softtcpx alone has; use --plugin softtcpx, or --memory cuda"
        )
    pointer = _native.PTR_HOST if kind == "host" else _native.PTR_CUDA
    properties = plugin.nic(device)
    if not properties["ptr_support"] & pointer:
        raise UsageError(
            f"{asked_by}: plugin {plugin.file.name} does not take such buffers (ptrSupport "
            f"{properties['ptr_support']}); use host memory, or a plugin that offers CUDA memory"
        )
    by_pci = kind == "cuda" and is_tcpx(plugin.file.name)
    if by_pci and (obstacle := obstacle_of_nic(plugin.file.name, properties)):
        raise UsageError(f"{asked_by}: {obstacle}; or use host memory")
    if kind != "host" and properties["device_type"] != _native.DEVICE_UNPACK:
        raise UsageError(
            f"{asked_by}: plugin {plugin.file.name} has no receive path for GPUs "
            f"(netDeviceType {properties['device_type']}, expected {_native.DEVICE_UNPACK})"
        )
    return pointer


def setup_gpu(
    kind: str, plugin: LoadedPlugin, placement: Placement, devices: Sequence[Mapping[str, Any]]
) -> int:
    """CUDA's number of the GPU to be current while the plugin listens, connects and registers, for
    buffers that are in no GPU's memory; -1 for none.

    TCPX looks at that then, whatever memory it is given: it would else take GPU 0 for every rank.
    softtcpx keeps to the host where no GPU is current.
    """
    properties = plugin.nic(placement.device)
    looks = (
        kind == "host"
        and properties["device_type"] == _native.DEVICE_UNPACK
        and properties["ptr_support"] & _native.PTR_CUDA
        and not is_softtcpx(plugin.file.name)
    )
    ordinal = ordinal_of(placement.gpu_pci, devices) if looks else None
    return -1 if ordinal is None else ordinal


def _visible_gpus() -> Sequence[Mapping[str, Any]]:
    try:
        return _native.cuda_devices()
    except _native.CudaUnavailable:
        return ()


def slot_buffers(
    sizes: Mapping[BufferId, int], host: Host, placement: Placement, free: int
) -> dict[BufferId, Any]:
    """Buffers of these bytes in host memory, those of 0 left out.

    `free` is the node's, 0 if unknown. Raises UsageError where it is too little for each rank,
    SetupFailed where memory is refused.
    """
    needed = sum(sizes.values())
    share = free // placement.local_ranks
    if free and needed > share:
        raise UsageError(
            f"the buffers of this rank need {format_size(needed)}, available on {host.name} "
            f"are {format_size(share)} a rank: use a smaller -e or --check-memory"
        )
    with setup_errors():
        return {buffer: _native.SlotBuffer(size) for buffer, size in sizes.items() if size}


def companions(settings: Settings) -> int:
    """Processes beside each rank that have its buffers once more: of NCCL, one a preset."""
    return len(settings.nccl_presets) if "nccl" in settings.against else 0


def spins_before_yield(placement: Placement) -> int:
    """Idle sweeps of a loop before it offers its core to others."""
    return 0 if placement.oversubscribed else SPINS_BEFORE_YIELD


@contextmanager
def confined_to(cpus: Sequence[int]) -> Iterator[None]:
    """The calling thread on these CPUs for a while, and threads that it starts meanwhile for good:
    they inherit them. Nothing where no CPU is named, or where a thread may not choose.
    """
    before = os.sched_getaffinity(0)
    with suppress(OSError):
        if cpus:
            os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setaffinity(0, before)


class RankEngine:
    """The engine of one rank with its comms and buffers: the plugin's side."""

    info = None
    processes = ()

    def __init__(
        self,
        settings: Settings,
        plugin: LoadedPlugin,
        placement: Placement,
        schedule: Schedule,
        witness: bool = False,
    ) -> None:
        self.own_sockets: frozenset[int] = frozenset()
        self._started_by_connect: frozenset[int] = frozenset()
        self.settings = settings
        self.plugin = plugin
        self.schedule = schedule
        self.placement = placement
        self._pointer = require_memory(settings.memory, plugin, placement.device)
        self.buffers: dict[BufferId, Any] = {}
        #: Whose memory is used, and whose clocks are watched; None without one.
        self.gpu: RankGpu | None = None
        with setup_errors():
            if settings.memory == "cuda":
                self.gpu = RankGpu(placement)
            self.native = _native.Engine(
                plugin.handle,
                placement.device,
                settings.window_send,
                settings.window_recv,
                spins_before_yield(placement),
                UNPACK_MODES.get(settings.unpack_mode(), _native.UNPACK_IN_PLACE),
                witness,
                -1 if self.gpu is None else self.gpu.ordinal,
                setup_gpu(settings.memory, plugin, placement, _visible_gpus()),
            )

    def listen(self, world_size: int) -> list[bytes]:
        """Listen once for every comm to receive on; the handles for each rank, joined."""
        handles = [b""] * world_size
        with setup_errors(), confined_to(self.placement.unbound_cpus):
            for peer, lane in self.schedule.peers_received:
                for channel in range(self.settings.channels):
                    handles[peer] += self.native.listen(peer, lane, channel)
        return handles

    def connect(self, handles: list[bytes], places: Sequence[str]) -> None:
        """Connect to every handle received and accept on every listener, all polled together.

        `places` has host and NIC by rank, for the error that names who is not reached.
        """
        size = _native.HANDLE_BYTES
        for peer in {peer for peer, _ in self.schedule.peers_sent}:
            lanes = [lane for other, lane in self.schedule.peers_sent if other == peer]
            comms = [(lane, ch) for lane in lanes for ch in range(self.settings.channels)]
            if len(handles[peer]) != size * len(comms):
                raise SetupFailed(
                    f"rank {peer} sent {len(handles[peer]) // size} handles, {len(comms)} are "
                    "needed: both sides must have the same channels and lanes"
                )
            for index, (lane, channel) in enumerate(comms):
                handle = handles[peer][index * size : (index + 1) * size]
                self.native.add_send(peer, lane, channel, handle)
        others, threads = _native.tcp_socket_inodes(), thread_ids()
        with setup_errors(places), confined_to(self.placement.unbound_cpus):
            self.native.establish(self.settings.connect_timeout_s)
        self.own_sockets = frozenset(_native.tcp_socket_inodes() - others)
        self._started_by_connect = thread_ids() - threads
        if self.placement.progress_cpu >= 0:
            self.native.pin(self.placement.progress_cpu)

    def free_bytes(self, host: Host) -> int:
        """Memory for buffers, of the node or the GPU, for all ranks that share it; 0: unknown."""
        with setup_errors():
            return host.memory_available_bytes if self.gpu is None else self.gpu.free_bytes()

    def allocate(self, sizes: dict[BufferId, int], host: Host, free: int) -> None:
        """Allocate and register the buffers that this rank's schedule uses, once for all rows.

        `free` is `free_bytes` before any rank has taken some. Raises UsageError where the node, or
        the GPU, has not that much memory, Stalled where `-T` is over when they are there.
        """
        with setup_errors():
            self.buffers.update(
                slot_buffers(sizes, host, self.placement, free)
                if self.gpu is None
                else self.gpu.slot_buffers(sizes, free, companions(self.settings))
            )
            for buffer, memory in self.buffers.items():
                self.native.register_buffer(int(buffer), memory, self._pointer)
        # GiBs take seconds, and the first batch is the next to look at the clock.
        require_time(self.settings.timeout_s, "its buffers were there")

    @property
    def driver(self) -> TimedLoop:
        return self.native

    @property
    def interface(self) -> str:
        """The network interface of this rank's device."""
        return str(self.plugin.handle.properties(self.placement.device)["name"])

    def context(self, nodes: Sequence[str]) -> RankContext:
        """What all sides stand on; `nodes` is the node of every rank."""
        # What the plugin started since it was loaded, but for the driving thread and MPI's.
        threads = self.plugin.threads | self._started_by_connect
        around = Surroundings(self.interface, nodes, threads - {self.native.thread_id()})
        watch = RowWatch(self.native, self.gpu.health) if self.gpu is not None else None
        return RankContext(self.schedule, self.buffers, self.placement, around, watch)

    def load(
        self, context: RankContext, facts: RowFacts, layout: Layout, longest_batch: int
    ) -> None:
        """The row to come."""
        load_native(
            self.native, context, layout, facts.chunk_bytes, self.settings.channels, longest_batch
        )

    def setup_rows(self, rank: int) -> list[tuple[int, str, int, int, int, int]]:
        """(rank, phase, peer, lane, channel, ns) of every set-up call."""
        rows = []
        for (
            direction,
            peer,
            lane,
            channel,
            listen,
            establish,
            register,
        ) in self.native.setup_times():
            where = (peer, lane, channel)
            if direction == "receive":
                rows.append((rank, "listen", *where, listen))
                rows.append((rank, "accept", *where, establish))
            else:
                rows.append((rank, "connect", *where, establish))
            rows.append((rank, "regMr", *where, register))
        return rows

    def close(self) -> None:
        with setup_errors():
            self.native.close()
        if self.gpu is not None:
            self.gpu.health.close()
