"""One batch of one transport on one rank: from its timed loop's stamps to samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tcpx_mpi import _native
from tcpx_mpi.arrays import Int64s
from tcpx_mpi.records import FLUSH, RankRow
from tcpx_mpi.records.trace import CHUNK_COLUMNS, later
from tcpx_mpi.stragglers.arrivals import NOT_SENT


@dataclass
class Batch:
    """The samples of one batch on this rank; int64[iterations] in ns."""

    samples: dict[str, Int64s]
    start_ns: int
    late: bool
    #: Time from the start to the end of the batch.
    elapsed_ns: int
    #: Peers that are told apart, and int64[iteration, source], ns: time from the start of the
    #: iteration until all of a peer's bytes were there; negative: before the start; NOT_SENT: there
    #: were none. Empty if lanes are timed.
    sources: list[int]
    arrivals: Int64s
    #: int64[chunk, `trace.CHUNK_COLUMNS`] of a traced loop: its last chunks.
    trace: Int64s


def batch_of(stamps: _native.Stamps, timed_lanes: tuple[int, int] | None = None) -> Batch:
    """Durations from instants: an iteration starts when the one before it is complete.

    With `timed_lanes` its time runs from the last byte of the first lane to the last of the second;
    the other phases still run from its start.
    """
    end = stamps.end
    start = np.concatenate([[stamps.start], end[:-1]]).astype(np.int64)

    def since_start(done: Int64s) -> Int64s:
        # A receive posted early may be complete before its own iteration starts: 0, not negative.
        return np.where(done < 0, -1, np.maximum(done - start, 0)).astype(np.int64)

    # Peers that Python or NCCL drive do not tell their sources apart.
    sources = stamps.sources
    done = stamps.source_done.reshape(-1, len(sources)) if sources else start[:, None][:, :0]
    iteration = end - start
    if timed_lanes is not None:
        lanes = np.array(stamps.source_lanes)
        first, last = (done[:, lanes == lane].max(axis=1) for lane in timed_lanes)
        iteration = last - first
        sources, done = [], done[:, :0]
    elif any(stamps.source_lanes):  # what runs beside a pattern has lanes of its own
        own = [place for place, lane in enumerate(stamps.source_lanes) if lane == 0]
        sources, done = [sources[place] for place in own], done[:, own]
    samples = {
        "iteration": iteration,
        "send": since_start(stamps.send_done),
        "receive": since_start(stamps.receive_done),
        "start": start,
    }
    if stamps.flush_begun.size:
        after = np.maximum(stamps.receive_done - stamps.flush_begun, 0)
        samples[FLUSH] = np.where(stamps.flush_begun < 0, -1, after).astype(np.int64)
    trace = stamps.trace.reshape(-1, len(CHUNK_COLUMNS))
    elapsed_ns = int(end[-1]) - stamps.start if end.size else 0
    arrivals = done - start[:, None]
    if done.size and done.min() < 0:
        arrivals[done < 0] = NOT_SENT
    return Batch(
        samples, stamps.start, stamps.late, elapsed_ns, sources, arrivals, trace
    )  # fmt: skip


def joined_batch(parts: list[Batch]) -> Batch:
    if len(parts) == 1:
        return parts[0]
    samples = {
        phase: np.concatenate([part.samples[phase] for part in parts]) for phase in parts[0].samples
    }
    arrivals = np.concatenate([part.arrivals for part in parts])
    late = any(part.late for part in parts)
    # Each part counts its iterations from 0.
    lengths = [part.samples["iteration"].size for part in parts]
    trace = np.concatenate([later(part.trace, sum(lengths[:i])) for i, part in enumerate(parts)])
    elapsed_ns = sum(part.elapsed_ns for part in parts)
    return Batch(samples, parts[0].start_ns, late, elapsed_ns, parts[0].sources, arrivals, trace)


def add_network(row: RankRow, before: _native.SocketTotals, after: _native.SocketTotals) -> None:
    """Bytes by TCP_INFO, -1 if not every socket of the plugin can be read."""
    known = after["readable"] > 0 and after["readable"] == after["count"]
    if not known or row.net_sent < 0:
        row.net_sent = row.net_received = row.tcp_retransmits = -1
        return
    row.net_sent += after["sent"] - before["sent"]
    row.net_received += after["received"] - before["received"]
    row.tcp_retransmits += after["retransmits"] - before["retransmits"]
