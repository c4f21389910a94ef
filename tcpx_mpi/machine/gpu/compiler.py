"""NVRTC: where it is found, and where compiled kernels are cached."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from tcpx_mpi import _native

_LIBRARY = "libnvrtc.so.*"


def nvrtc_folders(search: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """Folders with NVRTC beside the packages of `search` (sys.path), then those of a toolkit.

    NVIDIA's wheels, which CuPy's bring along, have it where the loader does not look.
    """
    packages = [folder for path in search for folder in sorted(Path(path).glob("nvidia/*/lib"))]
    toolkits = [environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    roots = [*filter(None, toolkits), "/usr/local/cuda"]
    toolkit_folders = [Path(root, "lib64") for root in dict.fromkeys(roots)]
    return [str(folder) for folder in (*packages, *toolkit_folders) if any(folder.glob(_LIBRARY))]


def kernel_cache(environ: Mapping[str, str]) -> str:
    """The folder for compiled kernels, made if need be; "" if none can be."""
    base = environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(base, "tcpx-mpi")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return ""
    return str(folder) if os.access(folder, os.W_OK) else ""


def configure_compiler() -> None:
    """Tells native code both, for this process; before its first use of a GPU."""
    _native.cuda_configure(kernel_cache(os.environ), nvrtc_folders(sys.path, os.environ))


def nvrtc_version() -> str:
    """The version of NVRTC, which compiles kernels here. Raises CudaUnavailable if there is
    none."""
    return str(_native.nvrtc_found()[0])
