"""The baselines (`--against`), which run beside the plugin in the same frame: one file each.

A baseline's file has `prepare(world, workload, context, link) -> list[Transport]`, collective: it
brings up the variants of the baseline, or raises if it cannot run here.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tcpx_mpi.plugin.find import is_softtcpx
from tcpx_mpi.plugin.sockets import data_sockets
from tcpx_mpi.plugin.softtcpx_defaults import workers_asked_for

if TYPE_CHECKING:
    from tcpx_mpi.transport.engine import RankEngine
    from tcpx_mpi.transport.interface import RankContext, Transport
    from tcpx_mpi.workload import Workload
    from tcpx_mpi.world import World

#: The MPI library's sockets are told from others by being there before a later baseline has any.
_PREPARED_FIRST = "mpi"


@dataclass(frozen=True)
class Connection:
    """The connections of the plugin to its peers, which a baseline must have alike."""

    #: The network interface of this rank's device.
    interface: str
    #: TCP congestion control of the plugin's sockets; "" if it cannot be read.
    congestion_control: str
    #: Sockets that carry data for each direction between two ranks.
    streams: int
    #: That move the plugin's bytes in this process: its workers, or whoever asks it.
    threads: int = 1
    #: Inodes of the plugin's sockets in this process.
    plugin_sockets: frozenset[int] = frozenset()
    #: The plugin's file.
    plugin_path: str = ""
    #: Why the congestion control is not the usual one, where nobody has asked for another.
    congestion_note: str = ""


def connection_of(engine: RankEngine) -> Connection:
    """The connections of the plugin's engine."""
    # Several in use (a plugin's control sockets may differ) are none that a baseline could have.
    names = engine.native.sockets()["congestion_control"]
    return Connection(
        interface=engine.interface,
        congestion_control=names if "," not in names else "",
        streams=engine.settings.channels * data_sockets(engine.plugin.file.name, os.environ),
        threads=_threads_of(engine),
        plugin_sockets=engine.own_sockets,
        plugin_path=engine.plugin.file.path,
    )


def _threads_of(engine: RankEngine) -> int:
    """In host memory: those of our own plugin where it has some."""
    if engine.settings.memory == "cuda" or not is_softtcpx(engine.plugin.file.name):
        return max(engine.settings.progress_threads, 1)
    return max(engine.settings.progress_threads, workers_asked_for(os.environ), 1)


def prepare(
    world: World, workload: Workload, engine: RankEngine, context: RankContext
) -> list[Transport]:
    """Collective: bring up every baseline that was asked for.

    Raises SetupFailed on all ranks, or UsageError for one that cannot run here.
    """
    names, connection = workload.settings.against, connection_of(engine)
    brought_up: dict[str, list[Transport]] = {}
    for name in sorted(names, key=lambda name: name != _PREPARED_FIRST):
        module = importlib.import_module(f"tcpx_mpi.baselines.{name.partition(':')[0]}")
        brought_up[name] = module.prepare(world, workload, context, connection)
    return [each for name in names for each in brought_up[name]]
