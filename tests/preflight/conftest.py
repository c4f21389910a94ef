"""A preflight is started by the jobs of tests/mpi, on the nodes of tests/cluster."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in ("mpi", "cluster"):  # for jobs; for nodes and launcher
    sys.path.append(str(Path(__file__).parents[1] / folder))
