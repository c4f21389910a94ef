"""The options that say which rows are measured, and how the table shows them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class PlanOptions:
    """Declared here and nowhere else: `Settings` has them among all others, and the header of a
    run keeps them (`tcpx_mpi.records.Plan`). The defaults are those of files that lack one.
    """

    sizes: tuple[int, ...]
    iters: int = 20
    warmup_iters: int = 1
    agg_iters: int = 1
    #: 0: until stopped.
    run_cycles: int = 1
    average: int = 1
    check: int = 1
    blocking: int = 0
    report_timestamps: bool = False
    report_cputime: bool = False
    per_iter_timing: bool = False
    per_iter_skip: int = 0
    report_gbits: bool = False
    channels: int = 2
    chunk_bytes: int = 524288
    window_send: int = 12
    window_recv: int = 16

    def plan_options(self) -> dict[str, Any]:
        """These options alone, by name."""
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(PlanOptions)}

    def of_times(self) -> dict[str, int]:
        """What makes times of rows comparable if it is alike, by how a refusal calls it."""
        return {
            "messages an iteration (-m)": self.agg_iters,
            "time over the ranks (-a)": self.average,
        }
