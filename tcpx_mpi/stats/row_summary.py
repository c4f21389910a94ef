"""The numbers of a row, whoever measured it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tcpx_mpi.arrays import Float64s
from tcpx_mpi.records import GpuRow, ObservedPlacement, SideKey
from tcpx_mpi.stats.distribution import Distribution
from tcpx_mpi.stats.interval import Interval
from tcpx_mpi.stats.load import LoadFigures
from tcpx_mpi.stats.one_way import OneWay
from tcpx_mpi.stats.open_loop import OpenLoop
from tcpx_mpi.stats.ratios import Ratio


@dataclass(frozen=True, eq=False)
class RowSummary:
    """A row of the table as numbers, computed from its samples alone."""

    index: int
    cycle: int
    size_bytes: int
    count: int
    type_name: str
    redop: str
    root: int
    agg: int
    iterations: int
    #: Mean time of one copy of the pattern by rank; NaN for a rank that receives nothing.
    time_ns_by_rank: Float64s
    #: The row's time: one rank's, or an average over the ranks that receive, as `-a` asks.
    time_ns: float
    algbw: float
    busbw: float
    #: The slowest receiving rank and its mean time; -1 and NaN if nobody receives.
    t_max_rank: int
    t_max_ns: float
    #: Per iteration, the maximum over the ranks that receive: every one, made from the samples
    #: when it is asked for, and their spread without the first `per_iter_skip`.
    iteration_max_ns: Callable[[], Float64s]
    per_iteration: Distribution
    #: Millions of messages a rank receives a second.
    mmsg_per_s: float
    #: Mean over iterations and receiving ranks of what a flush took behind the last "done"; NaN
    #: where nothing was flushed.
    flush_ns: float
    #: True if every receiving rank checked every byte, and there was a byte to check.
    checked: bool
    #: Wrong bytes of all ranks, of a program's row elements, or None if the row is not
    #: `checked`; of an imported row what the other program calls wrong.
    wrong: int | None
    #: Wrong bytes that were found, on both sides, even where another rank did not check.
    wrong_found: int
    payload_received: int
    payload_received_checked: int
    payload_sent: int
    #: Bytes by TCP_INFO over all ranks; None unless every rank could read it.
    net_sent: int | None
    net_received: int | None
    tcp_retransmits: int | None
    #: Bytes that crossed the sockets of a receiving rank in a nanosecond of its batches; NaN
    #: unless every rank could read them.
    net_bw: float
    #: Time inside batches and time spent on poison, generation and checks, over all ranks. Of an
    #: imported row these two, the payload and the late starts are -1, unknown.
    measured_ns: int
    overhead_ns: int
    cpu_ns: float
    cpu_s_per_gb: float
    #: Agreed starts that a rank missed, of all ranks' starts.
    late_starts: int
    starts: int
    finished_time: str
    faults: tuple[str, ...]
    #: What ended it, and of --ci the widest rank's half interval over its median (else NaN).
    ended_by: str = "iterations"
    half_width: float = math.nan
    #: The median gap between iterations that came in bursts, where that makes the percentiles of
    #: `per_iteration` unknown; else NaN.
    burst_gap_ns: float = math.nan
    #: The median of its iterations by rank, with its interval; NaN for one that receives nothing.
    median_ns_by_rank: Sequence[Interval] = ()
    #: Time in batches by rank.
    elapsed_ns_by_rank: Float64s = field(default_factory=lambda: np.empty(0))
    #: Chunks an iteration on the rank that has most; 0 where unknown.
    chunks: int = 0
    #: What was seen of each rank's threads and NIC; empty if nobody looked.
    proof: Sequence[ObservedPlacement] = ()
    #: Each rank's GPU; empty if none was used.
    gpu: Sequence[GpuRow] = ()
    #: The ratio to every side of a baseline.
    ratios: Mapping[SideKey, Ratio] = field(default_factory=dict)
    #: The algorithm of a program of nccl-tests; "" for other patterns.
    algo: str = ""
    #: The row in place, where the pattern or an imported program has that.
    in_place: RowSummary | None = None
    #: The row under load, where the pattern has one, and what there is to say of both.
    loaded: RowSummary | None = None
    load: LoadFigures | None = None
    #: With --one-way: there and back, each by itself.
    one_way: OneWay | None = None
    #: With --rate: iterations that are to begin in a second, 0 without; what became of them.
    rate_per_s: float = 0.0
    open_loop: OpenLoop | None = None

    @property
    def prepare_and_check_s(self) -> float:
        """Seconds of `overhead_ns`; NaN where they are unknown."""
        return self.overhead_ns / 1e9 if self.overhead_ns >= 0 else math.nan
