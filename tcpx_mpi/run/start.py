"""Starting the ranks of a command: mpirun, with MPI on the control NIC of the profile."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from tcpx_mpi.config.settings import Settings
from tcpx_mpi.launch import mpirun
from tcpx_mpi.machine import profiles
from tcpx_mpi.machine.topology import this_machine


def start_ranks(settings: Settings, ranks: int, arguments: Sequence[str]) -> int:
    """Starts the ranks; returns their exit code."""
    environ = environment_of_ranks(settings, os.environ)
    return mpirun.start_mpirun(ranks, arguments, environ, settings.setup_timeout_s)


def environment_of_ranks(settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for mpirun, with MPI on the control NIC of the profile."""
    made = dict(environ)
    profiles.keep_mpi_on_control_nic(settings.profile, this_machine(), made)
    return made
