"""The notebooks read runs of tests/mpi's jobs and the invented ones of tests/unit."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / "mpi"), str(TESTS / "unit")]
