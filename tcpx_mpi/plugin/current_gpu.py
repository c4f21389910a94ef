"""The GPU that is current when a plugin is initialised and says which devices it has.

NCCL has its own current in every call. A plugin may ask CUDA which one that is in init already:
TCPXO's ends the process where none is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from tcpx_mpi import _native
from tcpx_mpi.launch.launcher_rank import under_launcher


def hides_all_gpus(visible: str | None) -> bool:
    """Whether that value of CUDA_VISIBLE_DEVICES leaves a process no GPU."""
    return visible is not None and visible.strip() in ("", "-1")


def make_gpu_current(path: str, environ: Mapping[str, str]) -> None:
    """Makes this rank's GPU current on the calling thread, for a plugin that is not ours.

    By the number of the rank on its node, as placement does where nobody chooses. Nothing if
    there is no GPU, or CUDA_VISIBLE_DEVICES hides them all: to ask the driver takes a second of a
    process if it does not stay loaded.
    """
    if hides_all_gpus(environ.get("CUDA_VISIBLE_DEVICES")):
        return
    if os.path.dirname(os.path.abspath(path)) == os.path.dirname(os.path.abspath(_native.__file__)):
        return
    launched = under_launcher(environ)
    local = 0 if launched is None or launched.local_rank is None else launched.local_rank
    try:
        _native.cuda_select(local % len(_native.cuda_devices()))
    except (_native.CudaUnavailable, _native.CudaError):
        return
