"""The trace of a row in memory, in the HDF5 file and in a journal."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import invented
import numpy as np

from tcpx_mpi.records import Journal, RunWriter, join_row, read_journal, read_run
from tcpx_mpi.records.trace import CHUNK_COLUMNS, COLUMNS, later
from tcpx_mpi.transport.samples import batch_of, joined_batch

CHUNKS = np.arange(3 * len(CHUNK_COLUMNS), dtype=np.int64).reshape(3, -1)


def test_a_trace_comes_back_from_the_file_with_its_ranks(tmp_path: Path) -> None:
    facts = invented.row_facts(0)
    parts = [invented.rank_row(rank, facts, trace=CHUNKS + rank) for rank in range(4)]
    row = join_row(facts, parts, "then")
    writer = RunWriter(str(tmp_path / "o.h5"))
    writer.write_header(invented.run_header())
    writer.append_row(row)
    writer.append_row(invented.row(1))
    writer.finish()
    first, second = read_run(writer.path).rows
    assert first.trace[:, 0].tolist() == np.repeat(range(4), 3).tolist()
    assert np.array_equal(first.trace[3:6, 1:], CHUNKS + 1)
    assert second.trace.shape == (0, len(COLUMNS))


def test_a_trace_comes_back_from_a_journal(tmp_path: Path) -> None:
    facts = invented.row_facts(0)
    journal = Journal(str(tmp_path), "run", 1, 2)
    journal.append_result(facts, invented.rank_row(1, facts, trace=CHUNKS))
    part = read_journal(journal.path).rows[0].part
    assert part is not None
    assert np.array_equal(part.trace, CHUNKS)


def test_iterations_of_parts_of_a_batch_follow_each_other() -> None:
    times = np.array([5, 9], np.int64)
    none = np.zeros(0, np.int64)
    stamps: Any = SimpleNamespace(
        start=1, late=False, end=times, send_done=times, receive_done=times,
        sources=[], source_lanes=[], source_done=none, trace=CHUNKS.ravel(), flush_begun=none,
    )  # fmt: skip
    trace = joined_batch([batch_of(stamps), batch_of(stamps)]).trace
    assert np.array_equal(trace, np.concatenate([CHUNKS, later(CHUNKS, 2)]))
    assert (trace[3:, 0] == CHUNKS[:, 0] + 2).all()
