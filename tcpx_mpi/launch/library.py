"""Which MPI library ranks here would have, without loading it into this process."""

from __future__ import annotations

import os
import subprocess

from tcpx_mpi.launch.own_python import code_command, without_here

#: Longer than any MPI library takes to load, from a slow network file system too.
_PATIENCE_S = 20.0
_ASK = "from tcpx_mpi import world; print(world.library_version())"


def mpi_library() -> tuple[str, str]:
    """Return its version, or "" and why it cannot be loaded.

    Asked in a process of its own: a broken library ends, or hangs, the process that loads it.
    """
    try:
        done = subprocess.run(
            code_command(_ASK), env=without_here(os.environ),
            capture_output=True, text=True, check=False, timeout=_PATIENCE_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return "", f"did not load within {_PATIENCE_S:g} s"
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return "", said[-1].removeprefix("tcpx_mpi.errors.PluginMissing: ")
    return done.stdout.strip(), ""
