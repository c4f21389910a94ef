"""The workload of a run, worked out once: its rows, what runs in each, and why it cannot be.

`workload_of(settings, ranks)` is asked by admission, by every rank, and by a simulation; planner,
measurement and baselines take what it gives.
"""

from __future__ import annotations

from tcpx_mpi.workload.workload import Variant, Workload, workload_of

__all__ = ["Variant", "Workload", "workload_of"]
