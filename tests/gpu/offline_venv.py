"""An environment with tcpx-mpi where no network is: the packages that this Python has, and wheels.

    offline_venv.py FOLDER WHEELHOUSE

`make test SUITE=gpu WHEELHOUSE=...`. The native parts are built here. Packages of the Python that
runs this stay usable from FOLDER also where that Python is an environment itself, which a
--system-site-packages of its own would pass over.
"""

from __future__ import annotations

import os
import site
import subprocess
import sys
import venv
from pathlib import Path

TOOLS = ("scikit-build-core>=0.11", "nanobind>=2.4", "ninja>=1.10", "pytest>=8",
         "pytest-timeout>=2.3", "pytest-xdist>=3.5", "nvidia-ml-py>=12")  # fmt: skip
REPOSITORY = Path(__file__).resolve().parents[2]


def main(folder: str, wheelhouse: str) -> int:
    wheels = Path(wheelhouse).resolve()
    if not any(wheels.glob("*.whl")):
        print(f"{wheelhouse} has no wheels: make it by `make wheelhouse`, where a network is, and "
              "bring it here", file=sys.stderr)  # fmt: skip
        return 2
    python = Path(folder).resolve() / "bin" / "python"
    if not python.exists():
        venv.create(folder, system_site_packages=True, with_pip=not _has_pip(), symlinks=True)
    _let_see(python, [path for path in site.getsitepackages() if os.path.isdir(path)])
    from_wheels = ["--quiet", "--no-index", "--find-links", str(wheels)]
    _pip(python, *from_wheels, *TOOLS)
    # The dependencies first: with --no-deps a tool of the build could be missing without a word.
    _pip(python, *from_wheels, "--no-build-isolation", "--editable", str(REPOSITORY))
    return 0


def _has_pip() -> bool:
    return subprocess.run([sys.executable, "-m", "pip", "--version"], check=False,
                          capture_output=True).returncode == 0  # fmt: skip


def _let_see(python: Path, outer: list[str]) -> None:
    """Packages in these folders can be imported by `python`, after its own."""
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own = subprocess.run([python, "-c", where], check=True, capture_output=True, text=True)
    Path(own.stdout.strip(), "outer.pth").write_text("".join(f"{path}\n" for path in outer))


def _pip(python: Path, *words: str) -> None:
    subprocess.run([python, "-m", "pip", "install", *words], check=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
