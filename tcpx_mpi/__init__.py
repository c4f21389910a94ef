"""Benchmark of NCCL network plugins, launched by MPI. Importing it starts neither MPI nor CUDA.

`Session` and `Transfer` move messages between two processes, with MPI or without.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tcpx_mpi.session import Session, Transfer

    __version__: str

__all__ = ["Session", "Transfer", "__version__"]


def __getattr__(name: str) -> object:
    # Looked up when asked for: reading the metadata, or numpy, takes longer than starting a rank
    # should.
    if name == "__version__":
        from tcpx_mpi._version import installed_version

        return installed_version()
    if name in ("Session", "Transfer"):
        # By name: this module stands below the one that it lends its names to.
        return getattr(importlib.import_module("tcpx_mpi.session"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
