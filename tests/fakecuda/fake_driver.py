"""Builds the stand-in for the CUDA driver, and says what a process needs to find it."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from build_native import REPOSITORY, configure, make, required_tools

_BUILD = REPOSITORY / "build" / "fakecuda"
_HERE = Path(__file__).parent


def built() -> Path:
    """The folder of its libraries, up to date. Skips where no compiler is."""
    cmake = required_tools()
    _BUILD.mkdir(parents=True, exist_ok=True)
    with open(_BUILD / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # of several workers of a test run one builds
        flags = ("-DCMAKE_BUILD_TYPE=None", "-DCMAKE_CXX_FLAGS=-O1")  # compiled in half the time
        configure(cmake, REPOSITORY / "native", _BUILD, "-DTCPX_MPI_NATIVE_TESTS=ON", *flags)
        make(cmake, _BUILD, "fakecuda", "fakenvrtc", "fakenccl")
    return _BUILD / "fakecuda"


def variables(libraries: Path, gpus: int = 2, **others: str) -> dict[str, str]:
    """The environment in which a machine has so many GPUs, and CuPy."""
    # What stands in for NCCL is a test's, too.
    paths = [str(_HERE), str(_HERE.parent / "mpi"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {
        "LD_LIBRARY_PATH": str(libraries),
        "PYTHONPATH": os.pathsep.join(paths),
        "FAKECUDA_DEVICES": str(gpus),
        **others,
    }
