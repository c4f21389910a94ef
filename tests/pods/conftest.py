"""Tests in pods start their commands as the jobs of tests/mpi do."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "mpi"))  # for jobs
