"""Numbers out of the samples of a row: numpy in, numbers out, nothing read or written.

Unknown is NaN, never 0. Times are nanoseconds and rates bytes a nanosecond, which are GB/s.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from tcpx_mpi.ratios import Ratio
    from tcpx_mpi.records import Average

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]

#: How likely the sample's maximum must be to lie above a percentile before we print one.
_PERCENTILE_CONFIDENCE = 0.95


class ProofLike(Protocol):
    """What is read of a rank's proof; `tcpx_mpi.records.Proof` is one."""

    @property
    def driver_cpus(self) -> str: ...
    @property
    def driver_preemptions(self) -> int: ...
    @property
    def plugin_cpus(self) -> str: ...
    @property
    def nic_sent(self) -> int: ...
    @property
    def nic_received(self) -> int: ...
    @property
    def nic_drops(self) -> int: ...
    @property
    def remote_bytes(self) -> int: ...


class RowLike(Protocol):
    """What `summarise` reads of a row of the record; `tcpx_mpi.records.Row` is one."""

    @property
    def index(self) -> int: ...
    @property
    def cycle(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def type_name(self) -> str: ...
    @property
    def redop(self) -> str: ...
    @property
    def root(self) -> int: ...
    @property
    def agg(self) -> int: ...
    @property
    def messages_per_copy(self) -> int: ...
    @property
    def chunks(self) -> int: ...
    @property
    def iterations(self) -> int: ...
    @property
    def checked(self) -> NDArray[np.bool_]: ...
    @property
    def receives(self) -> NDArray[np.bool_]: ...
    @property
    def wrong(self) -> Int64s: ...
    @property
    def payload_bytes_sent(self) -> Int64s: ...
    @property
    def payload_bytes_received(self) -> Int64s: ...
    @property
    def samples(self) -> Mapping[str, Int64s]: ...
    @property
    def late(self) -> NDArray[np.bool_]: ...
    @property
    def prepare_ns(self) -> Int64s: ...
    @property
    def check_ns(self) -> Int64s: ...
    @property
    def cpu_user_ns(self) -> Int64s: ...
    @property
    def cpu_system_ns(self) -> Int64s: ...
    @property
    def cpu_others_ns(self) -> Int64s: ...
    @property
    def batches(self) -> Int64s: ...
    @property
    def net_sent(self) -> Int64s: ...
    @property
    def net_received(self) -> Int64s: ...
    @property
    def tcp_retransmits(self) -> Int64s: ...
    @property
    def proof(self) -> Sequence[ProofLike]: ...
    @property
    def finished_time(self) -> str: ...
    @property
    def faults(self) -> Sequence[str]: ...
    @property
    def averages(self) -> Sequence[Average]: ...


@dataclass(frozen=True, eq=False)
class Distribution:
    """The spread of one set of times in nanoseconds; NaN where there are too few of them."""

    count: int
    min: float
    max: float
    mean: float
    stdev: float
    cv: float
    p50: float
    p95: float
    p99: float
    p99_9: float


@dataclass(frozen=True, eq=False)
class RowSummary:
    """A row of the table as numbers, computed from its samples alone."""

    index: int
    cycle: int
    size_bytes: int
    count: int
    type_name: str
    redop: str
    root: int
    agg: int
    iterations: int
    #: Mean time of one copy of the pattern by rank; NaN for a rank that receives nothing.
    time_ns_by_rank: Float64s
    #: The row's time: one rank's, or an average over the ranks that receive, as `-a` asks.
    time_ns: float
    algbw: float
    busbw: float
    #: The slowest receiving rank and its mean time; -1 and NaN where nobody receives.
    t_max_rank: int
    t_max_ns: float
    #: Per iteration, the maximum over the ranks that receive: every one, and their spread
    #: without the first `per_iter_skip`.
    iteration_max_ns: Float64s
    per_iteration: Distribution
    #: Millions of messages a rank receives a second.
    mmsg_per_s: float
    #: True if every receiving rank checked every byte, and there was a byte to check.
    checked: bool
    #: Wrong bytes of all ranks, or None where the row is not `checked`; of an imported row what
    #: the other program calls wrong.
    wrong: int | None
    #: Wrong bytes that were found, on both sides, even where another rank did not check.
    wrong_found: int
    payload_received: int
    payload_received_checked: int
    payload_sent: int
    #: Bytes by TCP_INFO over all ranks; None unless every rank could read it.
    net_sent: int | None
    net_received: int | None
    tcp_retransmits: int | None
    #: Bytes that crossed the sockets of a receiving rank in a nanosecond of its batches; NaN
    #: unless every rank could read them.
    net_bw: float
    #: Time inside batches and time spent on poison, generation and checks, over all ranks. Of an
    #: imported row these two, the payload and the late starts are -1, unknown.
    measured_ns: int
    overhead_ns: int
    cpu_ns: float
    cpu_s_per_gb: float
    #: Agreed starts that a rank missed, of all ranks' starts.
    late_starts: int
    starts: int
    finished_time: str
    faults: tuple[str, ...]
    #: Time in batches by rank.
    elapsed_ns_by_rank: Float64s = field(default_factory=lambda: np.empty(0))
    #: Chunks an iteration on the rank that has most; 0 where unknown.
    chunks: int = 0
    #: What was seen of each rank's threads and NIC; empty if nobody looked.
    proof: Sequence[ProofLike] = ()
    #: The ratio to every peer that ran beside the plugin, by its name.
    against: Mapping[str, Ratio] = field(default_factory=dict)
    #: The other side of an imported row, where its program ran it; we run nothing in place.
    in_place: RowSummary | None = None

    @property
    def prepare_and_check_s(self) -> float:
        """Seconds of `overhead_ns`; NaN where they are unknown."""
        return self.overhead_ns / 1e9 if self.overhead_ns >= 0 else math.nan


def minimum_samples(percentile: float) -> int:
    """Samples below which a percentile is not stated: 59 for 95, 299 for 99, 2995 for 99.9.

    With that many the largest sample exceeds the true percentile with a chance of 95 %. The
    median and below need one sample: they are not a claim about a tail. Raises ValueError
    outside 0 to 100; 100 itself is outside, for no number of samples bounds the maximum.
    """
    if not 0 <= percentile < 100:
        raise ValueError(f"percentile {percentile} is not within 0 and below 100")
    if percentile <= 50:
        return 1
    return math.ceil(math.log(1 - _PERCENTILE_CONFIDENCE) / math.log(percentile / 100))


def percentile_nearest_rank(values: Float64s | Int64s, percentile: float) -> float | None:
    """The nearest-rank percentile of `values`, a value that occurred, or None if too few.

    A NaN among the values makes the result NaN: an unknown sample might be anywhere.
    """
    count = int(values.size)
    if count < minimum_samples(percentile):
        return None
    # The subtraction undoes the rounding of, say, 99.9 / 100 * 3000 = 2997.0000000000005.
    position = max(math.ceil(percentile * count / 100 - 1e-9) - 1, 0)
    ordered = np.sort(values.astype(np.float64))
    if math.isnan(float(ordered[-1])):
        return math.nan
    return float(ordered[position])


def describe(times_ns: Float64s | Int64s) -> Distribution:
    """The spread of a set of times; NaN for each figure that so few samples cannot give."""
    values = times_ns.astype(np.float64)
    count = int(values.size)

    def percentile(p: float) -> float:
        value = percentile_nearest_rank(values, p)
        return math.nan if value is None else value

    mean = float(values.mean()) if count else math.nan
    # The sample's standard deviation (n - 1): of a single time it is unknown, not 0.
    stdev = float(values.std(ddof=1)) if count > 1 else math.nan
    return Distribution(
        count=count,
        min=float(values.min()) if count else math.nan,
        max=float(values.max()) if count else math.nan,
        mean=mean,
        stdev=stdev,
        cv=stdev / mean if mean > 0 else math.nan,
        p50=percentile(50),
        p95=percentile(95),
        p99=percentile(99),
        p99_9=percentile(99.9),
    )


def average_over_ranks(times_ns: Float64s, average: int) -> float:
    """One time out of the receiving ranks' times in rank order, as `-a` asks.

    `average` is 0 for rank 0 (the lowest receiving rank where rank 0 receives nothing), 1 for
    the mean, 2 for the minimum, 3 for the maximum. NaN if nobody receives, and for 1 to 3 if
    one of the times is unknown.
    """
    if times_ns.size == 0:
        return math.nan
    choose = {0: times_ns[0], 1: times_ns.mean(), 2: times_ns.min(), 3: times_ns.max()}
    return float(choose[average])


def rate(amount: float, time_ns: float) -> float:
    """`amount` a nanosecond; NaN for an unknown time, and for none at all."""
    return amount / time_ns if time_ns > 0 else math.nan


def mean_bus_bandwidth(summaries: Sequence[RowSummary]) -> float:
    """The mean of the bus bandwidths of all rows and sides, as nccl-tests; NaN without rows."""
    sides = [side for s in summaries for side in (s, s.in_place) if side is not None]
    if not sides:
        return math.nan
    return float(np.mean([side.busbw for side in sides]))


@dataclass(frozen=True)
class SlowestRank:
    """The rank that was slowest most often, and how far behind it was at its worst.

    `ratio` is its time over the median of the receiving ranks, in the row of `size_bytes`.
    """

    rank: int
    rows: int
    of_rows: int
    ratio: float
    size_bytes: int


def slowest_rank(summaries: Sequence[RowSummary]) -> SlowestRank | None:
    """The slowest rank over a run; None where no row has two receiving ranks to compare."""
    comparable = [s for s in summaries if int((~np.isnan(s.time_ns_by_rank)).sum()) > 1]
    if not comparable:
        return None
    times_slowest = Counter(summary.t_max_rank for summary in comparable)
    # Of equally often slowest ranks the lowest, so that the same file gives the same answer.
    rank = min(times_slowest, key=lambda r: (-times_slowest[r], r))
    worst = max(
        (s for s in comparable if s.t_max_rank == rank),
        key=lambda s: s.t_max_ns / float(np.nanmedian(s.time_ns_by_rank)),
    )
    return SlowestRank(
        rank=rank,
        rows=times_slowest[rank],
        of_rows=len(comparable),
        ratio=worst.t_max_ns / float(np.nanmedian(worst.time_ns_by_rank)),
        size_bytes=worst.size_bytes,
    )


def summarise(
    row: RowLike,
    average: int,
    busbw_factor: float,
    time_divisor: int,
    per_iter_skip: int = 0,
) -> RowSummary:
    """The numbers of one row of the table.

    A rank's time is the sum of its batches over iterations, aggregation and `time_divisor` (2
    for a ping-pong, whose time is half a round trip); in the back-to-back mode that is the mean
    of its iterations. Only ranks that receive are timed: a sender's done means "copied to the
    kernel". An imported row has no samples: its figures are those that were told.
    """
    if row.averages:
        return _summarise_averages(row)
    receives = row.receives.astype(bool)
    copies = row.agg * time_divisor
    iteration_ns = row.samples["iteration"].astype(np.float64) / copies
    # A negative sample stands for "none", which must not enter a mean as if it were a time.
    iteration_ns[iteration_ns < 0] = math.nan

    time_ns_by_rank = np.full(receives.size, math.nan)
    iteration_max_ns = np.empty(0)
    t_max_rank, t_max_ns = -1, math.nan
    if receives.any() and row.iterations > 0:
        time_ns_by_rank[receives] = iteration_ns[receives].mean(axis=1)
        iteration_max_ns = iteration_ns[receives].max(axis=0)
        # argmax takes NaN for the largest: a rank whose time is unknown is not passed over.
        t_max_rank = int(np.flatnonzero(receives)[np.argmax(time_ns_by_rank[receives])])
        t_max_ns = float(time_ns_by_rank[t_max_rank])
    time_ns = average_over_ranks(time_ns_by_rank[receives], average)
    algbw = 0.0 if row.size_bytes == 0 else rate(row.size_bytes, time_ns)

    checked = bool(row.size_bytes > 0 and receives.any() and row.checked[receives].all())
    found = row.wrong[row.wrong > 0]
    payload_received = int(row.payload_bytes_received.sum())
    cpu_ns = _known_sum(row.cpu_user_ns, row.cpu_system_ns)
    return _summary(
        row,
        time_ns_by_rank=time_ns_by_rank,
        time_ns=time_ns,
        algbw=algbw,
        busbw=algbw * busbw_factor,
        t_max_rank=t_max_rank,
        t_max_ns=t_max_ns,
        iteration_max_ns=iteration_max_ns,
        per_iteration=describe(iteration_max_ns[per_iter_skip:]),
        mmsg_per_s=rate(row.messages_per_copy, time_ns) * 1e3,
        checked=checked,
        wrong=int(found.sum()) if checked else None,
        wrong_found=int(found.sum()),
        payload_received=payload_received,
        payload_received_checked=int(row.payload_bytes_received[row.checked].sum()),
        payload_sent=int(row.payload_bytes_sent.sum()),
        net_sent=_total_if_known(row.net_sent),
        net_received=_total_if_known(row.net_received),
        tcp_retransmits=_total_if_known(row.tcp_retransmits),
        net_bw=_net_bandwidth(row, receives),
        measured_ns=int(np.maximum(row.samples["iteration"], 0).sum()),
        overhead_ns=int(row.prepare_ns.sum() + row.check_ns.sum()),
        cpu_ns=cpu_ns,
        # Seconds a 1e9 bytes are nanoseconds a byte.
        cpu_s_per_gb=cpu_ns / payload_received if payload_received > 0 else math.nan,
        late_starts=int(row.late.sum()),
        starts=int(row.late.size),
        elapsed_ns_by_rank=np.maximum(row.samples["iteration"], 0).sum(axis=1).astype(np.float64),
        proof=tuple(row.proof),
        chunks=row.chunks,
    )


def _summarise_averages(row: RowLike) -> RowSummary:
    """An imported row: what was told of it, and of nothing else a figure."""
    sides = {average.side: _summary_as_told(row, average) for average in row.averages}
    found = sum(side.wrong_found for side in sides.values())
    return dataclasses.replace(
        sides["out_of_place"], in_place=sides.get("in_place"), wrong_found=found
    )


def _summary_as_told(row: RowLike, told: Average) -> RowSummary:
    checked = told.wrong >= 0
    return _summary(
        row,
        time_ns_by_rank=np.full(row.receives.size, math.nan),
        time_ns=told.time_ns,
        algbw=told.algbw,
        busbw=told.busbw,
        t_max_rank=-1,
        t_max_ns=math.nan,
        iteration_max_ns=np.empty(0),
        per_iteration=describe(np.empty(0)),
        mmsg_per_s=math.nan,
        checked=checked,
        wrong=told.wrong if checked else None,
        wrong_found=max(told.wrong, 0),
        payload_received=-1,
        payload_received_checked=-1,
        payload_sent=-1,
        net_sent=None,
        net_received=None,
        tcp_retransmits=None,
        net_bw=math.nan,
        measured_ns=-1,
        overhead_ns=-1,
        cpu_ns=math.nan,
        cpu_s_per_gb=math.nan,
        late_starts=-1,
        starts=0,
    )


def _summary(row: RowLike, **figures: Any) -> RowSummary:
    """A summary of these figures, with what is taken over from the row as it is."""
    return RowSummary(
        index=row.index,
        cycle=row.cycle,
        size_bytes=row.size_bytes,
        count=row.count,
        type_name=row.type_name,
        redop=row.redop,
        root=row.root,
        agg=row.agg,
        iterations=row.iterations,
        finished_time=row.finished_time,
        faults=tuple(row.faults),
        **figures,
    )


def _net_bandwidth(row: RowLike, receives: NDArray[np.bool_]) -> float:
    elapsed_ns = float(np.maximum(row.samples["iteration"][receives], 0).sum())
    received = _total_if_known(row.net_received[receives])
    return rate(received, elapsed_ns) if received is not None else math.nan


def _total_if_known(values: Int64s) -> int | None:
    """The sum, or None if there is no value or one of them is -1 for unknown."""
    if values.size == 0 or bool((values < 0).any()):
        return None
    return int(values.sum())


def _known_sum(*columns: Int64s) -> float:
    """The sum of all columns, or NaN if a value of them is -1 for unknown."""
    totals = [_total_if_known(column) for column in columns]
    return math.nan if None in totals else float(sum(t for t in totals if t is not None))
