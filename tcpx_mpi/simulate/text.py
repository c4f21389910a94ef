"""A simulation as text, in the columns of a run's table, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tcpx_mpi import __version__
from tcpx_mpi.report.field import Field
from tcpx_mpi.report.fields import (
    BUSBW,
    BYTES,
    COUNTS,
    IDENTITY,
    JSON_SIDE,
    SIDE_IN_PLACE,
    SIZE,
    STANDARD,
    TIME,
    WRONG,
)
from tcpx_mpi.report.table import heading, joined
from tcpx_mpi.schedule.simulator import Costs
from tcpx_mpi.simulate.rows import PredictedRow, Simulation
from tcpx_mpi.units import ABSENT, counted, format_size

#: What stands to the right of nccl-tests' columns.
_OURS = (
    Field("algo", COUNTS, lambda row: row.facts.algo or "-", 9),
    Field("steps", COUNTS, lambda row: row.prediction.steps, 7),
    Field("connections", COUNTS, lambda row: row.prediction.connections, 11),
    Field("NIC", BYTES, lambda row: row.prediction.nic_bytes, 14),
)
#: What a terminal has, by 79 columns, that has no room for all.
_NARROW = (SIZE, TIME, BUSBW, *_OURS)


def shown_fields(columns: int | None = None) -> Sequence[Field]:
    """The columns of the table where a line has so many; None: all of them."""
    every = (*STANDARD, *_OURS)
    wide = columns is None or len(joined([field.name for field in every], every)) <= columns
    return every if wide else _NARROW


def head_lines(
    simulation: Simulation, told: Sequence[str], fields: Sequence[Field]
) -> Iterator[str]:
    """All above the rows, which have `fields`; `told`: where the costs are from."""
    s = simulation.settings
    yield f"# tcpx-mpi version {__version__}"
    yield f"# Simulation of: {s.pattern}, {counted(simulation.world, 'rank')}, {_nics(simulation)}"
    yield f"# Costs: {costs_text(simulation.costs)}"
    yield from (f"# {line}" for line in told)
    yield (
        f"# Timing: {s.mode()}, {counted(s.iters, 'iteration')}; engine: chunk "
        f"{format_size(s.chunk_bytes)}, {counted(s.channels, 'channel')}, window send "
        f"{s.window_send} receive {s.window_recv}"
    )
    yield "# Not in it: copies within a rank, and a network that fills between the NICs"
    if simulation.skipped is not None:
        yield f"# Note: {simulation.skipped}"
    if fields is not _NARROW:
        yield from heading(_OURS)
        return
    yield "# Not shown here: count, type, redop, root, algbw, what no simulation has: use a pipe"
    yield "#"
    yield f"#{joined([field.name for field in fields], fields)[1:]}"
    yield f"#{joined([field.beneath for field in fields], fields)[1:]}"


def costs_text(costs: Costs) -> str:
    """The costs in one line."""
    bandwidth = 1 / costs.ns_a_byte if costs.ns_a_byte > 0 else 0.0
    return (
        f"latency {costs.latency_ns / 1e3:.2f} us, bandwidth {bandwidth:.3f} GB/s "
        f"{'one direction at a time' if costs.half_duplex else 'each direction'}, "
        f"overhead {costs.overhead_ns / 1e3:.2f} us a chunk, reductions "
        + (f"{1 / costs.ns_a_reduced_byte:.3f} GB/s" if costs.ns_a_reduced_byte else "for nothing")
    )


def _nics(simulation: Simulation) -> str:
    count = -(-simulation.world // simulation.ranks_per_nic)
    return f"{counted(simulation.ranks_per_nic, 'rank')} a NIC, {counted(count, 'NIC')}"


def row_line(row: PredictedRow, fields: Sequence[Field]) -> str:
    """A row of the table."""
    return joined([_text(row, field) for field in fields], fields)


def _text(row: PredictedRow, field: Field) -> str:
    if field in (WRONG, *SIDE_IN_PLACE):
        return ABSENT
    return field.text(row.facts if field in IDENTITY else row)


def document(simulation: Simulation, rows: Sequence[PredictedRow]) -> dict[str, Any]:
    """The same as JSON, its results with nccl-tests' keys."""
    s, costs = simulation.settings, simulation.costs
    return {
        "version": __version__,
        "simulation": s.pattern,
        "ranks": simulation.world,
        "ranks_per_nic": simulation.ranks_per_nic,
        "mode": s.mode(),
        "costs": {
            "latency_us": costs.latency_ns / 1e3,
            "bandwidth_gbps": 1 / costs.ns_a_byte,
            "overhead_us": costs.overhead_ns / 1e3,
            "half_duplex": costs.half_duplex,
            "reduction_ns_a_byte": costs.ns_a_reduced_byte,
        },
        "skipped": simulation.skipped,
        "results": [_result(row) for row in rows],
    }


def _result(row: PredictedRow) -> dict[str, Any]:
    facts, found = row.facts, row.prediction
    return {
        "size": facts.size_bytes,
        "count": facts.count,
        "type": facts.type_name,
        "redop": facts.redop,
        "root": facts.root,
        "out_of_place": {
            key: None if field is WRONG else field.data(row) for key, field in JSON_SIDE.items()
        },
        "in_place": None,
        "algo": facts.algo,
        "chunk_bytes": facts.chunk_bytes,
        "steps": found.steps,
        "connections": found.connections,
        "nic_bytes": found.nic_bytes,
        "ranks_simulated": found.simulated,
    }
