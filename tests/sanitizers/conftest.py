"""The sanitizer tests use the copies of the mutants and the jobs of the tests that start mpirun."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / "mutants"), str(TESTS / "mpi")]
