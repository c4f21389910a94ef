"""A copy of the sources that may be broken: patched, rebuilt, run, and put right again."""

from __future__ import annotations

import compileall
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode

from build_tools import find_tool, tools_path

REPOSITORY = Path(__file__).resolve().parents[2]
#: A check of a mutant that hangs is ended after this; what is found takes seconds.
LIMIT_S = 60
#: A build that hangs is ended after this; one takes a minute or two of an idle machine.
BUILD_LIMIT_S = 2400

#: Keeps an editable install of the real sources from standing before the copy.
SITECUSTOMIZE = """\
import sys
sys.meta_path[:] = [f for f in sys.meta_path if "_editable_" not in type(f).__module__]
"""


@dataclass(frozen=True)
class Patch:
    """A change of one file, why it is made, and what detects it."""

    name: str
    why: str
    detected_by: str
    file: str
    hunks: tuple[tuple[str, str], ...]  # the lines as they are, the lines as they shall be


def patched(text: str, patch: Patch) -> str:
    """Text with every hunk applied, wherever its lines stand. ValueError: not there just once."""
    for old, new in patch.hunks:
        if text.count(old) != 1:
            raise ValueError(f"{patch.name} fits {patch.file} {text.count(old)} times:\n{old}")
        text = text.replace(old, new)
    return text


@dataclass
class BrokenCopy:
    """The sources in `folder`, laid out as in the repository, and what is built of them.

    The folder stays from one session to the next: only what differs is written and rebuilt.
    """

    folder: Path
    cmake: str
    options: tuple[str, ...] = ()  # of cmake
    jobs: int = max(len(os.sched_getaffinity(0)), 2)  # that a build has at once

    @property
    def build(self) -> Path:
        return self.folder / "build"

    @property
    def package(self) -> Path:
        return self.folder / "package"

    def refresh(self) -> None:
        """Make the sources equal to the repository's."""
        for part, patterns in (
            ("native", ("*.cc", "*.h", "*.cu", "*.in", "*.map", "*.cmake", "CMakeLists.txt")),
            ("tests/native", ("*.cc", "*.h", "CMakeLists.txt")),
            ("tests/fakecuda", ("*.cc", "*.h", "CMakeLists.txt")),
            ("tests/refplugin", ("*.cc", "*.h")),
            ("tcpx_mpi", ("*.py", "*.toml")),
        ):
            files = {p for pattern in patterns for p in (REPOSITORY / part).rglob(pattern)}
            wanted = {path.relative_to(REPOSITORY) for path in files}
            there = {path.relative_to(self.folder) for path in (self.folder / part).rglob("*.*")}
            for path in there - wanted:
                if path.suffix in {".cc", ".h", ".cu", ".py"}:
                    (self.folder / path).unlink()
            for path in wanted:
                self._write(path, (REPOSITORY / path).read_text())
        # The library of sessions has its version from there.
        self._write(Path("pyproject.toml"), (REPOSITORY / "pyproject.toml").read_text())
        self.package.mkdir(exist_ok=True)
        (self.package / "sitecustomize.py").write_text(SITECUSTOMIZE)
        link = self.package / "tcpx_mpi"
        if not link.is_symlink():
            link.symlink_to(self.folder / "tcpx_mpi")
        # Whatever its time, a mutant's source has another hash, and is compiled anew.
        compileall.compile_dir(
            self.folder / "tcpx_mpi", quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH
        )

    def apply(self, patch: Patch) -> None:
        self._write(Path(patch.file), patched((REPOSITORY / patch.file).read_text(), patch))

    def revert(self, patch: Patch) -> None:
        self._write(Path(patch.file), (REPOSITORY / patch.file).read_text())

    def _write(self, path: Path, text: str) -> None:
        target = self.folder / path
        if target.exists() and target.read_text() == text:
            return  # its time of change decides what is rebuilt
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)

    def configure(self) -> None:
        options = [
            "-DSKBUILD=ON",
            "-DTCPX_MPI_NATIVE_TESTS=ON",
            "-DCMAKE_BUILD_TYPE=None",
            "-DCMAKE_CXX_FLAGS=-O1",
            f"-DPython_EXECUTABLE={sys.executable}",
            *self.options,
        ]
        ninja = find_tool("ninja")
        if ninja is not None:
            options += ["-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={ninja}"]
        self._run([self.cmake, "-S", self.folder / "native", "-B", self.build, *options])

    def make(self, *targets: str) -> None:
        """Build targets; RuntimeError where a mutant does not even compile."""
        self._run(
            [self.cmake, "--build", self.build, "--parallel", str(self.jobs), "--target", *targets]
        )

    def install(self) -> None:
        """The libraries into the package."""
        self.make("_native", "softtcpx", "nullnet")
        for library in self.build.glob("*.so"):
            shutil.copy2(library, self.package / "tcpx_mpi" / library.name)

    def native_test(self, name: str) -> int:
        """The exit code of one native test, "program.test"."""
        program, test = name.split(".")
        self.make(f"test_{program}")
        command = [str(self.build / "native_tests" / f"test_{program}"), test]
        try:
            return subprocess.run(command, capture_output=True, timeout=LIMIT_S).returncode
        except subprocess.TimeoutExpired:
            return -1

    def python(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Python with the copy as its `tcpx_mpi`, and `more` in its environment."""
        environ = {
            **os.environ,
            "PYTHONPATH": str(self.package),
            "PYTHONDONTWRITEBYTECODE": "1",  # what is kept is of the sound sources
            "NCCL_SOCKET_IFNAME": "lo",
            "SOFTTCPX_POISON": "1",  # what is unpacked too late is seen to be wrong
            **more,
        }
        return subprocess.run(
            [sys.executable, *arguments],
            env=environ,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )

    def verdict(self, arguments: list[str]) -> str:
        """How a run of the benchmark ended: "exit 5, wrong 17"; its #wrong column, or none."""
        # As in tests/mpi/jobs.py: to fill slots beyond a large cache takes longer than all else.
        slots = ["--check-memory", "32M"]
        result = self.python("-m", "tcpx_mpi", "run", *arguments, *slots, "--hdf5", "none")
        rows = re.findall(
            r"^ +\d+ +\d+ +uint8 +none +-1 +\S+ +\S+ +\S+ +(\S+)", result.stdout, re.M
        )
        return f"exit {result.returncode}, wrong {' '.join(rows) or 'none'}"

    def _run(self, command: list[str | Path]) -> None:
        environ = {**os.environ, "PATH": tools_path()}
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=BUILD_LIMIT_S, env=environ
        )
        if result.returncode != 0:
            raise RuntimeError((result.stdout + result.stderr)[-4000:])
