"""Benchmark of NCCL network plugins, launched by MPI. Importing it starts neither MPI nor CUDA.

`Session` and `Transfer` move messages between two processes, with MPI or without. `open_run` reads
the file of a run into pandas frames.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tcpx_mpi.exchange.frames import open_run
    from tcpx_mpi.session.session import Session, Transfer

    __version__: str

__all__ = ["Session", "Transfer", "__version__", "open_run"]

#: By name, because this module stands below those that it lends names from.
_LENT = {
    "Session": "tcpx_mpi.session.session",
    "Transfer": "tcpx_mpi.session.session",
    "open_run": "tcpx_mpi.exchange.frames",
}


def __getattr__(name: str) -> object:
    # Looked up when asked for: reading the metadata, or numpy, takes longer than starting a rank
    # should.
    if name == "__version__":
        from tcpx_mpi._version import installed_version

        return installed_version()
    if name in _LENT:
        return getattr(importlib.import_module(_LENT[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
