"""Sums over the ranks of a row, unknown if one rank's value is, and rates made of them."""

from __future__ import annotations

import math

from tcpx_mpi.arrays import Int64s
from tcpx_mpi.records import Row


def rate(amount: float, time_ns: float) -> float:
    """`amount` a nanosecond; NaN for an unknown time, and for none at all."""
    return amount / time_ns if time_ns > 0 else math.nan


def bus_factor(row: Row, factor: float) -> float:
    """Bus bandwidth over algorithm bandwidth; where a pattern has none (NaN), what left a rank of
    the row in an iteration on average, over its size."""
    if not math.isnan(factor):
        return factor
    whole = row.size_bytes * row.agg * row.iterations * row.payload_bytes_sent.size
    return int(row.payload_bytes_sent.sum()) / whole if whole else 0.0


def cpu_time_ns(row: Row) -> float:
    """CPU time of all ranks in a row's batches; NaN if one of them does not know its own."""
    return _known_sum(row.cpu_user_ns, row.cpu_system_ns)


def cpu_s_per_gb(row: Row) -> float:
    """CPU seconds of all ranks for 1e9 bytes received; NaN if nothing is."""
    received = int(row.payload_bytes_received.sum())
    # Seconds a 1e9 bytes are nanoseconds a byte.
    return cpu_time_ns(row) / received if received > 0 else math.nan


def total_if_known(values: Int64s) -> int | None:
    """The sum, or None if there is no value or one of them is -1 for unknown."""
    if values.size == 0 or bool((values < 0).any()):
        return None
    return int(values.sum())


def _known_sum(*columns: Int64s) -> float:
    """The sum of all columns, or NaN if a value of them is -1 for unknown."""
    totals = [total_if_known(column) for column in columns]
    return math.nan if None in totals else float(sum(t for t in totals if t is not None))
