"""A copy of the sources, built with a sanitizer, and what the sanitizer says of what runs in it.

A plugin is loaded by a Python that knows no sanitizer. So the runtime is preloaded, and what is
not ours is told apart afterwards: a suppression matches any frame of a stack, and one for Python
or MPI would hide every leak of ours, as all our calls come from there.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from broken_copy import REPOSITORY, BrokenCopy
from build_tools import find_tool

RUNTIMES = {"address": "libasan.so", "thread": "libtsan.so"}
OPTIONS = {
    # An error ends the process; a leak, of which Python has many, does not change its exit code.
    "address": "abort_on_error=1:exitcode=0",
    "thread": "atexit_sleep_ms=100",
}
_ADDR_NO_RANDOMIZE = 0x0040000


def sanitized_copy(sanitizer: str) -> SanitizedCopy:
    """The copy under build/, not built yet; a skip without cmake, g++ or the runtime."""
    cmake, compiler = find_tool("cmake"), find_tool("g++")
    if cmake is None or compiler is None:
        pytest.skip("needs compiler: cmake and g++, whose runtimes can be preloaded")
    return SanitizedCopy(cmake, compiler, sanitizer)


class SanitizedCopy(BrokenCopy):
    """Sound sources in build/address or build/thread, until a defect is planted."""

    def __init__(self, cmake: str, compiler: str, sanitizer: str) -> None:
        options = (f"-DCMAKE_CXX_COMPILER={compiler}", f"-DTCPX_MPI_SANITIZE={sanitizer}")
        super().__init__(REPOSITORY / "build" / sanitizer, cmake, options)
        self.sanitizer = sanitizer
        # Python alone has no C++ library; a runtime that did not find __cxa_throw ends at a throw.
        needed = (RUNTIMES[sanitizer], "libstdc++.so.6")
        self._preloaded = ":".join(_library(compiler, name) for name in needed)

    @property
    def reports(self) -> Path:
        return self.folder / "reports"

    def environment(self, more: str = "") -> dict[str, str]:
        """What a Python needs to load the copy; `more` options of the sanitizer, "a=1:b=2"."""
        options = f"{OPTIONS[self.sanitizer]}:log_path={self.reports / 'report'}:{more}"
        return {
            "LD_PRELOAD": self._preloaded,
            "PYTHONPATH": str(self.package),
            # Its own allocator would hide from the sanitizer what points to our memory.
            "PYTHONMALLOC": "malloc",
            "ASAN_OPTIONS": options,
            "TSAN_OPTIONS": options,
            "UBSAN_OPTIONS": "print_stacktrace=1",  # writes to stderr, and ends the process
        }

    def install_sessions(self) -> None:
        """The library of sessions, what finds it, and NIXL's backend, into the package."""
        self.make("library")
        plugins = self.package / "tcpx_mpi" / "nixl_plugins"
        plugins.mkdir(exist_ok=True)
        shutil.copy2(self.build / "library" / "nixl" / "libplugin_TCPX.so", plugins)
        install = [self.cmake, "--install", str(self.build), "--component", "p2p"]
        subprocess.run([*install, "--prefix", str(self.package)], check=True, capture_output=True)

    def forget_reports(self) -> None:
        self.reports.mkdir(exist_ok=True)
        for report in self.reports.iterdir():
            report.unlink()

    def defects(self) -> list[str]:
        """The reports since the last forget_reports, but for leaks of others."""
        texts = [path.read_text(errors="replace") for path in sorted(self.reports.iterdir())]
        return [found for text in texts for found in defects_in(text, self.folder)]


def defects_in(text: str, ours: Path) -> list[str]:
    """What a report finds: its leaks with a frame of code within `ours`, or all of it."""
    if "LeakSanitizer: detected memory leaks" not in text:
        return [text]
    leaks = [part for part in text.split("\n\n") if " leak of " in part]
    return [leak for leak in leaks if re.search(rf"#\d+ .*{re.escape(str(ours))}/", leak)]


def without_random_addresses() -> None:
    """Lets this process and its children have the address layout that every libtsan knows."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.personality(_ADDR_NO_RANDOMIZE) < 0:
        raise OSError(ctypes.get_errno(), "personality(ADDR_NO_RANDOMIZE) is refused here")


def _library(compiler: str, name: str) -> str:
    command = [compiler, f"-print-file-name={name}"]
    path = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not os.path.isabs(path):
        pytest.skip(f"needs sanitizer: {compiler} comes without {name}")
    return os.path.realpath(path)
