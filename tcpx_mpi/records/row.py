"""A row: what is agreed about it, every rank's part of it, and all of it. No file is touched here.

A `RowFacts` is what all ranks agree on about a row, a `RankRow` is one rank's part of it, and
`join_row` makes the `Row` of all ranks out of them; it is used live and when journals are merged.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tcpx_mpi.arrays import Bools, Float64s, Int64s, np
from tcpx_mpi.records import mapped_arrays
from tcpx_mpi.records.clock import RowClock
from tcpx_mpi.records.gpu import GpuRow
from tcpx_mpi.records.trace import joined_trace, no_chunks, no_trace

if TYPE_CHECKING:
    from numpy.typing import NDArray


#: The phases of a row's samples. Durations count from the start of the iteration; "start" is
#: that instant on the rank's CLOCK_MONOTONIC.
PHASES = ("iteration", "send", "receive", "start")
#: One more, of a run that flushes receives: of the time of "receive" that behind the plugin's last
#: "done".
FLUSH = "flush"


#: Places beside that of the row itself: in place, and under the load of a pattern that has one.
IN_PLACE, LOADED = "in_place", "loaded"


class SideKey(NamedTuple):
    """A side of a row: its transport, and where."""

    #: A baseline of `--against`; "" for the plugin.
    transport: str = ""
    #: IN_PLACE, LOADED or "".
    place: str = ""

    @classmethod
    def of_name(cls, name: str) -> SideKey:
        """The side that files and tables call so."""
        if name in (IN_PLACE, LOADED):
            return cls("", name)
        transport = name.removesuffix(f"_{IN_PLACE}")
        return cls(transport, IN_PLACE) if transport not in ("", name) else cls(name)

    @property
    def name(self) -> str:
        """As files and tables call it; "" for the row itself."""
        return "_".join(filter(None, self))


#: The side that is the row itself: the plugin's.
ITSELF = SideKey()


@dataclass(kw_only=True, eq=False)
class RowFacts:
    """The facts that every rank knows about a row before it is run."""

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
    #: Planned before the row (0: until something is reached), counted after it.
    iterations: int
    warmup_iterations: int
    #: What ended it; `tcpx_mpi.run.stopping.ENDINGS`.
    ended_by: str = "iterations"
    #: Who sends to whom ("0>2 3>1") where the plan does not say: in a row in which suspects of
    #: `pairs --all` met others again.
    pairs: str = ""
    #: The algorithm of a program of nccl-tests; "" for other patterns.
    algo: str = ""
    #: Iterations that are intended to begin in a second (--rate); 0: each after the one before.
    rate_per_s: float = 0.0


@dataclass(frozen=True)
class ObservedPlacement:
    """The place in which one rank's work was seen while a row's batches ran; -1 and "" are unknown.

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
    #: What the rank's node wanted of its CPUs from the row's start to its end, by anybody, and what
    #: of that its hypervisor gave to others.
    node_wanted_ns: int = -1
    node_stolen_ns: int = -1


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
    #: CPU time in the batches that the driving thread had not: beside a baseline, the idle side's.
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
    #: float64[peer, block], ns: time from the start of an iteration until all bytes of a peer were
    #: there, of one iteration a block; negative: before the start, NaN: no peer. Empty if a rank
    #: receives from one peer or none.
    arrivals: Float64s = field(default_factory=lambda: np.zeros((0, 0)))
    #: Iterations in each block.
    arrival_blocks: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    #: int64[chunk, `trace.CHUNK_COLUMNS`]: the last chunks, of a run with `--trace`.
    trace: Int64s = field(default_factory=no_chunks)
    proof: ObservedPlacement = ObservedPlacement()
    #: Of a run in a GPU's memory.
    gpu: GpuRow | None = None
    #: What ran in blocks between these batches: baselines, and the plugin in place or under load.
    sides: dict[SideKey, RankRow] = field(default_factory=dict)


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
    """One side of a row as another program told it, in place of samples; NaN if it did not.

    An average over ranks and iterations, by its own rules. `wrong` counts elements, not bytes,
    and is -1 if it did not check.
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
    #: Wrong bytes; -1 if the rank did not check.
    wrong: Int64s
    payload_bytes_sent: Int64s
    payload_bytes_received: Int64s
    #: Phase -> int64[rank, iteration], and the same of the warm-ups; of a row that is in a file
    #: `StoredSamples`.
    samples: Mapping[str, Int64s]
    warmup: Mapping[str, Int64s]
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
    #: float64[rank, peer, block], or empty if no rank tells its peers apart.
    arrivals: Float64s = field(default_factory=lambda: np.zeros((0, 0, 0)))
    arrival_blocks: Int64s = field(default_factory=lambda: np.zeros(0, np.int64))
    #: int64[chunk, `trace.COLUMNS`], of a run with `--trace`.
    trace: Int64s = field(default_factory=no_trace)
    #: By rank.
    proof: list[ObservedPlacement] = field(default_factory=list)
    #: By rank, of a run in GPUs' memory.
    gpu: list[GpuRow] = field(default_factory=list)
    #: The other sides of the row, of the same form; block b here and block b there were neighbours
    #: in time.
    sides: dict[SideKey, Row] = field(default_factory=dict)
    #: Directory for working copies of its long series; None: the system's for temporary files.
    spool: str | None = None
    #: Of an imported row only: out of place and, if it was run, in place. Such a row has no
    #: samples: its arrays have no iterations, and what ranks count is -1 or false.
    averages: list[Average] = field(default_factory=list)
    #: Of a run whose ranks read several clocks: how those stood to each other.
    clock: RowClock | None = None

    def of_plugin(self) -> list[Row]:
        """The sides of the plugin itself: it, and in place or under load if it was run."""
        own = [SideKey(place=IN_PLACE), SideKey(place=LOADED)]
        return [self, *(self.sides[side] for side in own if side in self.sides)]


def facts_of(row: RowFacts) -> dict[str, Any]:
    """The agreed facts of a row by name; works for a `Row` too."""
    return {item.name: getattr(row, item.name) for item in dataclasses.fields(RowFacts)}


def counted(part: RankRow) -> RankRow:
    """A rank's part without its samples, which go another way: `series_of`."""
    sides = {side: counted(other) for side, other in part.sides.items()}
    return dataclasses.replace(part, samples={}, warmup={}, sides=sides)


class SeriesKey(NamedTuple):
    """Which of the series of a rank's part."""

    side: SideKey
    #: "samples" or "warmup".
    kind: str
    phase: str


def series_of(part: RankRow) -> dict[SeriesKey, Int64s]:
    """All samples of a rank's part, those of its other sides too."""
    return {
        SeriesKey(side, kind, phase): of_phase
        for side, of_side in {ITSELF: part, **part.sides}.items()
        for kind, values in (("samples", of_side.samples), ("warmup", of_side.warmup))
        for phase, of_phase in values.items()
    }


def join_row(
    facts: RowFacts,
    parts: Sequence[RankRow],
    finished_time: str,
    series: Mapping[SeriesKey, Int64s] | None = None,
    spool: str | None = None,
) -> Row:
    """The row of all ranks; `parts` are in rank order and every rank is there.

    `series` are the samples, those of `series_of` as int64[rank, iteration]; without, they are in
    the parts. `spool` is as in `mapped_arrays`. Raises ValueError if a rank is missing or counted
    other iterations or batches: padding it would invent samples.
    """
    _require_same_shape(facts, parts)
    if series is None:
        by_rank = [series_of(part) for part in parts]
        series = {
            key: _stacked(facts, [of_rank[key] for of_rank in by_rank], spool) for key in by_rank[0]
        }
    return _joined(facts, parts, finished_time, series, spool)


def _require_same_shape(facts: RowFacts, parts: Sequence[RankRow]) -> None:
    if [part.rank for part in parts] != list(range(len(parts))) or not parts:
        raise ValueError(f"row {facts.index}: parts of ranks {[part.rank for part in parts]}")
    for part in parts:
        if not np.array_equal(part.batches, parts[0].batches):
            raise ValueError(f"row {facts.index}: rank {part.rank} counted other batches")
        if part.sides.keys() != parts[0].sides.keys():
            raise ValueError(f"row {facts.index}: rank {part.rank} has other peers beside it")
    for side in parts[0].sides:
        _require_same_shape(facts, [part.sides[side] for part in parts])


def _joined(
    facts: RowFacts,
    parts: Sequence[RankRow],
    finished_time: str,
    series: Mapping[SeriesKey, Int64s],
    spool: str | None,
    side: SideKey = ITSELF,
) -> Row:
    """The row itself, with its other sides, or one of those."""

    def taken(kind: str, columns: int) -> dict[str, Int64s]:
        found = {key.phase: of for key, of in series.items() if key[:2] == (side, kind)}
        for phase, values in found.items():
            _require_shape(facts, values, (len(parts), columns), phase)
        return found

    def column(name: str) -> NDArray[Any]:
        dtype = np.bool_ if name in RANK_FLAGS else np.int64
        return np.array([getattr(part, name) for part in parts], dtype=dtype)

    def by_batch(name: str) -> NDArray[Any]:
        values = np.stack([getattr(part, name) for part in parts])
        _require_shape(facts, values, (len(parts), parts[0].batches.size), name)
        return values

    columns: dict[str, Any] = {name: column(name) for name in RANK_COLUMNS}
    arrivals, arrival_blocks = _joined_arrivals(facts, parts, spool)
    return Row(
        **facts_of(facts),
        arrivals=arrivals,
        arrival_blocks=arrival_blocks,
        chunks=max(part.chunks for part in parts),
        samples=taken("samples", facts.iterations),
        warmup=taken("warmup", facts.warmup_iterations),
        batches=parts[0].batches,
        batch_start=by_batch("batch_start"),
        late=by_batch("late"),
        finished_time=finished_time,
        faults=[part.fault for part in parts if part.fault],
        trace=joined_trace([part.trace for part in parts]),
        proof=[part.proof for part in parts],
        gpu=[part.gpu for part in parts if part.gpu is not None],
        spool=spool,
        sides={
            other: _joined(
                facts, [part.sides[other] for part in parts], finished_time, series, spool, other
            )
            for other in parts[0].sides
        },
        **columns,
    )


def _stacked(facts: RowFacts, series: Sequence[Int64s], spool: str | None) -> Int64s:
    """The same series of all ranks: int64[rank, iteration]."""
    for rank, values in enumerate(series):
        if values.size != series[0].size:
            raise ValueError(
                f"row {facts.index}: rank {rank} has {values.size} samples, others {series[0].size}"
            )
    stacked: Int64s = mapped_arrays.empty((len(series), series[0].size), np.int64, spool)
    for values, target in zip(series, stacked, strict=True):
        target[:] = values
    return stacked


def _require_shape(
    facts: RowFacts, values: NDArray[Any], shape: tuple[int, int], what: str
) -> None:
    if values.shape != shape:
        raise ValueError(f"row {facts.index}: {what} of {values.shape} in place of {shape}")


def _joined_arrivals(
    facts: RowFacts, parts: Sequence[RankRow], spool: str | None
) -> tuple[Float64s, Int64s]:
    """A rank that does not tell its peers apart has NaN if others do."""
    blocks = max((part.arrival_blocks for part in parts), key=len)
    if not blocks.size:
        return np.zeros((0, 0, 0)), blocks
    shape = (len(parts), blocks.size)
    for part in parts:
        if part.arrivals.size and (
            part.arrivals.shape != shape or not np.array_equal(part.arrival_blocks, blocks)
        ):
            raise ValueError(f"row {facts.index}: rank {part.rank} has other blocks of arrivals")
    # Of many ranks it is megabytes a row, and rank 0 keeps all rows.
    joined: Float64s = mapped_arrays.empty((len(parts), *shape), spool=spool)
    for rank, part in enumerate(parts):
        joined[rank] = part.arrivals if part.arrivals.size else np.nan
    return joined, blocks
