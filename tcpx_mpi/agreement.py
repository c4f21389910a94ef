"""Making sure that all ranks were started alike, before anything is timed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence

from tcpx_mpi.config import Settings, fingerprint_difference
from tcpx_mpi.errors import SetupFailed, TcpxError, UsageError
from tcpx_mpi.launch import under_launcher
from tcpx_mpi.patterns import load
from tcpx_mpi.topology import Host
from tcpx_mpi.world import World

#: Set-up steps other than connecting are short; a rank that is this late hangs.
SETUP_PATIENCE_S = 60.0


def agree_settings(world: World, parsed: Settings | TcpxError) -> Settings:
    """Collective: the settings, valid and equal on all ranks.

    `parsed` is what this rank made of its command line and environment, or why it could not.
    """
    with world.agree("arguments", SETUP_PATIENCE_S):
        _refuse_foreign_launcher(world.size, os.environ)
        if isinstance(parsed, TcpxError):
            raise parsed
        refusal = load(parsed.pattern).refuse(world.size)
        if refusal is not None:
            raise UsageError(refusal)
    assert isinstance(parsed, Settings)
    require_equal(world, parsed.fingerprint(), "arguments")
    return parsed


def agree_hosts(world: World, host: Host) -> list[Host]:
    """Collective: every rank's host, by rank; every node has as many ranks as the others."""
    hosts: list[Host] = world.allgather(host, "hosts", SETUP_PATIENCE_S)
    world.places = [each.name for each in hosts]
    with world.agree("hosts", SETUP_PATIENCE_S):
        _refuse_uneven(hosts)
    return hosts


def tell_nic(world: World, name: str) -> None:
    """Collective: from now on what is said of a rank names its network interface, too."""
    names = world.allgather(name, "network interfaces", SETUP_PATIENCE_S)
    both = zip(world.places, names, strict=True)
    world.places = [f"{place} (NIC {name})" for place, name in both]


def require_equal(world: World, fingerprint: str, what: str) -> None:
    """Collective: every rank raises UsageError, naming the first rank that differs from rank 0."""
    prints = world.allgather(fingerprint, what, SETUP_PATIENCE_S)
    for rank, other in enumerate(prints):
        if other != prints[0]:
            with world.agree(what, SETUP_PATIENCE_S):
                difference = fingerprint_difference(prints[0], other)
                raise UsageError(
                    f"rank {rank} differs from rank 0: {difference}, rank 0's value first; "
                    f"start every rank with the same {what}"
                )


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


def _refuse_foreign_launcher(world_size: int, environ: Mapping[str, str]) -> None:
    """An mpirun of another MPI starts ranks that each believe they are alone."""
    launched = under_launcher(environ)
    if launched is not None and launched.size is not None and launched.size != world_size:
        raise SetupFailed(
            f"the launcher started {launched.size} ranks, but the MPI library sees {world_size}: "
            "mpirun and the library mpi4py loads belong to different MPIs; use the mpirun of that "
            "library, or set MPI4PY_LIBMPI"
        )
