"""Benchmark of NCCL network plugins, launched by MPI. Importing it starts neither MPI nor CUDA.

`Session` and `Transfer` move messages between two processes, with MPI or without. `open_run` reads
the file of a run into pandas frames.
"""

# Of Python's own modules only one that is compiled in: see below.
import sys

# `python -m tcpx_mpi`, or a module of it, is looked for just now: the current directory is in front
# of the path, and files there, like random.py, are none of this program's.
if (
    getattr(sys, "argv", [])[:1] == ["-m"]
    and any(word.removeprefix("-m").startswith("tcpx_mpi") for word in sys.orig_argv[1:])
    and not (sys.flags.isolated or getattr(sys.flags, "safe_path", False))
):
    del sys.path[0]

# What typing has of this name takes longer to load than starting a rank should.
TYPE_CHECKING = False
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
        import importlib

        return getattr(importlib.import_module(_LENT[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
