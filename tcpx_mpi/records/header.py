"""The header of a run, known before its first row: settings, places, versions, plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tcpx_mpi.config.plan_options import PlanOptions
from tcpx_mpi.cpu_lists import parse_cpu_list
from tcpx_mpi.secrets import redacted_text, redacted_value, redacted_words

#: The mode of a run that another program measured, and of which it told averages only.
AVERAGES = "averages"
#: The fact of such a run that has the program's own count of wrong values and verdict: "0 OK".
IMPORTED_BOUNDS = "out of bounds values as printed"
SYNCHRONISED = "synchronised"
#: Of a run whose iterations are begun by the clock (--rate).
OPEN_LOOP = "open loop"
#: Iterations follow each other on each rank by itself; all ranks begin each batch together.
APART = "apart"
#: Facts of a run of requests: the ranks that ask, and those that are asked.
INITIATORS, TARGETS = "initiators", "targets"


@dataclass(frozen=True)
class RankInfo:
    """The place of one rank: the map rank -> host -> device -> NIC -> NUMA node -> CPUs."""

    rank: int
    host: str
    node: str
    pid: int
    device: int
    device_name: str
    nic: str
    nic_pci: str
    nic_speed_mbps: int
    numa_node: int
    cpus: str
    progress_cpu: int
    plugin_path: str
    plugin_sha256: str
    plugin_abi: int
    plugin_name: str
    memory: str
    #: The GPU whose place this rank has; -1 and "" for none.
    gpu: int = -1
    gpu_pci: str = ""
    #: The CPUs that the plugin's threads are bound to; "" if they choose.
    plugin_cpus: str = ""
    #: The NUMA node that the rank's memory is bound to; -1 where it is not.
    memory_node: int = -1
    #: The model of the GPU whose memory is used, and its NUMA node; "" and -1 if none is.
    gpu_name: str = ""
    gpu_numa_node: int = -1
    #: Of nccl-tests' NCCL_TESTS_SPLIT: ranks with the same number ran by themselves.
    group: int = 0
    #: Ranks with the same number read the same CLOCK_MONOTONIC; -1: older files do not say.
    clock: int = -1

    def shares_clock(self, other: RankInfo) -> bool:
        """Whether instants of both can be compared as they are."""
        return self.node == other.node if self.clock < 0 else self.clock == other.clock


@dataclass(frozen=True)
class Plan(PlanOptions):
    """The plan: the rows that were asked for and how the table shows them.

    `run_cycles` are those of all rounds of the pattern.
    """

    #: Parallel to `sizes`, or empty if unknown.
    slots: tuple[int, ...] = ()
    #: Why no row is run with so many ranks, as nccl-tests says it; "": all are.
    skipped: str = ""

    def rows(self, cycles_begun: int = 1) -> list[tuple[int, int]]:
        """(cycle, size_bytes) of every planned row; the n-th is the row of index n.

        Of endless cycles only those begun were certainly planned.
        """
        cycles = range(self._cycles(cycles_begun))
        return [(cycle, size) for cycle in cycles for size in self.sizes]

    def row_count(self, cycles_begun: int = 1) -> int:
        """The number of these rows."""
        return self._cycles(cycles_begun) * len(self.sizes)

    def _cycles(self, begun: int) -> int:
        if self.skipped:
            return 0
        return self.run_cycles if self.run_cycles > 0 else begun


@dataclass(frozen=True)
class BaselineInfo:
    """A baseline (`--against`), and its settings."""

    #: The key of its rows: "raw", "raw_1", "mpi".
    name: str
    #: What was asked for: several baselines of one kind are variants of it.
    kind: str
    #: Sockets for each direction between two ranks; 0 where it chooses itself.
    streams: int
    #: A socket carries both directions.
    two_way: bool
    congestion_control: str
    send_buffer_bytes: int
    description: str
    #: The network interfaces whose addresses its sockets have, on all ranks: "eth0" or
    #: "eth0,eth1"; "" unknown.
    interfaces: str = ""
    #: It runs in a process of its own beside each rank.
    own_process: bool = False
    #: A bus bandwidth that it is known to exceed here with large messages: with less it was
    #: weakened, and a ratio to it is void. 0: none is known.
    floor_gbps: float = 0.0


#: In a header's fact of what was chosen, before the reason.
WOULD_FLUSH = "; NCCL would flush: "


@dataclass
class RunHeader:
    """Everything known before the first row: the run's metadata."""

    run_id: str
    pattern: str
    start_time: str
    command: list[str]
    plan: Plan
    settings: list[tuple[str, str, str]]
    versions: dict[str, str]
    environment: dict[str, str]
    facts: dict[str, str]
    ranks: list[RankInfo]
    world: int
    busbw_factor: float
    time_divisor: int
    plugin_path: str
    plugin_sha256: str
    plugin_abi: int
    plugin_name: str
    memory: str
    #: How fragments became messages: kernel, d2d, host, none; "in place" where there are none.
    unpack: str
    #: Last-level cache in bytes; 0 or less if unknown.
    llc_bytes: int
    #: "back-to-back", "synchronised" or "open loop", never mixed in a run; or APART, or AVERAGES.
    mode: str
    #: Comment lines for the table's header.
    notes: list[str] = field(default_factory=list)
    #: Stored as `peers`, in files and journals.
    baselines: list[BaselineInfo] = field(default_factory=list)
    #: What part of the size column the algorithm bandwidth counts.
    algbw_factor: float = 1.0

    def __post_init__(self) -> None:
        """Whoever made it, from now on nobody has the secrets in it."""
        self.command = redacted_words(self.command)
        self.settings = [
            (name, redacted_value(name, value), redacted_text(source))
            for name, value, source in self.settings
        ]
        self.environment = _redacted(self.environment)
        self.facts = _redacted(self.facts)
        self.notes = [redacted_text(note) for note in self.notes]

    @property
    def size_factor(self) -> float:
        """Bus bandwidth over size / time: what part counts, times the pattern's factor."""
        return self.algbw_factor * self.busbw_factor

    @property
    def back_to_back(self) -> bool:
        """Whether an iteration may be under way before the one before has arrived: not where all
        ranks start each together, nor in round trips that nothing but the one before begins."""
        apart = self.mode in (SYNCHRONISED, APART)
        return self.is_open_loop or (not apart and self.time_divisor == 1)

    @property
    def left_unflushed(self) -> str:
        """Why NCCL would have flushed receives that this run did not, on purpose; "" for none."""
        _, _, reason = self.facts.get("flush_chosen", "").partition(WOULD_FLUSH)
        return reason.removesuffix(")")

    @property
    def is_open_loop(self) -> bool:
        """Whether iterations were to begin by the clock (--rate)."""
        return self.mode == OPEN_LOOP

    @property
    def targets(self) -> tuple[int, ...]:
        """The ranks that are asked, of a run of requests; none of other runs."""
        try:
            found = parse_cpu_list(self.facts.get(TARGETS, ""))
        except ValueError:  # a file says what it likes
            return ()
        return tuple(rank for rank in found if rank < self.world)

    @property
    def averages_only(self) -> bool:
        """Imported from a program that keeps no samples: each row has `averages` instead."""
        return self.mode == AVERAGES


def _redacted(values: Mapping[str, str]) -> dict[str, str]:
    return {name: redacted_value(name, value) for name, value in values.items()}


def header_to_plain(header: RunHeader) -> dict[str, Any]:
    """A header as plain lists, dictionaries, text and numbers, for JSON."""
    plain = dataclasses.asdict(header)
    plain["peers"] = plain.pop("baselines")
    return plain


def rank_name(header: RunHeader, rank: int) -> str:
    """A rank with its place: `rank 3 on hostA (device 1, NIC eth2)`."""
    for info in header.ranks:
        if info.rank == rank:
            return f"rank {rank} on {info.host} (device {info.device}, NIC {info.nic})"
    return f"rank {rank}"
