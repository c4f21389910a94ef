"""Sizes in bands, whose messages settings may suit differently, and what a launch says of each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tcpx_mpi.compare import launch_times
from tcpx_mpi.records import Run
from tcpx_mpi.stats import cpu_s_per_gb, rate
from tcpx_mpi.tune.race import Sample
from tcpx_mpi.units import KIB, MIB, format_gb_per_s, format_size, format_time_us

#: Up to here a message is a matter of latency; up to there of few chunks.
_EDGES = (64 * KIB, 2 * MIB)


@dataclass(frozen=True)
class Band:
    """Sizes that are judged together; each counts alike."""

    sizes: tuple[int, ...]

    def __str__(self) -> str:
        first, last = (format_size(size) for size in (self.sizes[0], self.sizes[-1]))
        return first if first == last else f"{first} to {last}"


def bands_of(sizes: Sequence[int]) -> list[Band]:
    """The bands that have any of these sizes, the smallest first."""
    grouped = itertools.groupby(
        sorted(set(sizes)), key=lambda size: sum(size > edge for edge in _EDGES)
    )
    return [Band(tuple(group)) for _, group in grouped]


def sample_of(run: Run, bands: Sequence[Band]) -> Sample:
    """The figure of one launch: of several sizes the mean of the logarithms."""
    times: dict[int, list[float]] = {}
    for key, of_launches in launch_times(run).items():
        times.setdefault(key.size_bytes, []).append(float(of_launches[0]))
    costs: dict[int, list[float]] = {}
    for row in run.rows:
        costs.setdefault(row.size_bytes, []).append(cpu_s_per_gb(row))
    return Sample(*(np.array([_mean(band, of) for band in bands]) for of in (times, costs)))


def _mean(band: Band, values: dict[int, list[float]]) -> float:
    """NaN where a size has no value above 0."""
    found = [value for size in band.sizes for value in values.get(size, [math.nan])]
    if not all(value > 0 for value in found):
        return math.nan
    return math.exp(sum(map(math.log, found)) / len(found))


@dataclass(frozen=True)
class Scale:
    """The scale of times: bandwidth, or, for a ping-pong and for empty messages, times."""

    busbw_factor: float
    by_time: bool

    @property
    def unit(self) -> str:
        return "us" if self.by_time else "GB/s"

    def figure(self, band: Band, time_ns: float) -> float:
        """The geometric mean of the bandwidths of several sizes."""
        if self.by_time:
            return time_ns / 1e3
        size = math.exp(sum(map(math.log, band.sizes)) / len(band.sizes))
        return self.busbw_factor * rate(size, time_ns)

    def text(self, band: Band, time_ns: float) -> str:
        if self.by_time:
            return format_time_us(time_ns, 8)
        figure = self.figure(band, time_ns)
        return f"{figure:.3g}" if figure < 1 else format_gb_per_s(figure, 5)


def scale_of(run: Run, bands: Sequence[Band]) -> Scale:
    """That of a run, by its header."""
    empty = any(size == 0 for band in bands for size in band.sizes)
    return Scale(run.header.busbw_factor, empty or run.header.time_divisor > 1)
