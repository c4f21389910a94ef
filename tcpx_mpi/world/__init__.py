"""MPI as a service: exchange, agree, start together, call the roll. The only user of mpi4py.

MPI runs between batches, never inside one.
"""

from tcpx_mpi.world.collectives import AgreedError, World
from tcpx_mpi.world.library import library_settings, library_version
from tcpx_mpi.world.liveness import Alarm, Answer, interrupted_by
from tcpx_mpi.world.processes import own_process
from tcpx_mpi.world.startup import finish, start

__all__ = [
    "AgreedError",
    "Alarm",
    "Answer",
    "World",
    "finish",
    "interrupted_by",
    "library_settings",
    "library_version",
    "own_process",
    "start",
]
