"""What `--version` prints: package, build, plugins, MPI and Python, without starting any MPI."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterator

from tcpx_mpi import __version__, launch, plugins
from tcpx_mpi._version import source_state
from tcpx_mpi.errors import TcpxError

#: Longer than any MPI library takes to load, from a slow network file system too.
_PATIENCE_S = 20.0
_ASK_MPI = "from tcpx_mpi import world; print(world.library_version())"


def version_lines() -> list[str]:
    """One line for each thing that a result depends on; what is missing says so in its line."""
    return [f"tcpx-mpi {__version__}", *(f"{name:<8} {text}" for name, text in _facts())]


def _facts() -> Iterator[tuple[str, str]]:
    yield "git", source_state() or "not run from a git tree"
    try:
        directory = plugins.bundled_dir()
        from tcpx_mpi._native import BUILD

        yield "native", f"{BUILD['compiler']}, {BUILD['type']}, flags: {BUILD['flags'] or 'none'}"
        for name in ("softtcpx", "null"):
            path = os.path.join(directory, f"libnccl-net-{name}.so")
            there = os.path.exists(path)
            state = f"sha256 {plugins.sha256_of(path)[:12]}" if there else "missing"
            yield "plugin", f"{name}: {path} {state}"
    except TcpxError as error:
        yield "native", str(error)
    yield "MPI", _mpi_library()
    try:
        yield "mpirun", launch.find_mpirun(os.environ)
    except TcpxError as error:
        yield "mpirun", str(error)
    yield "Python", f"{platform.python_version()} {sys.executable}"


def _mpi_library() -> str:
    """Asked in a process of its own: a broken MPI ends, or hangs, the process that loads it."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK_MPI],
            capture_output=True, text=True, check=False, timeout=_PATIENCE_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"the library did not load within {_PATIENCE_S:g} s"
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return f"cannot be loaded: {said[-1]}"
    return done.stdout.strip()
