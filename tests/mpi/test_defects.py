"""A defect of ours on one rank ends all ranks, and is shown."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import jobs
import pytest

from tcpx_mpi.launch import mpirun as launch

pytestmark = pytest.mark.multirank

PROGRAM = """
import os
from tcpx_mpi import _native, world as mpi
world = mpi.start(_native.stop_signal, os.environ)
if world.rank == 1:
    raise KeyError("unforeseen")
world.barrier("the other rank", 3600.0)
"""


def test_an_exception_that_nobody_expected_ends_the_ranks_that_wait(place: Path) -> None:
    mpirun = launch.find_mpirun(os.environ)
    result = jobs.run([mpirun, "-n", "2", sys.executable, "-c", PROGRAM], place)
    assert result.code == 1, result.text
    assert "KeyError: 'unforeseen'" in result.err
