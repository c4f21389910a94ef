"""A run in memory: what was asked, what was found, and every sample. No file is touched here.

A `RowFacts` is what all ranks agree on about a row, a `RankRow` is one rank's part of it, and
`join_row` makes the `Row` of all ranks out of them; it is used live and when journals are merged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.records.gpu import GpuRow
from tcpx_mpi.units import format_size

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

#: The phases of a row's samples. Durations count from the start of the iteration; "start" is
#: that instant on the rank's CLOCK_MONOTONIC.
PHASES = ("iteration", "send", "receive", "start")

#: The mode of a run that another program measured, and of which it told averages only.
AVERAGES = "averages"

SETUP_DTYPE = np.dtype(
    [
        ("rank", "<i4"),
        ("phase", "S16"),
        ("peer", "<i4"),
        ("lane", "<i4"),
        ("channel", "<i4"),
        ("ns", "<i8"),
    ]
)


@dataclass(frozen=True)
class RankInfo:
    """Where one rank ran: the map rank -> host -> device -> NIC -> NUMA node -> CPUs."""

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
    #: The CPUs that the plugin's threads are bound to; "" where they choose.
    plugin_cpus: str = ""
    #: The NUMA node that the rank's memory is bound to; -1 where it is not.
    memory_node: int = -1
    #: The model of the GPU whose memory is used, and its NUMA node; "" and -1 where none is.
    gpu_name: str = ""
    gpu_numa_node: int = -1


@dataclass(frozen=True)
class Plan:
    """What was asked for: the planned rows and how the table shows them.

    `run_cycles` 0 means "until stopped". `slots` is parallel to `sizes`, or empty if unknown.
    """

    sizes: tuple[int, ...]
    run_cycles: int = 1
    iters: int = 20
    warmup_iters: int = 1
    agg_iters: int = 1
    average: int = 1
    check: int = 1
    blocking: int = 0
    chunk_bytes: int = 524288
    channels: int = 2
    window_send: int = 12
    window_recv: int = 16
    slots: tuple[int, ...] = ()
    report_timestamps: bool = False
    report_cputime: bool = False
    report_gbits: bool = False
    per_iter_timing: bool = False
    per_iter_skip: int = 0

    def rows(self, cycles_begun: int = 1) -> list[tuple[int, int]]:
        """(cycle, size_bytes) of every planned row; the n-th is the row of index n.

        Of endless cycles only those begun were certainly planned.
        """
        cycles = self.run_cycles if self.run_cycles > 0 else cycles_begun
        return [(cycle, size) for cycle in range(cycles) for size in self.sizes]


@dataclass(frozen=True)
class PeerInfo:
    """What runs beside the plugin in the same frame (`--against`), and how it was set."""

    #: The key of its rows: "raw", "raw_1", "mpi".
    name: str
    #: What was asked for: several peers of one kind are variants of it.
    kind: str
    #: Sockets for each direction between two ranks; 0 where it chooses itself.
    streams: int
    #: A socket carries both directions.
    two_way: bool
    congestion_control: str
    send_buffer_bytes: int
    description: str
    #: It runs in a process of its own beside each rank.
    own_process: bool = False
    #: A bus bandwidth that it is known to exceed here with large messages: with less it was
    #: weakened, and a ratio to it is void. 0: none is known.
    floor_gbps: float = 0.0


@dataclass
class RunHeader:
    """Everything known before the first row: the run's circumstances."""

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
    #: "back-to-back" or "synchronised", never mixed in a run; or AVERAGES.
    mode: str
    #: Comment lines for the table's header.
    notes: list[str] = field(default_factory=list)
    peers: list[PeerInfo] = field(default_factory=list)

    @property
    def averages_only(self) -> bool:
        """Imported from a program that keeps no samples: each row has `averages` instead."""
        return self.mode == AVERAGES


def header_to_plain(header: RunHeader) -> dict[str, Any]:
    """A header as plain lists, dictionaries, text and numbers, for JSON."""
    return dataclasses.asdict(header)


def header_from_plain(plain: Mapping[str, Any]) -> RunHeader:
    """The inverse of `header_to_plain`, also after a way through JSON, which has no tuples."""
    values = dict(plain)
    plan = dict(values["plan"])
    for name in ("sizes", "slots"):
        plan[name] = tuple(plan[name])
    values["plan"] = Plan(**plan)
    values["settings"] = [(name, value, source) for name, value, source in values["settings"]]
    values["ranks"] = [RankInfo(**rank) for rank in values["ranks"]]
    values["peers"] = [PeerInfo(**peer) for peer in values["peers"]]
    return RunHeader(**values)


@dataclass(frozen=True, eq=False)
class SetupTimes:
    """How long each set-up call took, on every rank: a table of `SETUP_DTYPE`.

    `phase` is "listen", "connect", "accept" or "regMr"; -1 stands for "no such peer" and so on.
    """

    table: NDArray[np.void]

    @staticmethod
    def from_rows(rows: Iterable[tuple[int, str, int, int, int, int]]) -> SetupTimes:
        """Rows are (rank, phase, peer, lane, channel, ns)."""
        encoded = [(rank, phase.encode("ascii"), *rest) for rank, phase, *rest in rows]
        return SetupTimes(np.array(encoded, dtype=SETUP_DTYPE))

    @staticmethod
    def joined(parts: Sequence[SetupTimes]) -> SetupTimes:
        """The times of several ranks in one table."""
        if not parts:
            return SetupTimes(np.empty(0, dtype=SETUP_DTYPE))
        return SetupTimes(np.concatenate([part.table for part in parts]))

    def phases(self) -> list[str]:
        """The phases in order of their first appearance."""
        return list(dict.fromkeys(name.decode("ascii") for name in self.table["phase"].tolist()))

    def of(self, phase: str) -> NDArray[np.void]:
        """The part of the table about one phase."""
        part: NDArray[np.void] = self.table[self.table["phase"] == phase.encode("ascii")]
        return part


@dataclass(kw_only=True, eq=False)
class RowFacts:
    """What every rank knows about a row before it is run."""

    index: int
    cycle: int
    size_bytes: int
    count: int
    type_name: str = "uint8"
    redop: str = "none"
    root: int = -1
    #: Copies of the pattern posted together in an iteration (`-m`).
    agg: int = 1
    #: Messages that a rank receives in one copy, for the message rate.
    messages_per_copy: int = 1
    chunk_bytes: int
    slots: int
    iterations: int
    warmup_iterations: int


@dataclass(frozen=True)
class Proof:
    """Where one rank's work was seen while a row's batches ran; -1 and "" are unknown.

    Threads are the driving one and those of the plugin. NIC counters are the interface's, so of
    everybody who used it meanwhile.
    """

    driver_cpus: str = ""
    driver_migrations: int = -1
    #: How often the kernel took the CPU from the thread.
    driver_preemptions: int = -1
    plugin_threads: int = -1
    plugin_cpus: str = ""
    plugin_migrations: int = -1
    nic_sent: int = -1
    nic_received: int = -1
    nic_packets: int = -1
    #: Packets dropped or wrong, either way.
    nic_drops: int = -1
    #: Payload that this rank sent to and received from other nodes.
    remote_bytes: int = -1
    #: The longest smoothed round trip of a socket.
    rtt_us: int = -1
    #: CPU time of the processes that other sides have beside the rank's, which should sleep.
    waiting_cpu_ns: int = -1


@dataclass(kw_only=True, eq=False)
class RankRow:
    """One rank's part of a row: its samples and what it counted; -1 is "unknown" or "none"."""

    rank: int
    receives: bool
    checked: bool
    wrong: int
    chunks: int
    payload_bytes_sent: int
    payload_bytes_received: int
    prepare_ns: int
    check_ns: int
    cpu_user_ns: int
    cpu_system_ns: int
    #: CPU time in the batches that the driving thread had not: beside a peer, the idle side's.
    cpu_others_ns: int
    net_sent: int
    net_received: int
    tcp_retransmits: int
    #: The first wrong byte in words, or "".
    fault: str = ""
    #: Phase -> int64[iterations], and the same of the warm-ups.
    samples: dict[str, Int64s]
    warmup: dict[str, Int64s]
    #: Iterations in each batch (equal on all ranks), when each started here, and whether this
    #: rank missed its agreed start.
    batches: Int64s
    batch_start: Int64s
    late: Bools
    proof: Proof = Proof()
    #: Of a run in a GPU's memory.
    gpu: GpuRow | None = None
    #: What the peers of `--against` did in blocks between these batches, by name.
    against: dict[str, RankRow] = field(default_factory=dict)


#: The columns of a row with one value a rank; the same names in `RankRow` and in `Row`.
RANK_COLUMNS = (
    "receives",
    "checked",
    "wrong",
    "payload_bytes_sent",
    "payload_bytes_received",
    "prepare_ns",
    "check_ns",
    "cpu_user_ns",
    "cpu_system_ns",
    "cpu_others_ns",
    "net_sent",
    "net_received",
    "tcp_retransmits",
)
RANK_FLAGS = frozenset({"receives", "checked"})


@dataclass(frozen=True)
class Average:
    """One side of a row as another program told it, in place of samples; NaN where it did not.

    An average over ranks and iterations, by its own rules. `wrong` counts elements, not bytes,
    and is -1 where it did not check.
    """

    #: "out_of_place" or "in_place".
    side: str
    time_ns: float
    #: GB/s as told, not computed from size and time.
    algbw: float
    busbw: float
    wrong: int


@dataclass(kw_only=True, eq=False)
class Row(RowFacts):
    """A row of the table with all its samples; the first axis of every array is the rank."""

    #: Chunks an iteration, the largest over the ranks.
    chunks: int
    checked: Bools
    receives: Bools
    #: Wrong bytes; -1 where the rank did not check.
    wrong: Int64s
    payload_bytes_sent: Int64s
    payload_bytes_received: Int64s
    #: Phase -> int64[rank, iteration], and the same of the warm-ups.
    samples: dict[str, Int64s]
    warmup: dict[str, Int64s]
    batches: Int64s
    batch_start: Int64s
    late: Bools
    prepare_ns: Int64s
    check_ns: Int64s
    cpu_user_ns: Int64s
    cpu_system_ns: Int64s
    cpu_others_ns: Int64s
    net_sent: Int64s
    net_received: Int64s
    tcp_retransmits: Int64s
    finished_time: str
    faults: list[str]
    #: By rank.
    proof: list[Proof] = field(default_factory=list)
    #: By rank, of a run in GPUs' memory.
    gpu: list[GpuRow] = field(default_factory=list)
    #: The rows of the peers of `--against`, of the same form; block b here and block b there were
    #: neighbours in time.
    against: dict[str, Row] = field(default_factory=dict)
    #: Of an imported row only: out of place and, if it was run, in place. Such a row has no
    #: samples: its arrays have no iterations, and what ranks count is -1 or false.
    averages: list[Average] = field(default_factory=list)


def facts_of(row: RowFacts) -> dict[str, Any]:
    """The agreed facts of a row by name; works for a `Row` too."""
    return {item.name: getattr(row, item.name) for item in dataclasses.fields(RowFacts)}


def join_row(facts: RowFacts, parts: Sequence[RankRow], finished_time: str) -> Row:
    """The row of all ranks; `parts` are in rank order and every rank is there.

    Raises ValueError if a rank is missing or counted other iterations or batches: padding it
    would invent samples.
    """
    if [part.rank for part in parts] != list(range(len(parts))) or not parts:
        raise ValueError(f"row {facts.index}: parts of ranks {[part.rank for part in parts]}")
    for part in parts:
        if not np.array_equal(part.batches, parts[0].batches):
            raise ValueError(f"row {facts.index}: rank {part.rank} counted other batches")
        if part.against.keys() != parts[0].against.keys():
            raise ValueError(f"row {facts.index}: rank {part.rank} has other peers beside it")

    def column(name: str) -> NDArray[Any]:
        dtype = np.bool_ if name in RANK_FLAGS else np.int64
        return np.array([getattr(part, name) for part in parts], dtype=dtype)

    columns: dict[str, Any] = {name: column(name) for name in RANK_COLUMNS}

    def stacked(arrays: Sequence[NDArray[Any]], columns: int, what: str) -> NDArray[Any]:
        for part, array in zip(parts, arrays, strict=True):
            if array.shape != (columns,):
                raise ValueError(
                    f"row {facts.index}: rank {part.rank} has {array.size} of {columns} {what}"
                )
        return np.stack(arrays)

    return Row(
        **facts_of(facts),
        chunks=max(part.chunks for part in parts),
        samples={
            phase: stacked([part.samples[phase] for part in parts], facts.iterations, phase)
            for phase in PHASES
        },
        warmup={
            phase: stacked([part.warmup[phase] for part in parts], facts.warmup_iterations, phase)
            for phase in PHASES
        },
        batches=parts[0].batches,
        batch_start=stacked([part.batch_start for part in parts], parts[0].batches.size, "starts"),
        late=stacked([part.late for part in parts], parts[0].batches.size, "late flags"),
        finished_time=finished_time,
        faults=[part.fault for part in parts if part.fault],
        proof=[part.proof for part in parts],
        gpu=[part.gpu for part in parts if part.gpu is not None],
        against={
            name: join_row(facts, [part.against[name] for part in parts], finished_time)
            for name in parts[0].against
        },
        **columns,
    )


@dataclass(frozen=True)
class Fault:
    """Why a run ended early: what every rank had to say, and who said nothing."""

    kind: str
    exit_code: int
    texts: dict[int, str]
    missing_ranks: tuple[int, ...] = ()
    time: str = ""


@dataclass(frozen=True, eq=False)
class PartialRow:
    """A row that a crash left incomplete: the samples of the ranks that have any.

    `samples` is rank -> phase -> int64[iterations so far], `warmup` the same.
    """

    index: int
    size_bytes: int
    missing_ranks: tuple[int, ...]
    samples: dict[int, dict[str, Int64s]]
    warmup: dict[int, dict[str, Int64s]]


@dataclass
class Run:
    """A run as read from its file."""

    path: str
    header: RunHeader
    setup: SetupTimes
    rows: list[Row]
    complete: bool
    end_time: str = ""
    fault: Fault | None = None
    partial: list[PartialRow] = field(default_factory=list)

    @property
    def missing(self) -> list[str]:
        """What a whole run would have and this one lacks, in words; empty if nothing."""
        return (
            _missing_end(self)
            + missing_rows(self.header.plan, self.rows)
            + _missing_ranks(self)
            + _missing_samples(self)
        )


def missing_rows(plan: Plan, rows: Sequence[RowFacts]) -> list[str]:
    """One line about the planned rows that are not there, or nothing."""
    # By index: the same size may have been asked for twice.
    present = {row.index for row in rows}
    begun = max((row.cycle for row in rows), default=0) + 1
    planned = plan.rows(cycles_begun=begun)
    absent = [item for index, item in enumerate(planned) if index not in present]
    if not absent:
        return []
    cycles = {cycle for cycle, _ in planned}
    names = [
        format_size(size) + (f" (cycle {cycle})" if len(cycles) > 1 else "")
        for cycle, size in absent
    ]
    return [f"{len(absent)} of {len(planned)} rows: {_shortened(names)}"]


def _missing_end(run: Run) -> list[str]:
    if run.fault is not None:
        lines = [f"the end of the run: {run.fault.kind} (exit code {run.fault.exit_code})"]
        return lines + [
            f"rank {rank} said: {text}" if rank >= 0 else text
            for rank, text in sorted(run.fault.texts.items())
        ]
    if not run.complete:
        return ["the end of the run: its writer was killed, or is still running"]
    return []


def _missing_ranks(run: Run) -> list[str]:
    lines = []
    mapped = {info.rank for info in run.header.ranks}
    absent = [rank for rank in range(run.header.world) if rank not in mapped]
    if absent:
        lines.append(f"{len(absent)} of {run.header.world} ranks in the rank map: {_ranks(absent)}")
    if run.fault is not None and run.fault.missing_ranks:
        lines.append(f"an answer of {_ranks(run.fault.missing_ranks)}")
    return lines


def _missing_samples(run: Run) -> list[str]:
    lines = []
    # An imported run never had any; that is no loss of this file.
    for row in run.rows if not run.header.averages_only else []:
        expected = (run.header.world, row.iterations)
        for phase in PHASES:
            found = row.samples[phase].shape if phase in row.samples else (0, 0)
            if found != expected:
                lines.append(
                    f"samples of row {row.index} ({format_size(row.size_bytes)}), phase {phase}: "
                    f"{found[0]} x {found[1]} of {expected[0]} ranks x {expected[1]} iterations"
                )
    for part in run.partial:
        lines.append(
            f"part of row {part.index} ({format_size(part.size_bytes)}): "
            f"nothing whole of {_ranks(part.missing_ranks)}"
        )
    return lines


def _ranks(ranks: Sequence[int]) -> str:
    names = [str(rank) for rank in ranks]
    return ("rank " if len(names) == 1 else "ranks ") + _shortened(names)


def _shortened(names: Sequence[str], limit: int = 8) -> str:
    """A list for a line: all names, or the first few and how many more."""
    if len(names) <= limit:
        return ", ".join(names)
    return ", ".join(names[:limit]) + f" and {len(names) - limit} more"
