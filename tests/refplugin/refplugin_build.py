"""Compiles a plugin of the tests by the compiler alone: it needs nothing of the native build."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE = Path(__file__).parent / "refplugin.cc"
LIMIT_S = 120
_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread",
          "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers")  # fmt: skip


def build(folder: Path, source: Path = SOURCE) -> Path:
    """The library of one source, built in `folder`; skips where there is no compiler."""
    names = filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++"))
    compiler = next(filter(None, map(shutil.which, names)), None)
    if compiler is None:
        pytest.skip("needs compiler: a C++ compiler not found")
    library = folder / f"libnccl-net-{source.stem}.so"
    command = [compiler, *_FLAGS, f"-I{REPOSITORY / 'native'}", str(source), "-o", str(library)]
    made = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
    if made.returncode != 0:
        pytest.fail(f"{' '.join(command)}\n{made.stderr[-6000:]}", pytrace=False)
    return library
