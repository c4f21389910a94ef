"""Benchmark of NCCL network plugins, launched by MPI. Importing it starts neither MPI nor CUDA."""

from tcpx_mpi._version import __version__

__all__ = ["__version__"]
