"""Arrays on disk: they are arrays like others, need room, and leave nothing behind."""

from __future__ import annotations

import io
import itertools
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tcpx_mpi.errors import OutputFailed
from tcpx_mpi.records import mapped_arrays


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def mapped_kib() -> int:
    """Of this process, from files that are gone."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    sizes = [
        int(after.split()[1])
        for line, after in itertools.pairwise(lines)
        if line.endswith("(deleted)")
    ]
    return sum(sizes)


def test_a_large_array_is_a_file_without_a_name(folder: Path) -> None:
    before = mapped_kib()
    array = mapped_arrays.empty((3, mapped_arrays.LARGE_BYTES // 8))
    array[:] = np.arange(3)[:, None]
    assert mapped_kib() - before == 3 * mapped_arrays.LARGE_BYTES // 1024
    assert array.sum() == 3 * mapped_arrays.LARGE_BYTES // 8
    assert os.listdir(folder) == []
    del array
    assert mapped_kib() == before


def test_a_small_array_is_in_memory(folder: Path) -> None:
    before = mapped_kib()
    array = mapped_arrays.empty((2, 10), np.int64)
    assert array.shape == (2, 10)
    assert array.dtype == np.int64
    assert mapped_kib() == before


def test_a_disk_without_room_is_an_error_in_words(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OutputFailed, match=f"{folder}: No space left on device"):
        mapped_arrays.empty(mapped_arrays.LARGE_BYTES)


def test_a_directory_that_is_not_there_is_an_error_in_words(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "none"))
    with pytest.raises(OutputFailed, match="No such file or directory"):
        mapped_arrays.empty(mapped_arrays.LARGE_BYTES)


@pytest.mark.parametrize("offset", [0, 8, 4096, 5000])
def test_an_array_in_a_file_is_read_where_it_lies(tmp_path: Path, offset: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(offset) + np.arange(6, dtype="<i8").tobytes() + b"more")
    with path.open("rb") as file:
        found = mapped_arrays.mapped(file.fileno(), offset, (2, 3), "<i8")
    assert found.tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(ValueError, match="read-only"):
        found[0, 0] = 1


def test_a_series_grows_in_memory_and_then_on_disk(folder: Path) -> None:
    before = mapped_kib()
    series = mapped_arrays.Growing()
    assert series.array().tolist() == []
    series.append(np.arange(3))
    series.append(np.arange(3, 5))
    early = series.array()
    assert mapped_kib() == before
    part = np.arange(mapped_arrays.LARGE_BYTES // 8 - 1)
    for _ in range(2):
        series.append(part)
        series.append(np.array([7]))
    found = series.array()
    series.append(np.array([8]))
    assert mapped_kib() > before
    assert os.listdir(folder) == []
    expected = np.concatenate([np.arange(5), part, [7], part, [7]])
    assert np.array_equal(found, expected)
    assert np.array_equal(series.array(), [*expected, 8])
    assert series.size == expected.size + 1
    assert early.tolist() == [0, 1, 2, 3, 4]
    del found, series
    assert mapped_kib() == before


def test_a_series_without_room_on_the_disk_is_an_error_in_words(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: io.FileIO("/dev/full", "w"))
    series = mapped_arrays.Growing()
    with pytest.raises(OutputFailed, match=f"{folder}: No space left on device"):
        series.append(np.zeros(mapped_arrays.LARGE_BYTES // 8, np.int64))


def test_arrays_on_disk_keep_no_descriptor(tmp_path: Path, folder: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(8))
    before = len(os.listdir("/proc/self/fd"))
    with path.open("rb") as file:
        kept = [
            mapped_arrays.mapped(file.fileno(), 0, (1,), "<i8"),
            mapped_arrays.empty(mapped_arrays.LARGE_BYTES),
        ]
    assert len(os.listdir("/proc/self/fd")) == before
    assert len(kept) == 2


def test_an_array_beyond_the_end_of_its_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(15))
    with path.open("rb") as file, pytest.raises(ValueError, match="the file ends within 2 values"):
        mapped_arrays.mapped(file.fileno(), 0, (2,), "<i8")


def test_pieces_cover_a_series_once_and_in_order() -> None:
    count = 2 * mapped_arrays.PIECE + 5
    values = np.arange(count)
    assert [int(values[part].size) for part in mapped_arrays.pieces(count)] == [
        mapped_arrays.PIECE,
        mapped_arrays.PIECE,
        5,
    ]
    assert np.array_equal(
        np.concatenate([values[part] for part in mapped_arrays.pieces(count)]), values
    )
    assert list(mapped_arrays.pieces(0)) == []
