"""`--algo auto`: which algorithm a size has, by the latency and bandwidth that are measured first.

Two rows that are in no table give both: the program's first algorithm with the least bytes and with
the most. A message then costs `latency` and a byte `1 / bandwidth`, the reduction in it, and a row
has the algorithm whose messages, one after the other, and bytes cost least.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tcpx_mpi.patterns.program import ALIGNMENT
from tcpx_mpi.records import RowFacts
from tcpx_mpi.run.measure import Measurement
from tcpx_mpi.run.plan import PlannedRow
from tcpx_mpi.run.program_rows import AUTO, ProgramRows
from tcpx_mpi.transport.slots import plan_row
from tcpx_mpi.world import World

#: Iterations of such a row, and those before them.
_ITERATIONS = 8
_WARMUPS = 2


@dataclass(frozen=True)
class Costs:
    """What messages cost in this run."""

    latency_ns: float
    ns_a_byte: float

    def facts(self) -> dict[str, str]:
        """For the header of the run."""
        bandwidth = 1 / self.ns_a_byte if self.ns_a_byte > 0 else 0.0
        return {
            "algo_latency_us": f"{self.latency_ns / 1e3:.2f}",
            "algo_gb_per_s": f"{bandwidth:.3f}",
        }


def measure_costs(
    world: World, measurement: Measurement, program: ProgramRows, rows: Sequence[PlannedRow]
) -> Costs:
    """Collective: the costs, the same on all ranks."""
    largest = max(rows, key=lambda row: row.facts.size_bytes)
    small = program.facts(program.variants[0], ALIGNMENT * program.group_size)
    times = []
    sizes = [min(small["size_bytes"], largest.facts.size_bytes), largest.facts.size_bytes]
    for size in sizes:
        facts = dataclasses.replace(
            largest.facts, algo=program.algos[0], size_bytes=size, iterations=_ITERATIONS,
            warmup_iterations=_WARMUPS,
        )  # fmt: skip
        plan = plan_row(min(largest.plan.slots, _ITERATIONS), _ITERATIONS, _WARMUPS)
        part, _ = measurement.measure(facts, plan)
        mine = int(np.median(part.samples["iteration"])) if part.receives else 0
        times.append(world.maximum(mine, "costs of a message", measurement.patience_s))
    return costs_of(program, sizes, times)


def costs_of(program: ProgramRows, sizes: Sequence[int], times_ns: Sequence[int]) -> Costs:
    """The costs from the times of a small and of a large row of the first algorithm."""
    cost = program.program.cost
    assert cost is not None
    (messages, small), (_, large) = (
        cost(program.algos[0], program.group_size, size) for size in sizes
    )
    ns_a_byte = max((times_ns[1] - times_ns[0]) / (large - small), 0.0) if large > small else 0.0
    latency_ns = max(times_ns[0] - small * ns_a_byte, 0.0) / messages
    return Costs(latency_ns, ns_a_byte)


def choose_algorithm(facts: RowFacts, program: ProgramRows, costs: Costs | None) -> RowFacts:
    """The row with the algorithm that costs least; of equal ones the program's first."""
    if facts.algo != AUTO or costs is None:
        return facts
    cost = program.program.cost
    assert cost is not None

    def time_ns(algo: str) -> float:
        messages, sent = cost(algo, program.group_size, facts.size_bytes)
        return messages * costs.latency_ns + sent * costs.ns_a_byte

    return dataclasses.replace(facts, algo=min(program.algos, key=time_ns))
