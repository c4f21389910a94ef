"""Open MPI 4.1 and MPICH beside the MPI of the environment, unpacked and not installed.

Each gets a directory of its own, like a virtual environment: `bin/python` with the packages of the
one that runs this, and `bin/mpirun`. Nothing outside of that directory is written to.
"""

from __future__ import annotations

import os
import platform
import shutil
import site
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tcpx_mpi.launch import mpirun as launch

PACKAGES = ("openmpi-bin", "mpich")


class NoPackages(Exception):
    """This machine has no packages that could be unpacked."""


@dataclass(frozen=True)
class OtherMpi:
    """A Python and the mpirun beside it."""

    name: str
    #: As the library calls itself.
    library: str
    directory: Path
    #: What it needs, as it is not where it was built for; a user's LD_LIBRARY_PATH goes before.
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def python(self) -> str:
        return str(self.directory / "bin" / "python")

    @property
    def mpirun(self) -> str:
        return str(self.directory / "bin" / "mpirun")


def of_this_environment() -> OtherMpi:
    """The MPI beside this Python, or in PATH. Raises NoPackages where it is no Open MPI 5."""
    mpirun = Path(launch.find_mpirun(os.environ))
    said = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False).stdout
    if "Open MPI) 5" not in said or mpirun.parent != Path(sys.prefix) / "bin":
        raise NoPackages(f"Open MPI 5 is wanted beside this Python, found {mpirun}: {said[:40]!r}")
    return OtherMpi("openmpi5", "Open MPI v5", Path(sys.prefix))


def make(directory: Path) -> list[OtherMpi]:
    """Both MPIs below `directory`, where they stay for the next time. Raises NoPackages."""
    root = directory / "root"
    if not (directory / "unpacked").exists():
        unpack(root)
        (directory / "unpacked").touch()
    libraries = root / "usr/lib" / f"{platform.machine()}-linux-gnu"
    search = f"{libraries}:{libraries}/pmix2/lib"
    open_mpi = {
        # Open MPI looks below these for what it was configured to have below /usr.
        "OPAL_PREFIX": f"{root}/usr",
        "OPAL_LIBDIR": f"{libraries}/openmpi/lib",
        "OPAL_PKGLIBDIR": f"{libraries}/openmpi/lib/openmpi3",
        "OPAL_DATADIR": f"{root}/usr/share",
        "OPAL_PKGDATADIR": f"{root}/usr/share/openmpi",
        "OPAL_SYSCONFDIR": f"{root}/etc",
        "LD_LIBRARY_PATH": search,
    }
    # Debian's MPICH has a soname of its own; mpi4py's wheel wants that of MPICH.
    mpich = {"LD_LIBRARY_PATH": f"{directory}/mpich/lib:{search}"}
    return [
        one(directory / "openmpi4", "Open MPI v4.1", f"{root}/usr/bin/mpirun.openmpi", open_mpi,
            "libmpi.so.40", libraries / "libmpi.so.40"),
        one(directory / "mpich", "MPICH Version: 4", f"{root}/usr/bin/mpirun.mpich", mpich,
            "libmpi.so.12", libraries / "libmpich.so.12"),
    ]  # fmt: skip


def unpack(root: Path) -> None:
    """Debian's packages, and what they need that is not installed here, below `root`."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise NoPackages("apt-get and dpkg are needed, of Debian or its like")
    needed = _apt("install", "-s", "--no-install-recommends", "--reinstall", *PACKAGES)
    names = sorted({line.split()[1] for line in needed.splitlines() if line.startswith("Inst ")})
    debs = root.parent / "debs"
    shutil.rmtree(debs, ignore_errors=True)
    debs.mkdir(parents=True)
    _apt("download", "-qq", *names, cwd=debs)
    for deb in sorted(debs.glob("*.deb")):
        subprocess.run(["dpkg", "-x", str(deb), str(root)], check=True)


def one(
    directory: Path, library: str, mpirun: str, environ: dict[str, str], soname: str, file: Path
) -> OtherMpi:
    """The directory of one MPI; what is there already is made anew."""
    shutil.rmtree(directory, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    found = OtherMpi(directory.name, library, directory, environ)
    (packages,) = directory.glob("lib/python*/site-packages")
    here = [path for path in site.getsitepackages() if path.startswith(sys.prefix)]
    # Their own .pth files count too: this package may be installed by one.
    (packages / "more.pth").write_text(f"import site; site.addsitedir({here[0]!r})\n")
    (directory / "lib" / soname).symlink_to(file)  # where mpi4py's wheel looks first
    before = "${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}"  # as of any site's own wrapper
    exports = "".join(
        f'export {name}="{before if name == "LD_LIBRARY_PATH" else ""}{value}"\n'
        for name, value in environ.items()
    )
    script = Path(found.mpirun)
    script.write_text(f'#!/bin/sh\n{exports}exec {mpirun} "$@"\n')
    script.chmod(0o755)
    return found


def _apt(*arguments: str, cwd: Path | None = None) -> str:
    done = subprocess.run(
        ["apt-get", *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.startswith("E: ")] or ["no cause"]
        raise NoPackages(f"apt-get {arguments[0]}: {said[0]} (try apt-get update)")
    return done.stdout
