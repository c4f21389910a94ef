"""The version of the package, as installed, and the state of the source tree it runs from."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from tcpx_mpi.programs import find_program

_FIELD = "Version: "


def installed_version() -> str:
    """The version in the package's metadata; "0+unknown" for a source tree never installed."""
    for folder in filter(None, sys.path):
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):
                if name.startswith("tcpx_mpi-") and name.endswith(".dist-info"):
                    for line in Path(folder, name, "METADATA").read_text().splitlines():
                        if line.startswith(_FIELD):
                            return line.removeprefix(_FIELD)
    # In an archive or by an importer of its own; to load this takes a rank 15 ms.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tcpx-mpi")
    except PackageNotFoundError:
        return "0+unknown"


def source_state() -> str:
    """Commit of the source tree this package runs from, "+changes" where it differs; "" if none."""
    tree = Path(__file__).resolve().parent.parent
    git = find_program("git", os.environ.get("PATH", os.defpath))
    if git is None or not (tree / ".git").exists():
        return ""
    command = [git, "-C", str(tree), "describe", "--always", "--dirty=+changes", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip()
