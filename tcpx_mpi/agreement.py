"""Making sure that all ranks were started alike, before anything is timed."""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping

from tcpx_mpi import _native
from tcpx_mpi import world as mpi
from tcpx_mpi.config import Settings, fingerprint_difference
from tcpx_mpi.errors import SetupFailed, TcpxError, UsageError
from tcpx_mpi.launch import under_launcher
from tcpx_mpi.patterns import load
from tcpx_mpi.profiles import keep_mpi_on_control_nic
from tcpx_mpi.topology import this_machine
from tcpx_mpi.world import World

#: Set-up steps other than connecting are short; a rank that is this late hangs.
SETUP_PATIENCE_S = 60.0


def start_world(parsed: Settings | TcpxError, environ: MutableMapping[str, str]) -> World:
    """Initialise MPI as the settings want it: on a profile's control NIC, within the node by TCP
    where MPI is to be measured."""
    tcp_only = False
    if isinstance(parsed, Settings):
        tcp_only = "mpi" in parsed.against
        keep_mpi_on_control_nic(parsed.profile, this_machine(), environ)
    return mpi.start(_native.stop_signal, environ, tcp_only)


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


def _refuse_foreign_launcher(world_size: int, environ: Mapping[str, str]) -> None:
    """An mpirun of another MPI starts ranks that each believe they are alone."""
    launched = under_launcher(environ)
    if launched is not None and launched.size is not None and launched.size != world_size:
        raise SetupFailed(
            f"the launcher started {launched.size} ranks, but the MPI library sees {world_size}: "
            "mpirun and the library mpi4py loads belong to different MPIs; use the mpirun of that "
            "library, or set MPI4PY_LIBMPI"
        )
