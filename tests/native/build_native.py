"""Configures and builds the native sources outside of pip: for the native tests and the mutants."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from build_tools import find_tool

REPOSITORY = Path(__file__).resolve().parents[2]
BUILD_LIMIT_S = 600


def required_tools() -> str:
    """cmake's path; without it or a compiler, a skip."""
    cmake = find_tool("cmake")
    compiler = next(filter(None, map(find_tool, ("c++", "g++", "clang++"))), None)
    if cmake is not None and compiler is not None:
        return cmake
    missing = "cmake" if cmake is None else "a C++ compiler"
    pytest.skip(f"needs compiler: {missing} not found")


def configure(cmake: str, source: Path, build: Path, *options: str) -> None:
    generator = ["-G", "Ninja"] if find_tool("ninja") else []
    ninja = [f"-DCMAKE_MAKE_PROGRAM={find_tool('ninja')}"] if generator else []
    build.mkdir(parents=True, exist_ok=True)
    run([cmake, "-S", str(source), "-B", str(build), *generator, *ninja, *options])


def make(cmake: str, build: Path, *targets: str) -> None:
    run([cmake, "--build", str(build), "--parallel", "2", "--target", *targets])


def run(command: list[str]) -> None:
    """Runs a build command; what it said is shown when it fails."""
    result = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_LIMIT_S)
    if result.returncode != 0:
        output = (result.stdout + result.stderr)[-6000:]
        pytest.fail(f"{' '.join(command)}: exit {result.returncode}\n{output}", pytrace=False)
