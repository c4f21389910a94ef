"""Benchmark of NCCL network plugins, launched by MPI. Importing it starts neither MPI nor CUDA."""

from __future__ import annotations

__all__ = ["__version__"]


def __getattr__(name: str) -> str:
    # Looked up when asked for: reading the metadata takes longer than starting a rank should.
    if name == "__version__":
        from tcpx_mpi._version import installed_version

        return installed_version()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
