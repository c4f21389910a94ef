"""A run through its HDF5 file and back, and what is said of files that are no run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import h5py
import invented
import numpy as np
import pytest
from same_run import same

from tcpx_mpi.errors import OutputFailed, PartialResult, UsageError
from tcpx_mpi.records import (
    PHASES,
    PartialRow,
    Plan,
    RunWriter,
    SideKey,
    read_run,
)
from tcpx_mpi.records import mapped_arrays as large


def write_run(path: Path, rows: int = 3, finish: bool = True) -> RunWriter:
    writer = RunWriter(str(path))
    writer.write_header(invented.run_header())
    writer.write_setup(invented.setup_times())
    for index in range(rows):
        writer.append_row(invented.row(index))
    if finish:
        writer.finish()
    return writer


def refusal(path: Path) -> str:
    """The one line that `read_run` refuses a file with."""
    with pytest.raises(UsageError) as error:
        read_run(str(path))
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)
    return str(error.value)


def test_a_run_comes_back_as_it_was_written(tmp_path: Path) -> None:
    write_run(tmp_path / "o.h5")
    run = read_run(str(tmp_path / "o.h5"))
    assert run.header == invented.run_header()
    assert same(run.setup, invented.setup_times())
    assert same(run.rows, [invented.row(index) for index in range(3)])
    assert run.complete
    assert run.end_time
    assert run.fault is None
    assert run.missing == []


def is_mapped(values: np.ndarray) -> bool:
    while isinstance(values, np.ndarray) and values.base is not None:
        values = values.base
    return not isinstance(values, np.ndarray)


def test_large_samples_stay_in_the_file_and_are_read_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = invented.row_with_baselines(0, raw=2.0)
    monkeypatch.setattr(large, "LARGE_BYTES", row.samples["send"].nbytes)
    writer = RunWriter(str(tmp_path / "o.h5"))
    writer.write_header(invented.run_header())
    kept = writer.append_row(row)
    writer.finish()
    for found in (kept, read_run(writer.path).rows[0]):
        assert same(found, row)
        for side in (found, found.sides[SideKey("raw")]):
            assert all(is_mapped(values) for values in side.samples.values())
            assert not any(is_mapped(values) for values in side.warmup.values())


def test_rows_come_back_in_order_of_index_beyond_ten(tmp_path: Path) -> None:
    plan = Plan(sizes=tuple(range(12, 0, -1)))
    writer = RunWriter(str(tmp_path / "o.h5"))
    writer.write_header(invented.run_header(plan=plan))
    for index in [11, 2, 10, *range(2), *range(3, 10)]:
        writer.append_row(invented.row(index, size_bytes=12 - index))
    writer.finish()
    run = read_run(writer.path)
    assert [row.index for row in run.rows] == list(range(12))
    assert run.header.plan == plan
    assert run.setup.phases() == []


def test_values_beyond_32_bits_survive(tmp_path: Path) -> None:
    large = (1 << 56) + 1
    row = invented.row(0, size_bytes=large, count=large)
    row.samples["start"][:] = large
    row.payload_bytes_sent[:] = large
    writer = RunWriter(str(tmp_path / "o.h5"))
    writer.write_header(invented.run_header(plan=Plan(sizes=(large,))))
    writer.append_row(row)
    writer.finish()
    read = read_run(writer.path)
    assert same(read.rows[0], row)
    assert read.header.plan.sizes == (large,)


def test_a_row_without_iterations_or_batches_survives(tmp_path: Path) -> None:
    facts = invented.row_facts(0, iterations=0, warmup_iterations=0)
    row = invented.row(
        0,
        iterations=0,
        warmup_iterations=0,
        batches=np.empty(0, dtype=np.int64),
        batch_start=np.empty((4, 0), dtype=np.int64),
        late=np.empty((4, 0), dtype=np.bool_),
    )
    assert facts.iterations == row.iterations
    writer = RunWriter(str(tmp_path / "o.h5"))
    writer.write_header(invented.run_header())
    writer.append_row(row)
    writer.close()
    assert same(read_run(writer.path).rows[0], row)


def test_texts_that_hdf5_cannot_hold_are_kept_readable(tmp_path: Path) -> None:
    header = invented.run_header(
        environment={"NCCL_X": "grün\udcff", "NCCL_Y": "a\0b", "NCCL_Z": ""},
        command=["tcpx-mpi", "x" * 100_000],
        notes=[f"note {index}" for index in range(5000)],
        settings=[],
        facts={},
    )
    writer = RunWriter(str(tmp_path / "o.h5"))
    writer.write_header(header)
    writer.close()
    read = read_run(writer.path).header
    assert read.environment == {"NCCL_X": "grün\\udcff", "NCCL_Y": "a\\x00b", "NCCL_Z": ""}
    assert read.command == header.command
    assert read.notes == header.notes
    assert (read.settings, read.facts) == ([], {})


def test_another_program_finds_samples_by_rank_and_iteration(tmp_path: Path) -> None:
    write_run(tmp_path / "o.h5")
    with h5py.File(tmp_path / "o.h5", "r") as file:
        assert file.attrs["schema"] == "tcpx-mpi run"
        assert file.attrs["schema_version"] == 6
        assert bool(file.attrs["complete"])
        for phase in PHASES:
            assert file[f"rows/row_000001/samples/{phase}"].shape == (4, 20)
            assert file[f"rows/row_000001/warmup/{phase}"].shape == (4, 2)
        assert file["rows/row_000001"].attrs["size_bytes"] == 2048
        assert file["ranks"]["host"][2] == b"host1"
        assert file["setup"]["phase"][0] == b"listen"


def test_a_file_without_the_columns_of_version_3_is_read_with_them_unknown(tmp_path: Path) -> None:
    write_run(tmp_path / "o.h5")
    with h5py.File(tmp_path / "o.h5", "r+") as file:
        ranks = file["ranks"][()]
        new = {"gpu", "gpu_pci", "plugin_cpus", "memory_node"}
        old = [name for name in ranks.dtype.names if name not in new]
        assert len(ranks.dtype.names) - len(old) == 4
        dtype = [(name, ranks.dtype[name]) for name in old]
        del file["ranks"]
        file["ranks"] = np.array([tuple(row[old]) for row in ranks], dtype=dtype)
        file.attrs["schema_version"] = 2
    info = read_run(str(tmp_path / "o.h5")).header.ranks[3]
    assert (info.nic, info.numa_node) == ("eth2", 0)
    assert (info.gpu, info.gpu_pci, info.plugin_cpus, info.memory_node) == (-1, "", "", -1)


def test_arrivals_and_pairs_come_back_and_a_row_without_them_has_none(tmp_path: Path) -> None:
    arrivals = np.arange(4 * 4 * 8, dtype=np.float64).reshape(4, 4, 8)
    arrivals[range(4), range(4)] = np.nan
    row = invented.row(0, arrivals=arrivals, arrival_blocks=np.full(8, 2, np.int64))
    writer = RunWriter(str(tmp_path / "o.h5"))
    writer.write_header(invented.run_header())
    writer.append_row(row)
    writer.append_row(invented.row(1, pairs="0>2 3>1"))
    writer.close()
    first, second = read_run(writer.path).rows
    assert np.array_equal(first.arrivals, arrivals, equal_nan=True)
    assert first.arrival_blocks.tolist() == [2] * 8
    assert (first.pairs, second.pairs) == ("", "0>2 3>1")
    assert second.arrivals.shape == (0, 0, 0)
    with h5py.File(writer.path) as file:
        assert file["rows/row_000000/arrivals"].attrs["units"] == "ns"
        assert "arrivals" not in file["rows/row_000001"]


def test_a_file_of_version_4_has_neither_arrivals_nor_pairs(tmp_path: Path) -> None:
    write_run(tmp_path / "o.h5")
    with h5py.File(tmp_path / "o.h5", "r+") as file:
        for group in file["rows"].values():
            del group.attrs["pairs"]
        file.attrs["schema_version"] = 4
    for row in read_run(str(tmp_path / "o.h5")).rows:
        assert (row.pairs, row.arrivals.size, row.arrival_blocks.size) == ("", 0, 0)


def test_a_row_is_in_the_file_when_append_returns(tmp_path: Path) -> None:
    writer = write_run(tmp_path / "o.h5", rows=2, finish=False)
    run = read_run(writer.path)
    assert [row.index for row in run.rows] == [0, 1]
    assert not run.complete
    assert run.missing[0] == "the end of the run: its writer was killed, or is still running"
    assert run.missing[1] == "1 of 3 rows: 4 KiB"
    writer.close()


def test_a_run_that_failed_keeps_its_rows_and_says_why(tmp_path: Path) -> None:
    writer = write_run(tmp_path / "o.h5", rows=1, finish=False)
    writer.fail("stall", 6, {0: "waits for rank 3", 1: "waits for rank 0"}, missing_ranks=[3])
    run = read_run(writer.path)
    assert not run.complete
    assert len(run.rows) == 1
    assert run.fault is not None
    assert (run.fault.kind, run.fault.exit_code) == ("stall", 6)
    assert run.fault.texts == {0: "waits for rank 3", 1: "waits for rank 0"}
    assert run.fault.missing_ranks == (3,)
    assert run.fault.time


def test_partial_rows_keep_the_samples_there_are(tmp_path: Path) -> None:
    samples = {phase: np.arange(3, dtype=np.int64) for phase in PHASES}
    part = PartialRow(2, 4096, (0, 3), {1: samples, 2: samples}, {1: samples, 2: {}})
    writer = write_run(tmp_path / "o.h5", rows=2, finish=False)
    writer.append_partial(part)
    writer.close()
    assert same(read_run(writer.path).partial, [part])


def test_an_existing_file_is_never_overwritten(tmp_path: Path) -> None:
    (tmp_path / "o.h5").write_text("precious")
    first = write_run(tmp_path / "o.h5")
    second = write_run(tmp_path / "o.h5")
    assert first.path == str(tmp_path / "o.0.h5")
    assert second.path == str(tmp_path / "o.1.h5")
    assert (tmp_path / "o.h5").read_text() == "precious"
    assert read_run(first.path).complete


def test_a_file_that_cannot_be_made_is_a_usage_error(tmp_path: Path) -> None:
    for path in (tmp_path / "no" / "o.h5", tmp_path, Path("/proc/o.h5")):
        with pytest.raises(UsageError) as error:
            RunWriter(str(path))
        assert "\n" not in str(error.value)
    assert list(tmp_path.iterdir()) == []


def test_a_closed_writer_fails_by_name_and_closes_twice(tmp_path: Path) -> None:
    writer = write_run(tmp_path / "o.h5")
    writer.close()
    with pytest.raises(OutputFailed, match="closed before"):
        writer.append_row(invented.row(0))


def test_a_row_is_not_written_twice(tmp_path: Path) -> None:
    writer = write_run(tmp_path / "o.h5", rows=1, finish=False)
    with pytest.raises(OutputFailed, match="cannot write row 0"):
        writer.append_row(invented.row(0))
    assert len(read_run(writer.path).rows) == 1


FULL_DISK = """
import resource, sys
import invented
from tcpx_mpi.errors import OutputFailed
from tcpx_mpi.records import RunWriter
writer = RunWriter(sys.argv[1])
writer.write_header(invented.run_header())
writer.append_row(invented.row(0))
# Python ignores SIGXFSZ, so a write beyond the limit is an error, as on a full disk.
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    writer.append_row(invented.row(1, iterations=100_000))
except OutputFailed as error:
    print(error)
    try:
        writer.append_row(invented.row(2))
    except OutputFailed:
        sys.exit(8)
"""


@pytest.mark.parametrize("limit", [100_000, 10_000_000])
def test_a_full_disk_is_one_line_and_the_rows_before_stay(tmp_path: Path, limit: int) -> None:
    path = tmp_path / "o.h5"
    child = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path), str(limit)],
        env=invented.child_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert child.returncode == 8, child.stdout + child.stderr
    assert child.stdout.startswith(f"{path}: cannot write row 1: ")
    assert "File too large" in child.stdout
    assert len(child.stdout.splitlines()) == 1
    assert child.stderr == ""
    assert len(read_run(str(path)).rows) == 1


ABANDONED = """
import sys
import invented
from tcpx_mpi.records import RunWriter
writer = RunWriter(sys.argv[1])
writer.write_header(invented.run_header())
writer.append_row(invented.row(0))
raise SystemExit(3)
"""


def test_a_writer_that_nobody_closed_leaves_its_rows_and_no_noise(tmp_path: Path) -> None:
    path = tmp_path / "o.h5"
    child = subprocess.run(
        [sys.executable, "-c", ABANDONED, str(path)],
        env=invented.child_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (child.returncode, child.stdout, child.stderr) == (3, "", "")
    assert len(read_run(str(path)).rows) == 1


def test_a_missing_an_empty_and_a_foreign_file_are_told_apart(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "missing.h5")
    (tmp_path / "empty.h5").touch()
    assert "is empty" in refusal(tmp_path / "empty.h5")
    (tmp_path / "text.h5").write_text("size,count\n" * 1000)
    assert "is no HDF5 file" in refusal(tmp_path / "text.h5")
    (tmp_path / "directory.h5").mkdir()
    assert "is a directory" in refusal(tmp_path / "directory.h5")
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["rows"] = [1, 2]
    assert "of another program" in refusal(tmp_path / "other.h5")


def test_a_newer_schema_is_refused_with_both_versions(tmp_path: Path) -> None:
    write_run(tmp_path / "o.h5")
    with h5py.File(tmp_path / "o.h5", "r+") as file:
        file.attrs["schema_version"] = 99
    assert "schema version 99, this tcpx-mpi reads 1" in refusal(tmp_path / "o.h5")


def test_a_file_cut_off_anywhere_is_refused_in_one_line_or_misses_something(
    tmp_path: Path,
) -> None:
    write_run(tmp_path / "o.h5")
    data = (tmp_path / "o.h5").read_bytes()
    cut = tmp_path / "cut.h5"
    for length in range(1, len(data), len(data) // 97):
        cut.write_bytes(data[:length])
        refusal(cut)


@pytest.mark.parametrize("part", ["plan", "ranks", "settings", "command", "rows/row_000001/ranks"])
def test_a_file_without_one_of_its_parts_is_damaged(tmp_path: Path, part: str) -> None:
    write_run(tmp_path / "o.h5")
    with h5py.File(tmp_path / "o.h5", "r+") as file:
        del file[part]
    assert "is damaged" in refusal(tmp_path / "o.h5")


def test_a_file_without_a_header_yet_is_a_partial_result(tmp_path: Path) -> None:
    writer = RunWriter(str(tmp_path / "o.h5"))
    with pytest.raises(PartialResult, match="before its first row"):
        read_run(writer.path)
    writer.close()


def test_importing_the_records_does_not_load_hdf5() -> None:
    program = "import sys, tcpx_mpi.records, tcpx_mpi.report; sys.exit('h5py' in sys.modules)"
    child = subprocess.run(
        [sys.executable, "-c", program], env=invented.child_environment(), timeout=60, check=False
    )
    assert child.returncode == 0
