"""Another plugin beside the plugin: an engine of its own over the same buffers, on the same NIC.

Both are in this process, so the two must be different files, or of versions that have contexts.
"""

from __future__ import annotations

import dataclasses
import os
import re

from tcpx_mpi.baselines import Connection
from tcpx_mpi.config.options import ABI_VERSIONS, PLUGIN_BASELINE
from tcpx_mpi.config.settings import BY_CORES, Settings, fingerprint_difference
from tcpx_mpi.errors import UsageError
from tcpx_mpi.plugin.find import choose_plugin, inspect, is_softtcpx
from tcpx_mpi.plugin.request_limits import within_requests_of
from tcpx_mpi.plugin.sockets import data_sockets, moves_all_by_tcp
from tcpx_mpi.records import BaselineInfo
from tcpx_mpi.transport.engine import RankEngine
from tcpx_mpi.transport.in_place import agree_in_place, undecided
from tcpx_mpi.transport.interface import RankContext, Transport
from tcpx_mpi.transport.load_plugin import LoadedPlugin, load_plugin
from tcpx_mpi.workload import Workload
from tcpx_mpi.world import World

KIND = "plugin"
#: From here on a plugin is initialised once a communicator, before it once a process.
FIRST_WITH_CONTEXTS = 11
_VERSION = re.compile(r"@v?(\d+)$")


def prepare(
    world: World, workload: Workload, context: RankContext, connection: Connection
) -> list[Transport]:
    """Collective: load the other plugin, connect, and register the buffers of this one."""
    settings = workload.settings
    with world.agree("plugin beside"):
        theirs = settings_of(settings)
        plugin = load_baseline(theirs, connection)
        device = device_of(plugin, connection.interface)
        theirs = within_requests_of(plugin.file.abi, theirs)
        if theirs.sources["progress_threads"] == BY_CORES and not is_softtcpx(plugin.file.name):
            theirs = dataclasses.replace(theirs, progress_threads=1)
    prints = world.allgather(plugin.fingerprint(), "plugin beside")
    with world.agree("plugin beside"):
        if differs := fingerprint_difference(prints[0], prints[world.rank]):
            raise UsageError(f"--against {asked_for(settings)}: ranks differ in {differs}")
    placement = dataclasses.replace(context.placement, device=device)
    theirs = agree_in_place(world, undecided(theirs), plugin, placement, os.environ)
    with world.agree("listen"):
        engine = RankEngine(theirs, plugin, placement, context.schedule)
        handles = engine.listen(world.size)
    handles = world.exchange(handles, "handles")
    with world.agree("connect", tell=True):
        engine.connect(handles, world)
    with world.agree("memory"):
        engine.share(context.buffers)
    engine.info = info_of(engine)
    return [engine]


def asked_for(settings: Settings) -> str:
    """`plugin:B` as it was given."""
    return next(name for name in settings.against if name.startswith(PLUGIN_BASELINE))


def settings_of(settings: Settings) -> Settings:
    """The settings of the run, of the other plugin."""
    spec = asked_for(settings).removeprefix(PLUGIN_BASELINE)
    version = _VERSION.search(spec)
    abi = int(version[1]) if version else 0
    if abi and abi not in ABI_VERSIONS:
        raise UsageError(
            f"--against {asked_for(settings)}: no table of v{abi} can be driven: use one of "
            f"{', '.join(map(str, ABI_VERSIONS))}"
        )
    source = "command line --against"
    return dataclasses.replace(
        settings,
        plugin=spec[: version.start()] if version else spec,
        abi=abi,
        sources={**settings.sources, "plugin": source, "abi": source},
    )


def load_baseline(theirs: Settings, connection: Connection) -> LoadedPlugin:
    """Raises UsageError for the file of the run's own plugin where it cannot be there twice."""
    file = inspect(choose_plugin(theirs, os.environ))
    if file.path == connection.plugin_path and file.abi < FIRST_WITH_CONTEXTS:
        raise UsageError(
            f"--against {PLUGIN_BASELINE}{theirs.plugin}: {file.path} is the plugin of the "
            f"run itself, which is initialised once a process by v{file.abi}: name another file, "
            "or a copy"
        )
    return load_plugin(theirs, os.environ)


def device_of(plugin: LoadedPlugin, interface: str) -> int:
    """The other plugin's device on the interface of the run's; the only one that it has, else."""
    names = [str(plugin.nic(device)["name"]) for device in range(plugin.devices)]
    if interface in names:
        return names.index(interface)
    if len(names) == 1:
        return 0
    raise UsageError(
        f"--against {PLUGIN_BASELINE}{plugin.file.path}: it has no device {interface}, which the "
        f"run's plugin uses, but {', '.join(names)}: choose one that both have by --nic"
    )


def info_of(engine: RankEngine) -> BaselineInfo:
    """The header's entry: the plugin's file, and how it is connected."""
    file, totals = engine.plugin.file, engine.native.sockets()
    known = moves_all_by_tcp(file.name)
    return BaselineInfo(
        name=KIND,
        kind=KIND,
        streams=engine.settings.channels * data_sockets(file.name, os.environ) if known else 0,
        two_way=False,
        congestion_control=totals["congestion_control"],
        send_buffer_bytes=0,
        description=f"{file.name}, ABI v{file.abi}, {file.path} sha256 {file.sha256[:12]}",
        interfaces=engine.interface,
    )
