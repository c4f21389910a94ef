"""The trace of a row (`--trace`): time of each step of its last chunks, on every rank."""

from __future__ import annotations

from tcpx_mpi.arrays import Int64s, np

#: Of one chunk on one rank, in the order of `ChunkTrace` in native/engine/chunk_trace.h. Instants
#: are of the rank's CLOCK_MONOTONIC, -1 if there was no such step.
CHUNK_COLUMNS = (
    "iteration",
    "step",
    "chunk",
    #: 0 a send, 1 a receive, 2 a copy within the rank.
    "kind",
    "peer",
    "lane",
    "channel",
    "bytes",
    "comm",
    "message",
    "post",
    "posted",
    "done",
    "flushed",
    "launched",
    "unpacked",
    "finished",
    #: 0 moves, 1 reduces with an operand of this rank, 2 scales.
    "work",
)
#: Of a row of all ranks.
COLUMNS = ("rank", *CHUNK_COLUMNS)

SEND, RECEIVE, COPY = range(3)
#: Of `work`.
REDUCES = 1
#: Columns that older files lack: nothing was flushed, and whether it reduced is unknown.
YOUNGER = ("flushed", "work")


def no_chunks() -> Int64s:
    return np.zeros((0, len(CHUNK_COLUMNS)), np.int64)


def no_trace() -> Int64s:
    return np.zeros((0, len(COLUMNS)), np.int64)


def later(trace: Int64s, iterations: int) -> Int64s:
    """The same chunks, in iterations that many further on."""
    moved: Int64s = trace.copy()
    moved[:, CHUNK_COLUMNS.index("iteration")] += iterations
    return moved


def joined_trace(traces: list[Int64s]) -> Int64s:
    """The traces of all ranks, each with its rank."""
    parts = [
        np.column_stack([np.full(len(trace), rank, np.int64), trace])
        for rank, trace in enumerate(traces)
    ]
    joined: Int64s = np.concatenate([no_trace(), *parts])
    return joined
