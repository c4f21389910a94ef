"""The engine of a rank: comms and buffers over a loaded plugin. Local steps, no MPI."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from tcpx_mpi import _native
from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import SetupFailed
from tcpx_mpi.machine.placement import Placement
from tcpx_mpi.machine.topology import Host
from tcpx_mpi.plugin.find import is_tcpx
from tcpx_mpi.records import BaselineInfo, RowFacts
from tcpx_mpi.schedule.table import BufferId, Layout, Schedule
from tcpx_mpi.transport.gpu_memory import RankGpu
from tcpx_mpi.transport.gpu_watch import RowWatch
from tcpx_mpi.transport.interface import RankContext, TimedLoop, load_native
from tcpx_mpi.transport.load_plugin import MANAGER_TRAP, LoadedPlugin
from tcpx_mpi.transport.memory import (
    companions,
    require_memory,
    require_receives,
    setup_gpu,
    slot_buffers,
    visible_gpus,
)
from tcpx_mpi.transport.memory_marks import MemoryMarks
from tcpx_mpi.transport.observed_placement import thread_ids
from tcpx_mpi.transport.setup_errors import manager_hint, second_hand, setup_errors
from tcpx_mpi.transport.time_limit import require_time
from tcpx_mpi.world import World

#: Idle sweeps before the core is offered to others, where every rank has a core of its own.
SPINS_BEFORE_YIELD = 100

#: Native names of the ways to put received fragments together.
UNPACK_MODES = {
    "kernel": _native.UNPACK_KERNEL,
    "launch": _native.UNPACK_KERNEL,
    "d2d": _native.UNPACK_COPIES,
    "host": _native.UNPACK_HOST,
    "none": _native.UNPACK_NONE,
}


def _way_to_unpack(mode: str, gpu: RankGpu | None, placement: Placement) -> int:
    """A kernel that stays has a part of the GPU, and its process keeps the turn meanwhile: it is
    for ranks that have theirs alone."""
    if mode == "kernel" and gpu is not None and placement.gpu_sharers == 1:
        return _native.UNPACK_STAYING
    return UNPACK_MODES.get(mode, _native.UNPACK_IN_PLACE)


def spins_before_yield(placement: Placement) -> int:
    """Idle sweeps of a loop before it offers its core to others."""
    return 0 if placement.oversubscribed else SPINS_BEFORE_YIELD


@contextmanager
def confined_to(cpus: Sequence[int]) -> Iterator[None]:
    """The calling thread on these CPUs for a while, and threads that it starts meanwhile for good:
    they inherit them. Nothing if no CPU is named, or where a thread may not choose.
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
    """The engine of one rank with its comms and buffers: the plugin's transport."""

    #: Of a plugin that runs beside another one.
    info: BaselineInfo | None = None
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
        #: How buffers are registered, by whether they are sent from first.
        self._pointers = {
            sends: require_memory(settings.memory_of(sends), plugin, placement.device)
            for sends in (True, False)
        }
        require_receives(settings, plugin, placement.device)
        self.buffers: dict[BufferId, Any] = {}
        #: Whose memory is used, and whose clocks are watched; None without one.
        self.gpu: RankGpu | None = None
        self.memory = MemoryMarks()
        with setup_errors():
            if settings.memory == "cuda":
                self.gpu = RankGpu(placement)
            self.mark_memory()
            self.native = _native.Engine(
                plugin.handle,
                placement.device,
                settings.window_send,
                settings.window_recv,
                spins_before_yield(placement),
                _way_to_unpack(settings.unpack_mode(), self.gpu, placement),
                witness,
                -1 if self.gpu is None else self.gpu.ordinal,
                setup_gpu(settings.memory, plugin, placement, visible_gpus()),
                settings.trace,
                # A witness looks over the shoulder of one.
                1 if witness else max(settings.progress_threads, 1),
                settings.flushes(),
                bool(settings.rates),
                settings.multi_recv,
                settings.seed,
            )

    def listen(self, world_size: int) -> list[bytes]:
        """Listen once for every comm to receive on; the handles for each rank, joined."""
        handles = [b""] * world_size
        with setup_errors(), confined_to(self.placement.unbound_cpus):
            for peer, lane in self.schedule.peers_received:
                for channel in range(self.settings.channels):
                    handles[peer] += self.native.listen(peer, lane, channel)
        return handles

    def connect(self, handles: list[bytes], world: World) -> None:
        """Connect to every handle received and accept on every listener, all polled together.

        Accepts begin when all connects have that this rank accepts: as in NCCL, whose plugins may
        block in accept until then. Once others have failed nothing is waited for.
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

        def waiting() -> None:
            if world.others_failed():
                text = self.native.describe_pending("were not up yet")
                raise second_hand(text + manager_hint(text, self.needs_manager), away=2)

        begun = world.begun_connects(
            {peer for peer, _ in self.schedule.peers_sent},
            {peer for peer, _ in self.schedule.peers_received},
        )
        others, threads = _native.tcp_socket_inodes(), thread_ids()
        with (
            setup_errors(world.places, self.needs_manager),
            confined_to(self.placement.unbound_cpus),
        ):
            self.native.establish(self.settings.connect_timeout_s, waiting, begun)
        self.own_sockets = frozenset(_native.tcp_socket_inodes() - others)
        self._started_by_connect = thread_ids() - threads
        if self.placement.progress_cpu >= 0:
            self.native.pin([self.placement.progress_cpu])
        self.mark_memory()

    def mark_memory(self) -> None:
        """Marks the memory that was taken so far."""
        self.memory.mark(None if self.gpu is None else self.gpu.free_bytes)

    def free_bytes(self, host: Host) -> int:
        """Memory for buffers, of the node or the GPU, for all ranks that share it; 0: unknown."""
        with setup_errors():
            return host.memory_available_bytes if self.gpu is None else self.gpu.free_bytes()

    def allocate(self, sizes: dict[BufferId, int], host: Host, free: int) -> None:
        """Allocate and register the buffers that this rank's schedule uses, once for all rows.

        `free` is `free_bytes` before any rank has taken some. Raises UsageError if the node, or
        the GPU, has not that much memory, Stalled where `-T` is over when they are there.
        """
        with setup_errors():
            on_gpu = {buffer: size for buffer, size in sizes.items() if self._is_on_gpu(buffer)}
            of_host = {buffer: size for buffer, size in sizes.items() if buffer not in on_gpu}
            if self.gpu is not None:
                self.buffers.update(self.gpu.slot_buffers(on_gpu, free, companions(self.settings)))
                free = host.memory_available_bytes
            self.buffers.update(slot_buffers(of_host, host, self.placement, free))
            self._register(self.buffers)
        self.mark_memory()
        # GiBs take seconds, and the first batch is the next to look at the clock.
        require_time(self.settings.timeout_s, "its buffers were there")

    def share(self, buffers: dict[BufferId, Any]) -> None:
        """Register buffers that another engine of this rank has allocated."""
        with setup_errors():
            self._register(buffers)
        self.buffers.update(buffers)

    def _is_on_gpu(self, buffer: BufferId) -> bool:
        return self.settings.memory_of(buffer == BufferId.SEND) == "cuda"

    def _register(self, buffers: dict[BufferId, Any]) -> None:
        as_dma_buf = self.settings.registration == "dmabuf"
        for buffer, memory in buffers.items():
            self.native.register_buffer(
                int(buffer),
                memory,
                self._pointers[buffer == BufferId.SEND],
                as_dma_buf and self._is_on_gpu(buffer),
            )

    @property
    def needs_manager(self) -> bool:
        """Whether accepts wait for TCPX's receive-datapath manager, or softtcpx for its lack."""
        lacking = any(MANAGER_TRAP in trap for trap in self.plugin.to_tell.traps)
        return lacking or is_tcpx(self.plugin.file.name)

    @property
    def timed_loop(self) -> TimedLoop:
        return self.native

    @property
    def interface(self) -> str:
        """The network interface of this rank's device."""
        return str(self.plugin.nic(self.placement.device)["name"])

    def context(self, nodes: Sequence[str], most_memory_bytes: int = 0) -> RankContext:
        """The context that all transports share; `nodes` is the node of every rank."""
        # What the plugin started since it was loaded, but for the driving thread and MPI's.
        threads = self.plugin.threads | self._started_by_connect
        threads = threads - {*self.native.thread_ids()}
        unpacks = self.settings.unpack_mode() != "in place"
        watch = RowWatch(self.native, self.gpu.health, unpacks) if self.gpu is not None else None
        return RankContext(
            self.schedule, self.buffers, self.placement, self.interface, nodes, threads, watch,
            most_memory_bytes=most_memory_bytes,
        )  # fmt: skip

    @property
    def in_place(self) -> bool:
        return False

    def has(self, facts: RowFacts) -> bool:
        return True

    def load(
        self, context: RankContext, facts: RowFacts, layout: Layout, longest_batch: int
    ) -> None:
        """The row to come."""
        if facts.rate_per_s:
            self.native.pace(1e9 / facts.rate_per_s)
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
            self.plugin.handle.finalize()
        if self.gpu is not None:
            self.gpu.health.close()
