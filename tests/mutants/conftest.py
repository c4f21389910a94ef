"""The copy that mutants are made in, sound between two of them."""

from __future__ import annotations

import pytest
from broken_copy import BrokenCopy
from mutations import detected_by


@pytest.fixture(scope="session")
def copy(sources_copy: BrokenCopy) -> BrokenCopy:
    """The copy, sound, with the native tests that are to notice something."""
    sources_copy.make(
        *sorted({f"test_{p.detected_by.split()[1].split('.')[0]}" for p in detected_by("native")})
    )
    return sources_copy


@pytest.fixture(scope="session")
def installed_copy(copy: BrokenCopy) -> BrokenCopy:
    """The copy as a package."""
    copy.install()
    return copy


@pytest.fixture(scope="session")
def mpi_copy(mpirun_path: str, installed_copy: BrokenCopy) -> BrokenCopy:
    """The package, on a machine where it can be run."""
    return installed_copy
