"""`--algo auto`: which algorithm a size has, by the latency and bandwidth that are measured first.

Two rows that are in no table give both: the program's first algorithm with the least bytes and with
the most. A message then costs `latency` and a byte `1 / bandwidth`, the reduction in it, and a row
has the algorithm whose messages, one after the other, and bytes cost least. Algorithms that send as
many bytes differ in what these numbers do not know, such as how many ranks send to one at once: for
each of them a row with the most bytes gives a bandwidth of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from tcpx_mpi.patterns import AUTO
from tcpx_mpi.patterns.program import ALIGNMENT
from tcpx_mpi.records import RowFacts
from tcpx_mpi.run.measure import Measurement
from tcpx_mpi.run.plan import PlannedRow
from tcpx_mpi.transport.slots import plan_row
from tcpx_mpi.workload import Workload
from tcpx_mpi.world import World

#: Iterations of such a row, and those before them.
_ITERATIONS = 8
_WARMUPS = 2


@dataclass(frozen=True)
class Costs:
    """The costs of messages in this run."""

    latency_ns: float
    ns_a_byte: float
    #: Of other algorithms than the first that send as many bytes.
    others_ns_a_byte: Mapping[str, float] = field(default_factory=dict)

    def of_byte(self, algo: str) -> float:
        """The cost of a byte with an algorithm."""
        return self.others_ns_a_byte.get(algo, self.ns_a_byte)

    def facts(self) -> dict[str, str]:
        """The costs as facts for the header of the run."""
        found = {
            "algo_latency_us": f"{self.latency_ns / 1e3:.2f}",
            "algo_gb_per_s": _gb_per_s(self.ns_a_byte),
        }
        others = [f"{algo} {_gb_per_s(ns)}" for algo, ns in self.others_ns_a_byte.items()]
        return {**found, "algo_others_gb_per_s": ", ".join(others)} if others else found


def _gb_per_s(ns_a_byte: float) -> str:
    return f"{1 / ns_a_byte if ns_a_byte > 0 else 0.0:.3f}"


def measure_costs(
    world: World, measurement: Measurement, workload: Workload, rows: Sequence[PlannedRow]
) -> Costs:
    """Collective: the costs, the same on all ranks."""
    largest = max(rows, key=lambda row: row.facts.size_bytes)
    most = largest.facts.size_bytes
    small = workload.facts(workload.variants[0], ALIGNMENT * workload.group_size)

    def time_ns(algo: str, size: int) -> int:
        facts = dataclasses.replace(
            largest.facts, algo=algo, size_bytes=size, iterations=_ITERATIONS,
            warmup_iterations=_WARMUPS,
        )  # fmt: skip
        plan = plan_row(min(largest.plan.slots, _ITERATIONS), _ITERATIONS, _WARMUPS)
        part, _ = measurement.measure(facts, plan)
        mine = int(np.median(part.samples["iteration"])) if part.receives else 0
        return world.maximum(mine, "costs of a message", measurement.patience_s)

    sizes = [min(small["size_bytes"], most), most]
    times = [time_ns(workload.algos[0], size) for size in sizes]
    others = {algo: time_ns(algo, most) for algo in as_many_bytes(workload, most)}
    return costs_of(workload, sizes, times, others)


def as_many_bytes(workload: Workload, size_bytes: int) -> list[str]:
    """The algorithms other than the first that send as many bytes of this size as it does."""
    cost = workload.program.cost
    assert cost is not None
    sent = {algo: cost(algo, workload.group_size, size_bytes)[1] for algo in workload.algos}
    first = workload.algos[0]
    return [algo for algo in workload.algos if algo != first and 0 < sent[algo] == sent[first]]


def costs_of(
    workload: Workload,
    sizes: Sequence[int],
    times_ns: Sequence[int],
    others_ns: Mapping[str, int] = MappingProxyType({}),
) -> Costs:
    """The costs from the times of a small and of a large row of the first algorithm, and of a large
    row of others."""
    cost = workload.program.cost
    assert cost is not None
    (messages, small), (_, large) = (
        cost(workload.algos[0], workload.group_size, size) for size in sizes
    )
    ns_a_byte = max((times_ns[1] - times_ns[0]) / (large - small), 0.0) if large > small else 0.0
    latency_ns = max(times_ns[0] - small * ns_a_byte, 0.0) / messages
    others = {}
    for algo, time_ns in others_ns.items():
        steps, sent = cost(algo, workload.group_size, sizes[1])
        others[algo] = max(time_ns - steps * latency_ns, 0.0) / sent
    return Costs(latency_ns, ns_a_byte, others)


def choose_algorithm(facts: RowFacts, workload: Workload, costs: Costs | None) -> RowFacts:
    """The row with the algorithm that costs least; of equal ones the program's first."""
    if facts.algo != AUTO or costs is None:
        return facts
    cost = workload.program.cost
    assert cost is not None

    def time_ns(algo: str) -> float:
        messages, sent = cost(algo, workload.group_size, facts.size_bytes)
        return messages * costs.latency_ns + sent * costs.of_byte(algo)

    return dataclasses.replace(facts, algo=min(workload.algos, key=time_ns))
