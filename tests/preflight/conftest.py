"""A preflight is started by the jobs of tests/mpi, on the nodes of tests/cluster, with its GPUs."""

from __future__ import annotations

import sys
from pathlib import Path

for folder in ("mpi", "cluster", "gpu"):  # for jobs; for nodes and launcher; for gpus
    sys.path.append(str(Path(__file__).parents[1] / folder))
