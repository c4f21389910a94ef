"""Check that all ranks were started with equal settings, before anything is timed."""

from __future__ import annotations

import dataclasses
import os
import socket
from collections import Counter
from collections.abc import Callable, MutableMapping, Sequence
from typing import Protocol, TypeVar

import tcpx_mpi
from tcpx_mpi import _native
from tcpx_mpi import world as mpi
from tcpx_mpi.config.settings import Settings, fingerprint_difference
from tcpx_mpi.errors import TcpxError, UsageError
from tcpx_mpi.machine.profiles import keep_mpi_on_control_nic
from tcpx_mpi.machine.topology import Host, node_names, this_machine
from tcpx_mpi.open_files import raise_limit
from tcpx_mpi.run.shared_environment import shared_environment
from tcpx_mpi.workload import Workload, workload_of
from tcpx_mpi.world import World, own_process

_T = TypeVar("_T")


def start_world(parsed: Settings | TcpxError, environ: MutableMapping[str, str]) -> World:
    """Initialise MPI as the settings want it: on a profile's control NIC, within the node by TCP
    where MPI is to be measured. Open files are then as many as the system allows."""
    raise_limit()  # MPI's connections count, too
    tcp_only = False
    if isinstance(parsed, Settings):
        _native.watch_limit(parsed.setup_timeout_s)
        tcp_only = "mpi" in parsed.against
        keep_mpi_on_control_nic(parsed.profile, this_machine(), environ)
    return mpi.start(_native.stop_signal, environ, tcp_only)


def agree_workload(world: World, parsed: Settings | TcpxError) -> Workload:
    """Collective: what is sent, by settings that are valid and equal on all ranks.

    `parsed` is what this rank made of its command line and environment, or why it could not.
    """
    with world.agree("arguments"):
        if isinstance(parsed, TcpxError):
            raise parsed
        workload = workload_of(parsed, world.size)
    assert isinstance(parsed, Settings)
    require_equal(world, f"tcpx-mpi={tcpx_mpi.__version__}", "version of tcpx-mpi")
    require_equal(world, parsed.fingerprint(), "arguments")
    environment = shared_environment(os.environ).items()
    lines = [f"{name}={value}".replace("\n", "\\n") for name, value in environment]
    require_equal(world, "\n".join(lines), "environment")
    if fingerprint := workload.fingerprint():
        require_equal(world, fingerprint, "traffic matrix")
    return workload


def agree_hosts(world: World, host: Host, uneven: bool = False) -> list[Host]:
    """Collective: every rank's host, by rank; every node has as many ranks as the others, unless
    they may be `uneven`.

    Hosts of one name on several nodes have been given one each.
    """
    both = world.allgather((host, own_process(host.node)), "hosts")
    hosts = _with_distinct_names([each for each, _ in both])
    world.processes = [process for _, process in both]
    world.places = [each.name for each in hosts]
    with world.agree("hosts"):
        if not uneven:
            _refuse_uneven(hosts)
    return hosts


class _Owner(Protocol):
    def free_bytes(self, host: Host) -> int: ...


def free_bytes(world: World, engine: _Owner, host: Host) -> int:
    """Collective: the memory for this rank's buffers that is free before any rank takes some."""
    with world.agree("free memory"):
        return engine.free_bytes(host)


def tell_nic(world: World, name: str) -> None:
    """Collective: from now on what is said of a rank names its network interface, too."""
    names = world.allgather(name, "network interfaces")
    both = zip(world.places, names, strict=True)
    world.places = [f"{place} (NIC {name})" for place, name in both]


def value_of_rank_0(world: World, find: Callable[[], _T]) -> _T:
    """Collective: what rank 0 finds, which takes it a look at all rows, on every rank."""
    with world.at_work():
        value = find()
    everybody: list[_T] = world.allgather(value, "what rank 0 tells", while_alive=True)
    return everybody[0]


def require_equal(world: World, fingerprint: str, what: str) -> None:
    """Collective: every rank raises UsageError, naming the first rank that differs from rank 0.

    `fingerprint` has a `name=value` line each; `what` is what all ranks should be started with.
    """
    mine = (fingerprint, socket.gethostname())
    prints: list[tuple[str, str]] = world.allgather(mine, what)
    first, first_host = prints[0]
    for rank, (other, host) in enumerate(prints):
        if other != first:
            with world.agree(what):
                raise UsageError(
                    f"rank {rank} on {host} differs from rank 0 on {first_host}: "
                    f"{fingerprint_difference(first, other)}, rank 0's value first; "
                    f"start every rank with the same {what}"
                )


def _with_distinct_names(hosts: Sequence[Host]) -> list[Host]:
    host_of = {host.node: host.name for host in hosts}
    name_of = dict(zip(host_of, node_names(list(host_of.values())), strict=True))
    return [dataclasses.replace(host, name=name_of[host.node]) for host in hosts]


def _refuse_uneven(hosts: Sequence[Host]) -> None:
    """A node with fewer ranks has NICs that idle, and `pair` would pair ranks of one node."""
    ranks = Counter(host.node for host in hosts)
    names = {host.node: host.name for host in hosts}
    if len(set(ranks.values())) > 1:
        counts = ", ".join(f"{names[node]} has {count}" for node, count in ranks.items())
        raise UsageError(
            f"the nodes must have equally many ranks, but {counts}: give every node of the "
            "hostfile the same slots, and mpirun -n a multiple of that"
        )
