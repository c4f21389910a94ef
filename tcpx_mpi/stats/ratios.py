"""A row beside its baselines: the ratio of two transports that took turns in the same frame. Pure.

The unit is the pair of neighbouring blocks, one of each side: what drifts with time is the same for
both. The ratio of a row is the median of its pairs' ratios, the interval a percentile bootstrap
over the pairs (Efron & Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tcpx_mpi.arrays import Float64s
from tcpx_mpi.records import BaselineInfo, Row, RunHeader, SideKey
from tcpx_mpi.stats.blocks import batch_means
from tcpx_mpi.stats.rates import bus_factor, cpu_s_per_gb, rate
from tcpx_mpi.stats.series import (
    average_over_ranks,
    rank_times_ns,
    samples_received,
    times_over_ranks_ns,
)

CONFIDENCE = 0.95
#: A baseline's floor (`BaselineInfo.floor_gbps`) is one of messages this large.
FLOOR_FROM_BYTES = 64 << 20
_RESAMPLES = 9999
#: Values, so that many blocks take little memory; the interval is the same.
_RESAMPLED_AT_A_TIME = 1 << 18
#: Fixed, so that the same file gives the same interval.
_SEED = 20250301


@dataclass(frozen=True)
class Ratio:
    """This row against one baseline. Above 1 the plugin is faster."""

    baseline: str
    #: "bus_bw" in GB/s, or "time" in us where there is no bandwidth to speak of (a ping-pong).
    metric: str
    ratio: float
    ci_low: float
    ci_high: float
    #: Pairs of neighbouring blocks.
    blocks: int
    #: Medians over the blocks, in the unit of the metric.
    ours: float
    theirs: float
    #: Wrong bytes of the baseline; None if it was not checked.
    wrong: int | None
    #: CPU time of everything but the baseline during its blocks, over the time of the blocks.
    idle_share: float
    #: Bytes that the baseline's sockets carried over its payload; NaN if they cannot be read.
    net_share: float
    #: CPU seconds of the baseline for a gigabyte received, NaN if unknown.
    cpu_s_per_gb: float = math.nan
    #: Why the baseline was not itself, so that there is no ratio; "" if nothing says so.
    void: str = ""


def other_network(header: RunHeader, baseline: BaselineInfo) -> str:
    """That a baseline went between nodes by other interfaces than the plugin; "" if it did not,
    or where that is not known. Within a node it is the kernel's loopback, whatever the address.
    """
    ours = {info.nic for info in header.ranks}
    theirs = set(filter(None, baseline.interfaces.split(",")))
    if len({info.node for info in header.ranks}) < 2 or not theirs - ours:
        return ""
    return f"{baseline.name} went over {baseline.interfaces}, the plugin over {_listed(ours)}"


def _listed(names: set[str]) -> str:
    return ",".join(sorted(names))


def block_times_ns(row: Row, average: int, time_divisor: int) -> Float64s:
    """The time of one copy of the pattern in each block: float64[blocks].

    A rank's time is that of its block over its iterations; over the receiving ranks `average`
    decides as for a row (`-a`).
    """
    received = samples_received(row)
    by_rank = np.empty((len(received), row.batches.size))
    for means, samples in zip(by_rank, received, strict=True):
        means[:] = batch_means(rank_times_ns(samples, 1, row.spool), row.batches)
    by_rank /= row.agg * time_divisor
    return np.array([average_over_ranks(times, average) for times in by_rank.T])


def bootstrap_interval(values: Float64s, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The percentile bootstrap interval of the median; NaN for fewer than two values."""
    if values.size < 2 or bool(np.isnan(values).any()):
        return math.nan, math.nan
    random = np.random.default_rng(_SEED)
    at_a_time = max(_RESAMPLED_AT_A_TIME // values.size, 1)
    medians = np.empty(_RESAMPLES)
    for first in range(0, _RESAMPLES, at_a_time):
        part = medians[first : first + at_a_time]
        chosen = random.integers(0, values.size, size=(part.size, values.size))
        np.median(values[chosen], axis=1, out=part)
    tail = 100 * (1 - confidence) / 2
    low, high = np.percentile(medians, [tail, 100 - tail])
    return float(low), float(high)


def ratio_to(
    row: Row, baseline: str, theirs: Row, average: int, busbw_factor: float, time_divisor: int,
    floor_gbps: float = 0.0, void: str = "",
) -> Ratio:  # fmt: skip
    """The plugin's row against one baseline's row of the same frame.

    It is void if something says so, or if the baseline has less than `floor_gbps`, where that is
    known.
    """
    our_ns = block_times_ns(row, average, time_divisor)
    their_ns = block_times_ns(theirs, average, time_divisor)
    with np.errstate(divide="ignore", invalid="ignore"):
        pairs = np.where((our_ns > 0) & (their_ns > 0), their_ns / our_ns, math.nan)
    if row.size_bytes == 0 and int(theirs.net_sent.sum()) == 0:
        pairs[:] = math.nan  # raw TCP has nothing to send for an empty message
    by_time = time_divisor > 1 or row.size_bytes == 0
    busbw_factor = bus_factor(row, busbw_factor)

    def figure(times_ns: Float64s) -> float:
        middle = float(np.median(times_ns)) if times_ns.size else math.nan
        return middle / 1e3 if by_time else busbw_factor * rate(row.size_bytes, middle)

    found = figure(their_ns)
    if not by_time and row.size_bytes >= FLOOR_FROM_BYTES and found < floor_gbps:
        void = f"{baseline} reached {found:.3g} GB/s where it is known to exceed {floor_gbps:g}"
    if void:
        pairs[:] = math.nan
    low, high = bootstrap_interval(pairs)
    checked = bool(theirs.receives.any() and theirs.checked[theirs.receives].all())
    everybody = list(theirs.samples["iteration"])
    busy_ns = 0.0
    if theirs.iterations:
        busy_ns = float(times_over_ranks_ns(everybody, 3, 1, theirs.spool).sum())
    others_ns = float(theirs.cpu_others_ns.max(initial=-1))
    payload = int(theirs.payload_bytes_sent.sum())
    sent = theirs.net_sent
    return Ratio(
        baseline=baseline,
        metric="time" if by_time else "bus_bw",
        ratio=float(np.median(pairs)) if pairs.size else math.nan,
        ci_low=low,
        ci_high=high,
        blocks=int(pairs.size),
        ours=figure(our_ns),
        theirs=found,
        wrong=int(theirs.wrong[theirs.wrong > 0].sum()) if checked else None,
        idle_share=others_ns / busy_ns if busy_ns > 0 and others_ns >= 0 else math.nan,
        net_share=int(sent.sum()) / payload if payload and not (sent < 0).any() else math.nan,
        cpu_s_per_gb=cpu_s_per_gb(theirs),
        void=void,
    )


def ratios(
    row: Row,
    sides: Mapping[SideKey, Row],
    average: int,
    busbw_factor: float,
    time_divisor: int,
    floors_gbps: Mapping[str, float] | None = None,
    voids: Mapping[str, str] | None = None,
) -> dict[SideKey, Ratio]:
    """The ratio to each of these sides of a row; `floors_gbps` and `voids` have what is known of
    some baselines: the least, and why there is no ratio."""
    floors, void = floors_gbps or {}, voids or {}
    return {
        side: ratio_to(
            row,
            side.name,
            theirs,
            average,
            busbw_factor,
            time_divisor,
            floors.get(side.name, 0.0),
            void.get(side.transport, ""),
        )
        for side, theirs in sides.items()
    }


def strongest(
    found: Mapping[SideKey, Ratio], names: Sequence[str], place: str = ""
) -> Ratio | None:
    """The baseline among `names` that was fastest there beside this row; None if none was measured.

    A void one stays: who would have been the best is not known.
    """
    there = [found[side] for name in names if (side := SideKey(name, place)) in found]
    void = next((each for each in there if each.void), None)
    if void is not None:
        return void
    known = [each for each in there if not math.isnan(each.ratio)]
    return min(known, key=lambda each: each.ratio, default=None)
