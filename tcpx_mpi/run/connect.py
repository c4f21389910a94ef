"""From equal settings to connected ranks: the plugin, the same everywhere, and its comms."""

from __future__ import annotations

import os

import numpy as np

from tcpx_mpi.config.settings import Settings
from tcpx_mpi.launch.launcher_rank import under_launcher
from tcpx_mpi.launch.watch import CONNECT
from tcpx_mpi.machine.placement import Placement
from tcpx_mpi.machine.topology import this_machine
from tcpx_mpi.run import agreement
from tcpx_mpi.run.place_ranks import GpuChoice
from tcpx_mpi.run.story import RunState
from tcpx_mpi.schedule.table import RECEIVE_OPS, Column, Op, step_bytes
from tcpx_mpi.transport.engine import RankEngine
from tcpx_mpi.transport.load_plugin import LoadedPlugin, load_plugin, try_plugin
from tcpx_mpi.workload import Workload
from tcpx_mpi.workload.refusals import require_line_rate
from tcpx_mpi.world import World


def load_same_plugin(world: World, settings: Settings, chosen: GpuChoice) -> LoadedPlugin:
    """Collective: the plugin, initialised, the same file on all ranks."""
    launched = under_launcher(os.environ)
    with world.agree("plugin in a process of its own", settings.setup_timeout_s):
        if world.rank == 0 or (launched is not None and launched.speaks_for_node):
            try_plugin(settings, os.environ)
    with world.agree("plugin", settings.setup_timeout_s):
        plugin = load_plugin(
            settings, os.environ, chosen.workers, True, chosen.threads, not chosen.is_shared()
        )
    agreement.require_equal(world, plugin.fingerprint(), "plugin and its environment")
    world.enter(CONNECT, settings.connect_timeout_s)
    return plugin


def connect(
    state: RunState,
    workload: Workload,
    plugin: LoadedPlugin,
    placement: Placement,
    witness: bool = False,
) -> RankEngine:
    """Collective: listen, exchange the handles, connect and accept.

    With `witness` the engine remembers what the plugin delivers.
    """
    world = state.world
    agreement.tell_nic(world, plugin.nic(placement.device)["name"])
    with world.agree("listen"):
        schedule = workload.connecting_pattern.schedule(world.rank, world.size)
        engine = RankEngine(workload.settings, plugin, placement, schedule, witness)
        handles = engine.listen(world.size)
    handles = world.exchange(handles, "handles")
    state.needs_manager = engine.needs_manager
    with world.agree("connect", tell=True):
        engine.connect(handles, world)
    return engine


def require_rate(
    world: World, workload: Workload, plugin: LoadedPlugin, placement: Placement
) -> None:
    """Raises UsageError where --rate is more than this rank's NIC can carry at the largest size."""
    settings, pattern = workload.settings, workload.single
    if not settings.rates:
        return
    nic = plugin.nic(placement.device)
    schedule = pattern.schedule(world.rank, world.size)
    lengths = step_bytes(
        schedule, pattern.layout(world.rank, world.size, max(settings.sizes))
    ).length
    op = schedule.column(Column.OP)
    sent, received = lengths[op == Op.SEND].sum(), lengths[np.isin(op, RECEIVE_OPS)].sum()
    moved = int(max(sent, received)) * settings.agg_iters
    mbps = this_machine().line_rate_mbps(nic["name"], nic["speed_mbps"])
    require_line_rate(settings, moved, mbps, nic["name"])
