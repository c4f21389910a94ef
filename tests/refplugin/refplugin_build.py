"""Compiles a plugin of the tests by the compiler alone: it needs nothing of the native build."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).parent / "refplugin.cc"
LIMIT_S = 120
_BUILT = REPOSITORY / "build" / "plugins"
_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread",
          "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers")  # fmt: skip


def build(folder: Path, source: Path = SOURCE) -> Path:
    """The library of one source, built in `folder`; skips where there is no compiler."""
    names = filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++"))
    compiler = next(filter(None, map(shutil.which, names)), None)
    if compiler is None:
        pytest.skip("needs compiler: a C++ compiler not found")
    library = folder / f"libnccl-net-{source.stem}.so"
    command = [compiler, *_FLAGS, f"-I{REPOSITORY / 'native'}", str(source)]
    # Of the tests of a run several want the same one: the first of them compiles it.
    _BUILT.mkdir(parents=True, exist_ok=True)
    kept = _BUILT / f"{source.stem}-{_hash(command, source)}.so"
    with open(_BUILT / f"{source.stem}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not kept.exists():
            _compile([*command, "-o", str(library)])
            for old in _BUILT.glob(f"{source.stem}-*.so"):
                old.unlink()
            shutil.copy2(library, kept.with_suffix(".new"))
            kept.with_suffix(".new").rename(kept)
        shutil.copy2(kept, library)
    return library


def crash_by_exception(library: str | Path) -> str:
    """What is said (a pattern) of an exception that the library lets out where nobody catches it.

    Where the compiler has libstdc++ as an archive alone, it is part of the library: that one's own
    terminate is called then, which calls abort."""
    of_all = b"libstdc++.so" in Path(library).read_bytes()
    return r"crashed by an exception of C\+\+ \(int\)" if of_all else "crashed by SIGABRT"


def _compile(command: list[str]) -> None:
    made = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    if made.returncode != 0:
        pytest.fail(f"{' '.join(command)}\n{made.stderr[-6000:]}", pytrace=False)


def _hash(command: list[str], source: Path) -> str:
    """Of all that a library comes of: the command, its source, and what that may include."""
    found = hashlib.sha256(" ".join(command).encode())
    beside = (path for path in source.parent.iterdir() if path.suffix in (".cc", ".h"))
    headers = [*(REPOSITORY / "native").rglob("*.h"), *beside]
    for path in sorted(headers):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]
