"""The numbers of a row from its samples, or from another program's figures."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.arrays import Int64s
from tcpx_mpi.records import FLUSH, IN_PLACE, LOADED, Average, Row, SideKey
from tcpx_mpi.stats.blocks import independent_count, iteration_times_ns
from tcpx_mpi.stats.distribution import describe
from tcpx_mpi.stats.interval import UNKNOWN, median_interval
from tcpx_mpi.stats.rates import bus_factor, cpu_s_per_gb, cpu_time_ns, rate, total_if_known
from tcpx_mpi.stats.row_summary import RowSummary
from tcpx_mpi.stats.series import average_over_ranks, elapsed_ns, rank_times_ns
from tcpx_mpi.stats.stop_rule import half_width


def sides_of(summaries: Iterable[RowSummary]) -> list[RowSummary]:
    """The rows, and those in place."""
    return [side for s in summaries for side in (s, s.in_place) if side is not None]


def mean_bus_bandwidth(summaries: Sequence[RowSummary]) -> float:
    """The mean of the bus bandwidths of all rows and sides, as nccl-tests; NaN without rows."""
    # Other programs may have run a row in place only.
    sides = [side for side in sides_of(summaries) if side.in_place is None or not _not_run(side)]
    if not sides:
        return math.nan
    return float(np.mean([side.busbw for side in sides]))


def _not_run(side: RowSummary) -> bool:
    return math.isnan(side.time_ns) and math.isnan(side.busbw)


def summarise(
    row: Row,
    average: int,
    busbw_factor: float,
    time_divisor: int,
    per_iter_skip: int = 0,
    algbw_factor: float = 1.0,
) -> RowSummary:
    """The numbers of one row of the table.

    A rank's time is the sum of its batches over iterations, aggregation and `time_divisor` (2 for a
    ping-pong, whose time is half a round trip). Back to back that is the mean of its iterations.
    Only ranks that receive are timed: a sender's done means "copied to the kernel". An imported row
    has no samples: its figures are those that were told.
    """
    if row.averages:
        return _summarise_averages(row)
    receives = row.receives.astype(bool)
    copies = row.agg * time_divisor
    samples = row.samples["iteration"]
    elapsed = elapsed_ns(samples)

    time_ns_by_rank = np.full(receives.size, math.nan)
    median_ns_by_rank = [UNKNOWN] * receives.size
    half_widths = []
    for rank in np.flatnonzero(receives).tolist():
        times = rank_times_ns(samples[rank], copies, row.spool)
        if times.size:
            time_ns_by_rank[rank] = times.mean()
        if row.ended_by in ("ci", "max-time"):
            half_widths.append(half_width(times))
        counted = times[per_iter_skip:]
        median_ns_by_rank[rank] = median_interval(
            counted, independent=independent_count(counted), spool=row.spool
        )

    iteration_max_ns = functools.partial(iteration_times_ns, row, 3, time_divisor)
    t_max_rank, t_max_ns = -1, math.nan
    if receives.any() and row.iterations > 0:
        # argmax takes NaN for the largest: a rank whose time is unknown is not passed over.
        t_max_rank = int(np.flatnonzero(receives)[np.argmax(time_ns_by_rank[receives])])
        t_max_ns = float(time_ns_by_rank[t_max_rank])
    time_ns = average_over_ranks(time_ns_by_rank[receives], average)
    algbw = 0.0 if row.size_bytes == 0 else rate(row.size_bytes * algbw_factor, time_ns)

    in_place, loaded = (
        summarise(row.sides[side], average, busbw_factor, time_divisor, per_iter_skip, algbw_factor)
        if side in row.sides
        else None
        for side in (SideKey(place=IN_PLACE), SideKey(place=LOADED))
    )
    others = [side for side in (in_place, loaded) if side is not None]
    checked = bool(row.size_bytes > 0 and receives.any() and row.checked[receives].all())
    found = row.wrong[row.wrong > 0]
    payload_received = int(row.payload_bytes_received.sum())
    cpu_ns = cpu_time_ns(row)
    return RowSummary(
        **_facts_of(row, [fault for side in others for fault in side.faults]),
        time_ns_by_rank=time_ns_by_rank,
        time_ns=time_ns,
        algbw=algbw,
        busbw=algbw * bus_factor(row, busbw_factor),
        t_max_rank=t_max_rank,
        t_max_ns=t_max_ns,
        iteration_max_ns=iteration_max_ns,
        per_iteration=describe(iteration_max_ns()[per_iter_skip:], row.spool),
        mmsg_per_s=rate(row.messages_per_copy, time_ns * time_divisor) * 1e3,
        flush_ns=_flush_ns(row),
        checked=checked,
        wrong=int(found.sum()) if checked else None,
        wrong_found=int(found.sum()) + sum(side.wrong_found for side in others),
        payload_received=payload_received,
        payload_received_checked=int(row.payload_bytes_received[row.checked].sum()),
        payload_sent=int(row.payload_bytes_sent.sum()),
        net_sent=total_if_known(row.net_sent),
        net_received=total_if_known(row.net_received),
        tcp_retransmits=total_if_known(row.tcp_retransmits),
        net_bw=_net_bandwidth(row, receives, elapsed),
        measured_ns=int(elapsed.sum()),
        overhead_ns=int(row.prepare_ns.sum() + row.check_ns.sum()),
        cpu_ns=cpu_ns,
        cpu_s_per_gb=cpu_s_per_gb(row),
        late_starts=int(row.late.sum()),
        starts=int(row.late.size),
        median_ns_by_rank=tuple(median_ns_by_rank),
        elapsed_ns_by_rank=elapsed.astype(np.float64),
        proof=tuple(row.proof),
        gpu=tuple(row.gpu),
        chunks=row.chunks,
        half_width=max(half_widths, default=math.nan),
        in_place=in_place,
        loaded=loaded,
    )


def _summarise_averages(row: Row) -> RowSummary:
    """An imported row: what was told of it, and of nothing else a figure."""
    sides = {average.side: _summary_of(row, average) for average in row.averages}
    found = sum(side.wrong_found for side in sides.values())
    return dataclasses.replace(
        sides["out_of_place"], in_place=sides.get("in_place"), wrong_found=found
    )


def _summary_of(row: Row, told: Average) -> RowSummary:
    checked = told.wrong >= 0
    return RowSummary(
        **_facts_of(row),
        time_ns_by_rank=np.full(row.receives.size, math.nan),
        time_ns=told.time_ns,
        algbw=told.algbw,
        busbw=told.busbw,
        t_max_rank=-1,
        t_max_ns=math.nan,
        iteration_max_ns=functools.partial(np.empty, 0),
        per_iteration=describe(np.empty(0)),
        mmsg_per_s=math.nan,
        flush_ns=math.nan,
        checked=checked,
        wrong=told.wrong if checked else None,
        wrong_found=max(told.wrong, 0),
        payload_received=-1,
        payload_received_checked=-1,
        payload_sent=-1,
        net_sent=None,
        net_received=None,
        tcp_retransmits=None,
        net_bw=math.nan,
        measured_ns=-1,
        overhead_ns=-1,
        cpu_ns=math.nan,
        cpu_s_per_gb=math.nan,
        late_starts=-1,
        starts=0,
    )


#: What a summary takes over from its row, whoever measured it.
_FACTS = (
    "index", "cycle", "size_bytes", "count", "type_name", "redop", "root", "agg", "iterations",
    "finished_time", "ended_by", "algo", "rate_per_s",
)  # fmt: skip


def _facts_of(row: Row, more_faults: Sequence[str] = ()) -> dict[str, Any]:
    faults = (*row.faults, *more_faults)
    return {**{name: getattr(row, name) for name in _FACTS}, "faults": faults}


def _net_bandwidth(row: Row, receives: NDArray[np.bool_], elapsed: Int64s) -> float:
    received = total_if_known(row.net_received[receives])
    return rate(received, float(elapsed[receives].sum())) if received is not None else math.nan


def _flush_ns(row: Row) -> float:
    """The flush time, ns, of ranks that flushed in each iteration; NaN without any."""
    if FLUSH not in row.samples or row.iterations == 0:
        return math.nan
    samples = row.samples[FLUSH]
    flushing = [samples[rank] for rank in range(len(samples)) if samples[rank][0] >= 0]
    return float(np.mean(elapsed_ns(flushing))) / row.iterations if flushing else math.nan
