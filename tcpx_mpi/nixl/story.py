"""A measurement alone, and under mpirun: each rank has an agent, and MPI carries its metadata."""

from __future__ import annotations

from dataclasses import dataclass

import tcpx_mpi
from tcpx_mpi.config.settings import Settings
from tcpx_mpi.errors import ExitCode, TcpxError
from tcpx_mpi.exchange.prometheus import require_prom
from tcpx_mpi.launch.watch import ROWS
from tcpx_mpi.machine.topology import read_host
from tcpx_mpi.nixl.header import fingerprint_of
from tcpx_mpi.nixl.measure import find_wheel, measure
from tcpx_mpi.nixl.ranks import Alone, OverMpi, Ranks
from tcpx_mpi.nixl.roles import Roles, refuse_memory, roles_of
from tcpx_mpi.nixl.settings import NixlSettings
from tcpx_mpi.nixl.table import Table
from tcpx_mpi.records import require_writable
from tcpx_mpi.report import Screen
from tcpx_mpi.run.agreement import agree_hosts, require_equal
from tcpx_mpi.run.story import RunState


@dataclass(frozen=True)
class Asked:
    """A command line that is right by itself."""

    settings: NixlSettings
    initiators: str | None
    targets: str | None
    prom_path: str | None
    screen: Screen | None

    def roles(self, world: int | None) -> Roles:
        """Raises UsageError if so many ranks (None: no mpirun) cannot have them."""
        return roles_of(self.initiators, self.targets, self.settings.batch, world)

    def require_files(self) -> None:
        """Raises UsageError if what is to be written cannot be."""
        if self.settings.hdf5 != "none":
            require_writable(self.settings.hdf5, "--hdf5")
        if self.prom_path is not None:
            require_prom(self.prom_path)

    def refuse_memory(self, roles: Roles, ranks: Ranks) -> None:
        """Raises UsageError if a node has too little."""
        nodes, names = zip(*((host.node, host.name) for host in ranks.hosts), strict=True)
        free = [host.memory_available_bytes for host in ranks.hosts]
        if self.settings.memory == "vram":
            free = [0] * len(free)  # it is the GPU's, whose driver says when there is no more
        sides = 1 + len(self.settings.against)
        refuse_memory(roles, self.settings.slot_bytes, nodes, names, free, sides)

    def table(self, active: bool) -> Table:
        return Table(self.screen, self.prom_path, active)


def measure_alone(asked: Asked, command: list[str]) -> int:
    """Runs all agents on this machine; returns the exit code."""
    roles = asked.roles(None)
    ranks = Alone(roles.world, read_host())
    asked.refuse_memory(roles, ranks)
    asked.require_files()
    try:
        measure(asked.settings, roles, ranks, find_wheel(), command, asked.table(True))
    except TcpxError as error:
        ranks.keep_fault(int(error.exit_code), {0: str(error)})
        raise
    except KeyboardInterrupt:
        ranks.keep_fault(int(ExitCode.INTERRUPTED), {0: "interrupted"})
        raise
    return int(ExitCode.OK)


class NixlStory:
    """One agent of each backend on each rank of a world."""

    def __init__(self, state: RunState, asked: Asked | None) -> None:
        self.state, self._asked = state, asked

    def run(self, parsed: Settings | TcpxError) -> int:
        """Collective: the story, top to bottom; returns the exit code."""
        world, asked = self.state.world, self._asked
        with world.agree("arguments"):
            if isinstance(parsed, TcpxError):
                raise parsed
            assert asked is not None  # else there was an error
            roles = asked.roles(world.size)
        assert isinstance(parsed, Settings)
        assert asked is not None
        require_equal(world, f"tcpx-mpi={tcpx_mpi.__version__}", "version of tcpx-mpi")
        require_equal(world, fingerprint_of(asked.settings, roles), "arguments")
        ranks = OverMpi(self.state, agree_hosts(world, read_host(), uneven=True))
        with world.agree("memory"):
            asked.refuse_memory(roles, ranks)
        with world.agree("output"):
            if ranks.leads:
                asked.require_files()
        with world.agree("NIXL"):
            wheel = find_wheel()
        require_equal(world, f"{wheel.name}={wheel.version}", "NIXL")
        world.enter(ROWS, parsed.stall_timeout_s)
        table = asked.table(ranks.leads)
        measure(asked.settings, roles, ranks, wheel, self.state.argv, table)
        return int(ExitCode.OK)
