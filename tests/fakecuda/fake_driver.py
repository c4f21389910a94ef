"""The stand-in for the CUDA driver, and what a process needs to find it."""

from __future__ import annotations

import os
from pathlib import Path

import shared_builds

_HERE = Path(__file__).parent


def built() -> Path:
    """The folder of its libraries, up to date. Skips where no compiler is."""
    return shared_builds.fakecuda()


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
