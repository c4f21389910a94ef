"""A simulation as text, in the columns of a run's table, and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tcpx_mpi import __version__
from tcpx_mpi.report.preamble import ABSENT
from tcpx_mpi.report.table import standard_columns
from tcpx_mpi.schedule.simulator import Costs
from tcpx_mpi.simulate.rows import PredictedRow, Simulation
from tcpx_mpi.units import counted, format_gb_per_s, format_size, format_time_us

#: Title, unit and width of what stands to the right of nccl-tests' columns.
_OURS = (("algo", "", 9), ("steps", "", 7), ("connections", "", 11), ("NIC", "(B)", 14))


def head_lines(simulation: Simulation, told: Sequence[str]) -> Iterator[str]:
    """All above the rows; `told`: where the costs are from."""
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
    yield from _titles()


def costs_text(costs: Costs) -> str:
    """The costs in one line."""
    bandwidth = 1 / costs.ns_a_byte if costs.ns_a_byte > 0 else 0.0
    return (
        f"latency {costs.latency_ns / 1e3:.2f} us, bandwidth {bandwidth:.3f} GB/s "
        f"{'one way at a time' if costs.half_duplex else 'each way'}, "
        f"overhead {costs.overhead_ns / 1e3:.2f} us a chunk, reductions "
        + (f"{1 / costs.ns_a_reduced_byte:.3f} GB/s" if costs.ns_a_reduced_byte else "for nothing")
    )


def _nics(simulation: Simulation) -> str:
    count = -(-simulation.world // simulation.ranks_per_nic)
    return f"{counted(simulation.ranks_per_nic, 'rank')} a NIC, {counted(count, 'NIC')}"


def _titles() -> list[str]:
    columns = [*((c.title, c.unit, c.width) for c in standard_columns()), *_OURS]
    titles = "  ".join(title.rjust(width) for title, _, width in columns)
    units = "  ".join(unit.rjust(width) for _, unit, width in columns)
    group = f"#{'':<62}out-of-place{'':<23}in-place"
    return ["#", group, "#" + titles[1:], "#" + units[1:]]


def row_line(row: PredictedRow) -> str:
    """A row of the table."""
    facts, found = row.facts, row.prediction
    texts = [
        str(facts.size_bytes), str(facts.count), facts.type_name, facts.redop, str(facts.root),
        format_time_us(row.time_ns, 7, ABSENT), format_gb_per_s(row.algbw, 6, ABSENT),
        format_gb_per_s(row.busbw, 6, ABSENT), ABSENT, ABSENT, ABSENT, ABSENT, ABSENT,
        facts.algo or "-", str(found.steps), str(found.connections), str(found.nic_bytes),
    ]  # fmt: skip
    widths = [*(column.width for column in standard_columns()), *(width for _, _, width in _OURS)]
    return "  ".join(text.rjust(width) for text, width in zip(texts, widths, strict=True))


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
            "time": row.time_ns / 1e3,
            "alg_bw": row.algbw,
            "bus_bw": row.busbw,
            "nwrong": None,
        },
        "in_place": None,
        "algo": facts.algo,
        "chunk_bytes": facts.chunk_bytes,
        "steps": found.steps,
        "connections": found.connections,
        "nic_bytes": found.nic_bytes,
        "ranks_simulated": found.simulated,
    }
