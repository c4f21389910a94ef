"""A directory of files that Python would import in place of its own, and commands run there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from jobs import clean_environment

#: Names of modules that this program, or what it is made of, imports; none that Python itself
#: imports for `-m` before any other code.
NAMES = (
    "random", "numpy", "click", "typing", "signal", "json", "socket", "psutil", "h5py", "mpi4py",
    "subprocess", "dataclasses", "scipy", "string", "struct", "datetime", "tempfile", "hashlib",
)  # fmt: skip
#: Leaves a mark where it was executed; what imports it would go on.
HOSTILE = "open(__file__ + MARK, 'w').close()\n"
MARK = ".executed"
BIN = Path(sys.executable).parent


def fill(directory: Path) -> Path:
    """Puts files of the names of modules there."""
    for name in NAMES:
        (directory / f"{name}.py").write_text(HOSTILE.replace("MARK", repr(MARK)))
    return directory


def require_untouched(directory: Path) -> None:
    """Fails where one of the files was executed."""
    assert not [path.name for path in directory.iterdir() if path.name.endswith(MARK)]


def ran(command: list[str], place: Path, **variables: str) -> str:
    """What a command says that must end well, without executing one of the files."""
    done = subprocess.run(
        command, cwd=place, env=clean_environment(variables), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100,
    )  # fmt: skip
    require_untouched(place)
    assert done.returncode == 0, done.stdout
    return done.stdout
