"""From equal settings to connected ranks: the plugin, the same everywhere, and its comms."""

from __future__ import annotations

import os

from tcpx_mpi import _native
from tcpx_mpi.config.settings import Settings
from tcpx_mpi.launch.mpirun import under_launcher
from tcpx_mpi.machine.placement import Placement
from tcpx_mpi.run import agreement
from tcpx_mpi.run.hanging_call import ending_a_call_that_hangs
from tcpx_mpi.run.recorder import Output
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.transport.engine import RankEngine
from tcpx_mpi.transport.load_plugin import LoadedPlugin, load_plugin, try_plugin
from tcpx_mpi.world import World
from tcpx_mpi.world.patience import SETUP_PATIENCE_S


def load_alike(world: World, settings: Settings, workers: int, threads: int) -> LoadedPlugin:
    """Collective: the plugin, initialised, the same file on all ranks."""
    launched = under_launcher(os.environ)
    with world.agree("plugin in a process of its own", settings.setup_timeout_s):
        if world.rank == 0 or (launched is not None and launched.speaks_for_node):
            try_plugin(settings, os.environ)
    with world.agree("plugin", settings.setup_timeout_s):
        plugin = load_plugin(settings, os.environ, workers, True, threads)
    agreement.require_equal(world, plugin.fingerprint(), "plugin and its environment")
    _native.setup_end()
    return plugin


def connect(
    world: World,
    output: Output,
    settings: Settings,
    plugin: LoadedPlugin,
    placement: Placement,
    pattern: Pattern,
    witness: bool = False,
) -> RankEngine:
    """Collective: listen, exchange the handles, connect and accept.

    `output` is for the end of a rank whose connect or accept never returns. With `witness` the
    engine remembers what the plugin delivers.
    """
    agreement.tell_nic(world, plugin.nic(placement.device)["name"])
    with world.agree("listen", SETUP_PATIENCE_S):
        schedule = pattern.schedule(world.rank, world.size)
        engine = RankEngine(settings, plugin, placement, schedule, witness)
        handles = engine.listen(world.size)
    handles = world.exchange(handles, "handles", SETUP_PATIENCE_S)
    patience_s = SETUP_PATIENCE_S + settings.connect_timeout_s
    ending = ending_a_call_that_hangs(world, output, engine)
    with world.agree("connect", patience_s, tell=True), ending:
        engine.connect(handles, world)
    return engine
