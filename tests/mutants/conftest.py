"""The copies that mutants are made in, sound between two of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from broken_copy import REPOSITORY, BrokenCopy
from build_native import required_tools
from mutations import detected_by

from tcpx_mpi import _native


@pytest.fixture(scope="session")
def copy() -> BrokenCopy:
    """The copy, sound, with the native tests that are to notice something."""
    copy = BrokenCopy(REPOSITORY / "build" / "copy", required_tools())
    copy.refresh()
    copy.configure()
    copy.make(
        *sorted({f"test_{p.detected_by.split()[1].split('.')[0]}" for p in detected_by("native")})
    )
    return copy


@pytest.fixture(scope="session")
def installed_copy(copy: BrokenCopy) -> BrokenCopy:
    """The copy as a package."""
    copy.install()
    return copy


@pytest.fixture(scope="session")
def mpi_copy(mpirun_path: str, installed_copy: BrokenCopy) -> BrokenCopy:
    """The package, on a machine where it can be run."""
    return installed_copy


@pytest.fixture(scope="session")
def python_copy(mpirun_path: str) -> BrokenCopy:
    """A package with the libraries that are installed: nothing is compiled."""
    copy = BrokenCopy(REPOSITORY / "build" / "python-copy", "no cmake")
    copy.refresh()
    for library in Path(_native.__file__).parent.glob("*.so"):
        shutil.copy2(library, copy.package / "tcpx_mpi" / library.name)
    return copy
