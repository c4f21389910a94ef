"""Sessions between two processes: the engine's pieces as an API, without MPI."""

from tcpx_mpi.session.session import Session, Transfer

__all__ = ["Session", "Transfer"]
