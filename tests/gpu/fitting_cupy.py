"""Prints CuPy's package for the CUDA of this machine's driver; exit 2 without a driver."""

from __future__ import annotations

import sys

from tcpx_mpi.gpu.driver import cuda_version

if __name__ == "__main__":
    version = cuda_version()
    if version == 0:
        sys.exit("no CUDA driver (libcuda.so.1) on this machine: run this where the GPUs are")
    print("cupy-cuda13x>=13.6" if version >= 13000 else "cupy-cuda12x>=13")
