"""What a suite needs of a machine: for each thing whether it is here, and how to get it."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import subprocess
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

#: Where Debian has programs for administrators, which may be missing in a user's PATH.
SBIN = ("/usr/sbin", "/sbin")
#: Where podman looks for its own.
_OF_PODMAN = ("/usr/lib/podman", "/usr/libexec/podman")
_LIMIT_S = 60


@dataclass(frozen=True)
class Need:
    """A thing; `is_here` is asked with the PATH of the suite."""

    what: str
    get: str
    is_here: Callable[[str], bool]


def program(names: str, get: str) -> Need:
    """A program, or one of several between "|"."""

    def is_here(path: str) -> bool:
        return any(_found(name, path) for name in names.split("|"))

    return Need(names.replace("|", " or "), get, is_here)


def programs(names: str, get: str) -> tuple[Need, ...]:
    """Each of these, which one package has."""
    return tuple(program(name, get) for name in names.split())


def library(name: str, get: str) -> Need:
    """A library by the name that a program loads it by."""

    def is_here(_path: str) -> bool:
        try:
            ctypes.CDLL(name)
        except OSError:
            return False
        return True

    return Need(name, get, is_here)


def module(name: str, get: str) -> Need:
    """A module of this Python."""
    return Need(f"Python's {name}", get, lambda _: importlib.util.find_spec(name) is not None)


def part_of_compiler(compiler: str, file: str, get: str) -> Need:
    """A file that a compiler comes with, or without."""

    def is_here(path: str) -> bool:
        said = _output_of([compiler, f"-print-file-name={file}"], path)
        return said is not None and os.path.isabs(said.strip()) and os.path.exists(said.strip())

    return Need(f"{file} of {compiler}", get, is_here)


def answers(what: str, get: str, *command: str) -> Need:
    """Something that a command shows to be here: its exit code is 0."""
    return Need(what, get, lambda path: _output_of(list(command), path) is not None)


def fetched_or(folder: Path, source: Need) -> Need:
    """What was fetched before and is kept in a folder, or where it comes from."""
    return Need(source.what, source.get, lambda path: folder.is_dir() or source.is_here(path))


def writable(what: str, get: str, *paths: str) -> Need:
    """One of these files, which this user may write to."""
    return Need(what, get, lambda _: any(os.access(path, os.W_OK) for path in paths))


def page(url: str, get: str) -> Need:
    """A server, known by one of its pages."""

    def is_here(_path: str) -> bool:
        try:
            with urllib.request.urlopen(url, timeout=_LIMIT_S):
                return True
        except OSError:
            return False

    return Need(url, get, is_here)


ROOT = Need("root", "run it as root", lambda _: os.geteuid() == 0)
MPIRUN = program("mpirun", "make setup brings one where none is in PATH; this Python has none")
COMPILER = program("c++|g++|clang++", "apt-get install g++")
NAMESPACES = answers(
    "namespaces of its own",
    "run it as root, in a container with --privileged",
    "unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "true",
)  # fmt: skip
PACKAGE_INDEX = answers(
    "a package index",
    "pip downloads from it: see `pip config list` and PIP_INDEX_URL",
    "python", "-m", "pip", "install", "--quiet", "--dry-run", "--no-deps",
    "--ignore-installed", "--no-cache-dir", "iniconfig",
)  # fmt: skip


def _found(name: str, path: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([path, *_OF_PODMAN]))


def _output_of(command: list[str], path: str) -> str | None:
    """What a command prints; None where it is not here, or fails."""
    found = _found(command[0], path)
    if found is None:
        return None
    try:
        done = subprocess.run(
            [found, *command[1:]], capture_output=True, text=True, timeout=_LIMIT_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
