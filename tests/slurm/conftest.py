"""The cluster of these tests: one for all of them, with a folder for each."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import jobs
import pytest
import suites
from private_slurm import Slurm, slurm


@pytest.fixture(scope="session")
def user_environ(mpirun_path: str) -> dict[str, str]:
    """Of who submits; a skip where there is no Slurm."""
    if lacking := suites.missing(suites.SUITES["slurm"]):
        pytest.skip(f"needs slurm: {', '.join(need.what for need in lacking)} not found")
    environ = {
        name: value
        for name, value in jobs.clean_environment({}).items()
        # A job has nobody who says so, and Slurm gives it as many slots as it has ranks.
        if not name.startswith(("PRTE_MCA_", "SLURM_", "SBATCH_"))
    }
    environ["PATH"] = os.pathsep.join([str(Path(mpirun_path).parent), environ["PATH"]])
    return environ


@pytest.fixture(scope="session")
def cluster(
    user_environ: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Slurm]:
    with slurm(tmp_path_factory.mktemp("slurm"), user_environ) as running:
        yield running


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """What a user submits from: jobs/ and .venv are there, and sbatch asks for two ranks a node."""
    (tmp_path / "jobs").symlink_to(Path(__file__).parents[2] / "jobs")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    wrapper = tmp_path / "bin" / "sbatch"
    wrapper.parent.mkdir()
    wrapper.write_text(
        f'#!/bin/sh\nPATH=${{PATH#{wrapper.parent}:}} exec sbatch --ntasks-per-node=2 "$@"\n'
    )
    wrapper.chmod(0o755)
    return tmp_path
