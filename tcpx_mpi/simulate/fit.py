"""Latency, bandwidth and overhead from the rows of measured runs.

The costs with which the simulator comes nearest to the measured times: least squares of the
relative errors. A predicted time is the longest way through a graph, so it is piecewise linear in
the costs, and a few steps of Gauss and Newton end at the minimum.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi import patterns
from tcpx_mpi.errors import UsageError
from tcpx_mpi.patterns.program import Form
from tcpx_mpi.records import Row, Run
from tcpx_mpi.report import summarise_row
from tcpx_mpi.schedule.elements import ElementType
from tcpx_mpi.schedule.engine_model import EngineModel
from tcpx_mpi.schedule.pattern import Pattern
from tcpx_mpi.schedule.simulator import Costs, predict

_STEPS = 8
#: Latencies in a time: where there are fewer, iterations follow each other without a wait.
_WAITS = 0.5

#: latency, ns a byte, overhead, ns a reduced byte.
_Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Fitted:
    """The costs, and how near they come to the rows that they were fitted on."""

    costs: Costs
    rows: int
    #: Of predicted / measured.
    least: float
    most: float


@dataclass(frozen=True)
class MeasuredRow:
    """A row as the simulator would have it, and its time."""

    size_bytes: int
    algo: str
    time_ns: float
    predict_ns: Callable[[Costs], float]


def fit_costs(runs: Sequence[Run], known: Mapping[str, float], half_duplex: bool = False) -> Fitted:
    """The costs of `Costs`' fields that are not `known`, by the rows of all runs together.

    Raises UsageError if the runs do not tell.
    """
    rows = [found for run in runs for found in measured_rows(run)]
    return fit_rows(rows, known, ", ".join(run.path for run in runs), half_duplex)


def fit_rows(
    rows: Sequence[MeasuredRow],
    known: Mapping[str, float],
    names: str,
    half_duplex: bool = False,
) -> Fitted:
    """The same of rows; `names` is where they are from."""
    measured = np.array([row.time_ns for row in rows])
    if measured.size < 2:
        raise UsageError(f"--fit ({names}) has fewer than 2 rows with a time; measure more sizes")
    fields = ["latency_ns", "ns_a_byte", "overhead_ns", "ns_a_reduced_byte"]
    x = np.array([known.get(name, guess) for name, guess in zip(fields, _guess(rows), strict=True)])
    free = np.array([name not in known for name in fields])
    slopes = _slopes(rows, x, half_duplex)
    streams = slopes[:, 0] < _WAITS
    if free[0] and streams.all():
        raise UsageError(
            f"--fit ({names}) has no latency in its rows, which follow each other without a wait: "
            "fit on pingpong or ring, too, or give --latency"
        )
    if free[2] and not streams.any():
        # What each chunk costs cannot be told from the latency of the first one.
        x[2], free[2] = 0.0, False
    # Nothing that is reduced says nothing of reductions.
    free[3] &= bool(slopes[:, 3].any())
    for _ in range(_STEPS):
        x = _solved(_slopes(rows, x, half_duplex), x, free, measured)
    if x[1] <= 0:
        raise UsageError(
            f"--fit ({names}) has no bandwidth in its rows: measure large sizes, too, or give "
            "--bandwidth"
        )
    costs = _costs(x, half_duplex)
    ratios = [row.predict_ns(costs) / row.time_ns for row in rows]
    return Fitted(costs, len(rows), min(ratios), max(ratios))


def _guess(rows: Sequence[MeasuredRow]) -> tuple[float, float, float, float]:
    times = [row.time_ns for row in rows]
    # A byte alone, and its time in the longest row.
    bytes_alone = max(row.predict_ns(Costs(0.0, 1.0)) for row in rows)
    return min(times), max(times) / max(bytes_alone, 1.0), min(times) / 10, 0.0


def _costs(x: _Numbers, half_duplex: bool) -> Costs:
    latency_ns, ns_a_byte, overhead_ns, reduced = (float(value) for value in x)
    return Costs(latency_ns, ns_a_byte, overhead_ns, half_duplex, reduced)


def _slopes(rows: Sequence[MeasuredRow], x: _Numbers, half_duplex: bool) -> _Numbers:
    """The growth of each row's time with each cost: float64[rows, 3]."""
    found = np.empty((len(rows), x.size))
    scale = np.array([1.0, 1e-3, 1.0, 1e-3])
    for column in range(x.size):
        by = max(0.01 * x[column], 1e-3 * scale[column])
        more = x.copy()
        more[column] += by
        ends = [
            tuple(row.predict_ns(_costs(each, half_duplex)) for each in (more, x)) for row in rows
        ]
        found[:, column] = [(after - before) / by for after, before in ends]
    return found


def _solved(slopes: _Numbers, x: _Numbers, free: NDArray[np.bool_], times: _Numbers) -> _Numbers:
    """The costs, none below 0, of least squares where times are linear in them."""
    free = free.copy()
    result = np.where(free, 0.0, x)
    while free.any():
        fixed = slopes[:, ~free] @ x[~free] if (~free).any() else 0.0
        weighted = slopes[:, free] / times[:, None]
        result[free] = np.linalg.lstsq(weighted, (times - fixed) / times, rcond=None)[0]
        below = free & (result < 0)
        if not below.any():
            break
        result[below], x = 0.0, np.where(below, 0.0, x)
        free &= ~below
    return result


def measured_rows(run: Run) -> list[MeasuredRow]:
    """The rows of a run that have a time. Raises UsageError if its schedules are not known."""
    header = run.header
    if header.averages_only or any(info.group for info in header.ranks):
        raise UsageError(
            f"--fit ({run.path}) is imported, or was run in groups: fit on a run of `tcpx-mpi run` "
            "without NCCL_TESTS_SPLIT"
        )
    if header.is_open_loop:
        raise UsageError(
            f"--fit ({run.path}) has the pace of --rate for its times: fit on a run without it"
        )
    if header.plan.multi_recv > 1:
        raise UsageError(
            f"--fit ({run.path}) has {header.plan.multi_recv} messages a chunk (--multi-recv), "
            "which simulate has not: fit on a run without it"
        )
    return [found for row in run.rows if (found := _measured(run, row)) is not None]


def _measured(run: Run, row: Row) -> MeasuredRow | None:
    header, plan = run.header, run.header.plan
    time_ns = summarise_row(header, row).time_ns
    if not time_ns > 0:
        return None
    pattern = patterns.repeated(_pattern(run, row), row.agg)
    engine = EngineModel(row.chunk_bytes, plan.channels, plan.window_send, plan.window_recv)
    iterations = int(row.batches.max()) if header.mode == "back-to-back" else 1
    copies = row.agg * header.time_divisor
    sharing = _ranks_per_nic(run)

    def predict_ns(costs: Costs) -> float:
        found = predict(pattern, header.world, row.size_bytes, engine, costs, iterations, sharing)
        return found.by_average(plan.average) / copies

    return MeasuredRow(row.size_bytes, row.algo, time_ns, predict_ns)


def _ranks_per_nic(run: Run) -> int:
    """Ranks that share a NIC; 1 on a single node, whose ranks meet in its kernel.

    Raises UsageError if not all NICs have as many.
    """
    ranks = run.header.ranks
    if len({info.node for info in ranks}) < 2:
        return 1
    shares = set(Counter((info.node, info.nic) for info in ranks).values())
    if len(shares) > 1:
        raise UsageError(
            f"--fit ({run.path}) has NICs with {min(shares)} and with {max(shares)} ranks: fit on "
            "a run with as many on each"
        )
    return shares.pop()


def _pattern(run: Run, row: Row) -> Pattern:
    name, world = run.header.pattern, run.header.world
    element = ElementType.of_label(row.type_name).bytes
    pattern = None
    if patterns.find(name) is not None and not (program := patterns.find_program(name)).options:
        pattern = program.pattern(Form(row.algo, element, max(row.root, 0)))
    if pattern is None or pattern.rounds is not None or pattern.loaded is not None:
        raise UsageError(
            f"--fit ({run.path}) is a run of {name}, whose messages its file does not say: fit on "
            "pingpong, pair, ring, mesh or a program other than alltoallv"
        )
    assert pattern.refuse(world) is None
    return pattern
