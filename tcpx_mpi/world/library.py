"""The MPI library that mpi4py finds: loaded without being started, and how it is set up."""

from __future__ import annotations

import re
import socket
import sys
import warnings
from typing import Any

from tcpx_mpi.errors import PluginMissing

#: MPICH has one transport between nodes, UCX or libfabric, and a short cut within a node.
_MPICH_TCP_ONLY = {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self", "FI_PROVIDER": "tcp"}


def library_settings(
    library: str, tcp_only: bool = False, one_machine: bool = False
) -> dict[str, str]:
    """Variables that an MPI library of this version text should find, where a user sets none.

    Open MPI's TCP listens on every interface: ranks of `one_machine` go without.
    Open MPI starts 1 s faster without its search for fabrics that this tool never uses.
    """
    version = re.match(r"Open MPI v(\d+)", library)
    if version is None:
        return dict(_MPICH_TCP_ONLY) if tcp_only else {}
    # Its shared memory has another name since 5.0, and an unknown name is fatal.
    memory = "sm" if int(version[1]) >= 5 else "vader"
    ways = f"{memory},self" if one_machine else f"tcp,{memory},self"
    if tcp_only:
        ways = "tcp,self"
    return {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": ways}


def library_version() -> str:
    """The MPI library in use, its first line. Starts no MPI. Raises PluginMissing."""
    return " ".join(load().Get_library_version().splitlines()[0].rstrip("\0").split())


def load() -> Any:
    """mpi4py's module over the MPI library that it finds, loaded but not initialised."""
    if "mpi4py.MPI" not in sys.modules:
        import mpi4py

        # The library's version, which says how to set it up, is known without starting it.
        mpi4py.rc.initialize = False
        mpi4py.rc.finalize = True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # see `startup.py`
            from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        # The linker names what it did not find last.
        cause = str(error).strip().splitlines()[-1]
        raise PluginMissing(
            f"no MPI library can be loaded on {socket.gethostname()} ({cause}): set MPI4PY_LIBMPI "
            "to its path, and LD_LIBRARY_PATH to its directory (see docs/how-to/launching.md)"
        ) from None
    return MPI
