"""The programs of the contract, one a language, and the commands that a test gives them.

A driver answers each line with one: `ok ...`, or `usage`, `timeout`, `fatal` and the number of the
status. Those in C and C++ are compiled from the installed files alone. That of NIXL is a stand-in
for its agent: it loads the installed backend, and answers `nixl` and NIXL's own status.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest
from build_tools import find_tool

import tcpx_mpi.nixl
from tcpx_mpi.plugin.find import bundled_dir

FOLDER = Path(__file__).parent
LANGUAGES = ("c++", "c", "python")
SOURCES = {
    "c++": "contract_driver.cc",
    "c": "contract_driver.c",
    "nixl": "contract_driver_nixl.cc",
}
#: Under a sanitizer (tests/sanitizers) programs are built with it, and the compiler runs without.
SANITIZER = os.environ.get("SANITIZER")

#: Numbers of tcpx_p2p.h.
INVALID_ARGUMENT, UNKNOWN_MEMORY, FOREIGN_MEMORY, OUT_OF_BOUNDS, MEMORY_IN_USE = range(1, 6)
UNKNOWN_REMOTE, NOT_CONNECTED, ALREADY_DONE, OUT_OF_ORDER, BAD_INFO = range(6, 11)
OTHER_VERSION, OTHER_PLUGIN, OTHER_SETTINGS, RELEASED, CLOSED = range(11, 16)
TIMED_OUT = 32
PLUGIN_MISSING, SETUP_FAILED, REMOTE_LOST, PLUGIN_FAILED, WRONG_BYTES = range(48, 53)
REMOTE_FAILED = 54

#: What NIXL, which has 12 statuses for everything, calls these (native/library/nixl/abi.h).
NIXL_INVALID, NIXL_BACKEND, NIXL_NOT_FOUND, NIXL_MISMATCH = -2, -3, -4, -5
NIXL_STATUS = {
    FOREIGN_MEMORY: NIXL_INVALID,
    OUT_OF_BOUNDS: NIXL_INVALID,
    UNKNOWN_REMOTE: NIXL_NOT_FOUND,
    BAD_INFO: NIXL_MISMATCH,
    OTHER_SETTINGS: NIXL_MISMATCH,
    PLUGIN_MISSING: NIXL_BACKEND,
}


@dataclass
class Driver:
    """One program that waits for commands."""

    language: str
    process: subprocess.Popen[str]

    @property
    def is_nixl(self) -> bool:
        return self.language == "nixl"

    @property
    def input(self) -> IO[str]:
        assert self.process.stdin is not None
        return self.process.stdin

    def tell(self, command: str) -> None:
        self.input.write(command + "\n")
        self.input.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def ask(self, command: str) -> str:
        self.tell(command)
        return self.answer()

    def does(self, *commands: str) -> str:
        """All of them succeed; what the last one says."""
        said = "ok"
        for command in commands:
            said = self.ask(command)
            assert said.startswith("ok"), (command[:200], said, self.ask("text"))
        return said.removeprefix("ok").strip()

    def refuses(self, command: str, status: int) -> str:
        """It fails with this status; what it says of it."""
        kind = "usage" if status < 32 else "timeout" if status < 48 else "fatal"
        answer = f"{kind} {status}"
        if self.is_nixl:
            answer = f"nixl {NIXL_STATUS[status]}"
        assert self.ask(command) == answer, (command[:200], self.ask("text"))
        text = self.does("text")
        assert text
        return text


#: Starts the driver of a language, with these variables.
Start = Callable[..., Driver]


def package_flags(*options: str) -> list[str]:
    """What pkg-config says of the installed library; a skip without it."""
    program = find_tool("pkg-config")
    if program is None:
        pytest.skip("needs compiler: pkg-config not found")
    path = Path(bundled_dir()) / "lib" / "pkgconfig"
    return subprocess.run(
        [program, *options, "tcpx_p2p"],
        env={**os.environ, "PKG_CONFIG_PATH": str(path)},
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout.split()  # fmt: skip


def compile_program(source: Path, program: Path, flags: Sequence[str]) -> Path:
    """A program of one source; a skip without a compiler."""
    names, standard = (("cc", "gcc", "clang"), "-std=c99")
    if source.suffix == ".cc":
        names, standard = (("c++", "g++", "clang++"), "-std=c++17")
    compiler = next(filter(None, map(find_tool, names)), None)
    if compiler is None:
        pytest.skip(f"needs compiler: {names[0]} not found")
    strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    command = [compiler, standard, *strict, str(source), "-o", str(program), *flags]
    if SANITIZER:
        command += [f"-fsanitize={SANITIZER}", "-g"]
    environ = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    return program


@contextmanager
def started(language: str, command: Sequence[str], **variables: str) -> Iterator[Driver]:
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "NCCL_SOCKET_IFNAME": "lo", **variables},
    )
    driver = Driver(language, process)
    try:
        yield driver
        driver.input.close()
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def nixl_flags(folder: Path) -> list[str]:
    """What the driver of NIXL needs to find the installed backend, and what that looks for: a
    library of NIXL's name, made in `folder`."""
    native, tests = FOLDER.parents[2] / "native", FOLDER.parents[1] / "native"
    stand_in = tests / "nixl" / "libnixl_stand_in.cc"
    places = {
        "NIXL_STAND_IN": compile_program(
            stand_in, folder / "libnixl-stand_in.so", ["-shared", "-fPIC"]
        ),
        "NIXL_PLUGIN": Path(tcpx_mpi.nixl.plugin_dir()) / "libplugin_TCPX.so",
        "SOFTTCPX_PLUGIN": Path(bundled_dir()) / "libnccl-net-softtcpx.so",
    }
    return [
        *("-std=c++20", f"-I{native}", f"-I{tests}"),
        *(f'-D{name}="{path}"' for name, path in places.items()),
        "-ldl",
    ]


def python_driver() -> list[str]:
    return [sys.executable, str(FOLDER / "contract_driver.py")]
