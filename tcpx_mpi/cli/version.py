"""The lines of `--version`: package, build, plugins, MPI and Python, without starting any MPI."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator

from tcpx_mpi import __version__
from tcpx_mpi._version import source_state
from tcpx_mpi.errors import TcpxError
from tcpx_mpi.launch import mpirun
from tcpx_mpi.launch.library import mpi_library
from tcpx_mpi.plugin import find


def version_lines() -> list[str]:
    """One line for each thing that a result depends on; what is missing says so in its line."""
    return [f"tcpx-mpi {__version__}", *(f"{name:<8} {text}" for name, text in _facts())]


def _facts() -> Iterator[tuple[str, str]]:
    yield "git", source_state() or "not run from a git tree"
    try:
        directory = find.bundled_dir()
        from tcpx_mpi._native import BUILD

        yield "native", f"{BUILD['compiler']}, {BUILD['type']}, flags: {BUILD['flags'] or 'none'}"
        for name in ("softtcpx", "null"):
            path = os.path.join(directory, f"libnccl-net-{name}.so")
            there = os.path.exists(path)
            state = f"sha256 {find.sha256_of(path)[:12]}" if there else "missing"
            yield "plugin", f"{name}: {path} {state}"
    except TcpxError as error:
        yield "native", str(error)
    library, problem = mpi_library()
    yield "MPI", library or f"cannot be loaded: {problem}"
    try:
        yield "mpirun", mpirun.find_mpirun(os.environ)
    except TcpxError as error:
        yield "mpirun", str(error)
    yield "Python", f"{platform.python_version()} {sys.executable}"
