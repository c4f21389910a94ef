"""Prints CuPy's package for the CUDA of this machine's driver; exit 1 without a driver."""

from __future__ import annotations

import sys

from tcpx_mpi.machine.gpu.driver import cuda_major

if __name__ == "__main__":
    major = cuda_major()
    if major == 0:
        sys.exit("no CUDA driver (libcuda.so.1) on this machine: run this where the GPUs are")
    print("cupy-cuda13x>=13.6" if major >= 13 else "cupy-cuda12x>=13")
