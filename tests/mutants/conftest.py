"""The copy that mutants are made in; built once, sound between two of them."""

from __future__ import annotations

import pytest
from broken_copy import REPOSITORY, BrokenCopy
from build_tools import find_tool
from mutations import detected_by


@pytest.fixture(scope="session")
def copy() -> BrokenCopy:
    """The copy, sound and built."""
    cmake = find_tool("cmake")
    if cmake is None or not any(map(find_tool, ("c++", "g++", "clang++"))):
        pytest.skip("needs compiler: cmake or a C++ compiler is not found")
    copy = BrokenCopy(REPOSITORY / "build" / "mutants", cmake)
    copy.refresh()
    copy.configure()
    copy.make(
        *sorted({f"test_{p.detected_by.split()[1].split('.')[0]}" for p in detected_by("native")})
    )
    copy.install()
    return copy


@pytest.fixture(scope="session")
def mpi_copy(mpirun_path: str, copy: BrokenCopy) -> BrokenCopy:
    """The copy, on a machine where it can be run."""
    return copy
