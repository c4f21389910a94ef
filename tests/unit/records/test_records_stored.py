"""Samples that are in a file: read when they are asked for, as they were, and let go again."""

from __future__ import annotations

import gc
import io
import os
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path

import h5py
import invented
import numpy as np
import pytest
from same_run import same

from tcpx_mpi.errors import OutputFailed, UsageError
from tcpx_mpi.records import (
    PHASES,
    PartialRow,
    Row,
    RunWriter,
    Scratch,
    SideKey,
    StoredSamples,
    mapped_arrays,
    read_run,
)
from tcpx_mpi.records.commit_file import CommitFile, open_for_reading
from tcpx_mpi.report import report_lines


def written(path: Path, rows: int = 2) -> list[Row]:
    """A file of rows with a peer beside each; the rows as their writer gave them back."""
    writer = RunWriter(str(path))
    writer.write_header(invented.run_header())
    kept = [writer.append_row(invented.row_with_baselines(index, raw=2.0)) for index in range(rows)]
    writer.append_partial(partial_row())
    writer.close()
    return kept


def partial_row() -> PartialRow:
    row = invented.row(2)
    samples, warmup = (
        {1: {phase: values[1] for phase, values in kind.items()}}
        for kind in (row.samples, row.warmup)
    )
    return PartialRow(2, row.size_bytes, (0,), samples, warmup)


def in_a_scratch_file(path: Path) -> list[Row]:
    scratch = Scratch()
    return [scratch.append_row(invented.row_with_baselines(index, raw=2.0)) for index in range(2)]


def read_back(path: Path) -> list[Row]:
    written(path)
    return read_run(str(path)).rows


KEPT: dict[str, Callable[[Path], list[Row]]] = {
    "by the writer": written,
    "as read": read_back,
    "without a file": in_a_scratch_file,
}


@pytest.mark.parametrize("how", KEPT)
def test_rows_are_the_same_when_their_file_is_finished_and_gone(how: str, tmp_path: Path) -> None:
    rows = KEPT[how](tmp_path / "o.h5")
    (tmp_path / "o.h5").unlink(missing_ok=True)
    assert same(rows, [invented.row_with_baselines(index, raw=2.0) for index in range(2)])


@pytest.mark.parametrize("how", KEPT)
def test_samples_are_kept_by_nobody_but_who_asked_and_are_not_to_be_changed(
    how: str, tmp_path: Path
) -> None:
    row, _ = KEPT[how](tmp_path / "o.h5")
    for side in (row, row.sides[SideKey("raw")]):
        for samples in (side.samples, side.warmup):
            assert isinstance(samples, StoredSamples)
            values = samples["send"]
            with pytest.raises(ValueError, match="read-only"):
                values[0, 0] = 1
            gone = weakref.ref(values)
            del values
            assert gone() is None


def test_a_file_is_open_as_long_as_there_are_rows_of_it(tmp_path: Path) -> None:
    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    gc.collect()
    before = open_files()
    run = read_run(str(tmp_path / "o.h5")) if written(tmp_path / "o.h5") else None
    assert run is not None
    assert open_files() == before + 1
    rows = run.rows
    del run
    assert rows[1].samples["start"].shape == (4, 20)
    del rows
    gc.collect()
    assert open_files() == before


def test_a_file_that_is_refused_is_closed(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "o.h5", "w"):
        pass
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(UsageError, match="another program"):
        read_run(str(tmp_path / "o.h5"))
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("largest", [640, 1 << 20], ids=["large", "small"])
def test_samples_that_were_cut_off_meanwhile_are_an_error_in_words(
    largest: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped_arrays, "LARGE_BYTES", largest)
    written(tmp_path / "o.h5")
    run = read_run(str(tmp_path / "o.h5"))
    os.truncate(tmp_path / "o.h5", 5000)
    with pytest.raises(UsageError, match=r"was changed since it was opened, .*: it ends within"):
        report_lines(run)


@pytest.mark.parametrize(("name", "place"), [("notes", 0), ("ranks", 8)])
def test_a_text_that_says_it_is_longer_than_the_file_is_not_believed(
    name: str, place: int, tmp_path: Path
) -> None:
    path = tmp_path / "run.h5"
    written(path)
    with h5py.File(path) as file:
        at = file[name].id.get_offset() + place
    data = bytearray(path.read_bytes())
    data[at : at + 4] = (0xF0000000).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(UsageError, match=f" {name} has a text of 4026531840 bytes"):
        read_run(path)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("length", [0, 2**64 - 8], ids=["nothing", "round again"])
def test_a_heap_of_texts_without_an_end_is_damage(length: int, tmp_path: Path) -> None:
    path = tmp_path / "run.h5"
    written(path)
    data = bytearray(path.read_bytes())
    heap = data.index(b"GCOL")
    # The first object's index and count stay, or it is what is left.
    data[heap + 16 : heap + 18] = (1 if length else 0).to_bytes(2, "little")
    data[heap + 24 : heap + 32] = length.to_bytes(8, "little")
    path.write_bytes(data)
    with pytest.raises(UsageError, match="a heap of its texts is damaged"):
        read_run(path)


def test_what_is_missing_is_known_without_reading_a_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "o.h5")
    with h5py.File(tmp_path / "o.h5", "r+") as file:
        del file["rows/row_000001/samples/receive"]
    run = read_run(str(tmp_path / "o.h5"))
    monkeypatch.delattr(CommitFile, "array")
    assert "receive" not in run.rows[1].samples
    assert run.rows[1].samples.get("receive") is None
    assert len(run.rows[1].samples) == len(PHASES) - 1
    missing = [text for text in run.missing if "samples" in text]
    assert missing == ["samples of row 1 (2 KiB), phase receive: 0 x 0 of 4 ranks x 20 iterations"]


def test_the_rows_that_a_crash_left_incomplete_are_read_when_asked_for(tmp_path: Path) -> None:
    written(tmp_path / "o.h5")
    (found,) = read_run(str(tmp_path / "o.h5")).partial
    assert isinstance(found.samples[1], StoredSamples)
    assert same(found, partial_row())


def test_samples_that_another_program_packed_are_the_same(tmp_path: Path) -> None:
    written(tmp_path / "o.h5")
    with h5py.File(tmp_path / "o.h5", "r+") as file:
        group = file["rows/row_000001/samples"]
        for phase in PHASES:
            values = group[phase][()]
            del group[phase]
            group.create_dataset(
                phase, data=values.astype(">i8"), compression="gzip", chunks=(2, 5)
            )
        start = file["rows/row_000000/samples/start"][()]
        del file["rows/row_000000/samples/start"]
        file["rows/row_000000/samples"].create_dataset("start", data=start.astype(">i8"))
    found = read_run(str(tmp_path / "o.h5")).rows
    for index, row in enumerate(found):
        for phase, values in invented.row(index).samples.items():
            assert np.array_equal(row.samples[phase], values)


# --- An array in a file whose writer was killed in a commit ---------------------------------------


@pytest.mark.parametrize("largest", [80, 1 << 20], ids=["large", "small"])
def test_an_array_is_what_a_commit_that_was_cut_short_makes_of_it(
    largest: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mapped_arrays, "LARGE_BYTES", largest)
    path = tmp_path / "file"
    path.write_bytes(np.arange(2000, dtype="<i8").tobytes())
    file = CommitFile(os.open(path, os.O_RDWR))
    file.seek(8 * 600)
    file.write(np.arange(10, dtype="<i8").tobytes())
    cut_short = os.pwrite

    def pwrite(descriptor: int, data: memoryview, offset: int) -> int:
        if offset < 8 * 2000:
            raise OSError("killed")
        return cut_short(descriptor, data, offset)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", pwrite)
        with pytest.raises(OSError, match="killed"):
            file.commit()
    file.close()
    expected = np.arange(2000)
    expected[600:610] = np.arange(10)
    with open_for_reading(str(path)) as stored:
        for first, count in ((0, 2000), (595, 10), (605, 100), (1500, 400)):
            found = stored.array(8 * first, (count // 5, 5), "<i8")
            assert np.array_equal(found.ravel(), expected[first : first + count]), first


# --- Without a file -------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_samples_without_a_file_are_in_one_without_a_name(folder: Path) -> None:
    rows = in_a_scratch_file(folder)
    (target,) = {
        os.readlink(link)
        for link in map("/proc/self/fd/{}".format, os.listdir("/proc/self/fd"))
        if os.path.islink(link) and os.readlink(link).startswith(str(folder))
    }
    assert target.endswith("(deleted)")
    assert os.listdir(folder) == []
    assert len(rows) == 2


def test_large_samples_without_a_file_stay_where_they_are(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = invented.row()
    monkeypatch.setattr(mapped_arrays, "LARGE_BYTES", row.samples["send"].nbytes)
    kept = Scratch().append_row(row)
    assert kept.samples["send"] is row.samples["send"]
    assert kept.warmup["send"] is not row.warmup["send"]
    assert same(kept, row)


def test_a_row_without_iterations_is_kept_too(folder: Path) -> None:
    row = invented.row(iterations=0, warmup_iterations=0)
    assert same(Scratch().append_row(row), row)


def test_a_disk_without_room_for_the_samples_is_an_error_in_words(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: io.FileIO("/dev/full", "r+"))
    scratch = Scratch()
    with pytest.raises(OutputFailed, match=f"{folder}: No space left on device"):
        scratch.append_row(invented.row())
