"""Rows that are packed are the rows that they were, in a part of their memory."""

from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
from invented import child_environment, row, run_header, setup_times

from tcpx_mpi.records import Packed, Row, RunWriter, Scratch
from tcpx_mpi.report import summarise_row


def test_a_row_with_its_samples_in_a_file_comes_out_as_it_went_in(tmp_path: Path) -> None:
    rows: Packed[Row] = Packed()
    writer = RunWriter(str(tmp_path / "o.h5"))
    writer.write_header(run_header())
    writer.write_setup(setup_times())
    for keeper in (writer, Scratch(str(tmp_path))):
        rows.append(keeper.append_row(row(index=len(rows))))
    writer.finish()
    for index, found in enumerate(rows):
        expected = row(index=index)
        assert (found.index, found.size_bytes) == (index, expected.size_bytes)
        assert found.proof == expected.proof
        for phase, values in expected.samples.items():
            assert np.array_equal(found.samples[phase], values)
    assert [each.index for each in rows[-1:]] == [1]


def test_a_long_array_is_kept_and_not_copied() -> None:
    values = np.zeros(1 << 16)
    packed: Packed[dict[str, object]] = Packed()
    packed.append({"long": values, "short": np.ones(2)})
    assert packed[0]["long"] is values


def test_a_thousand_rows_with_their_summaries_take_less_than_4_mb(tmp_path: Path) -> None:
    keeper, header = Scratch(str(tmp_path)), run_header(2)
    rows: Packed[object] = Packed()

    def add(count: int) -> None:
        for _ in range(count):
            stored = keeper.append_row(row(world=2))
            rows.append(stored)
            rows.append(summarise_row(header, stored))

    add(2)  # what is imported and computed once
    tracemalloc.start()
    add(100)
    gc.collect()
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken / 100 < 4000


GROWS = """
import dataclasses, re, sys
from pathlib import Path
from invented import FINISHED, rank_row, row_facts, run_header, setup_times
from tcpx_mpi.records import RunWriter, join_row
def taken():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
writer = RunWriter(sys.argv[1])
writer.write_header(run_header(2))
writer.write_setup(setup_times(2))
for index in range(150):
    if index == 50:
        before = taken()
    facts = dataclasses.replace(row_facts(), index=index)
    writer.append_row(join_row(facts, [rank_row(rank, facts) for rank in range(2)], FINISHED))
print(taken() - before)
"""


def test_what_hdf5_has_written_stays_out_of_memory(tmp_path: Path) -> None:
    command = [sys.executable, "-c", GROWS, str(tmp_path / "o.h5")]
    done = subprocess.run(
        command, env=child_environment(), capture_output=True, text=True, check=True, timeout=120
    )
    assert int(done.stdout) < 4000, "KB in 100 rows; HDF5's own cache takes 13,000"
