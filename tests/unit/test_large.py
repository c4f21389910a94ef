"""Arrays on disk: they are arrays like others, need room, and leave nothing behind."""

from __future__ import annotations

import itertools
import os
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tcpx_mpi import large
from tcpx_mpi.errors import OutputFailed


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
    array = large.empty((3, large.LARGE_BYTES // 8))
    array[:] = np.arange(3)[:, None]
    assert mapped_kib() - before == 3 * large.LARGE_BYTES // 1024
    assert array.sum() == 3 * large.LARGE_BYTES // 8
    assert os.listdir(folder) == []
    del array
    assert mapped_kib() == before


def test_a_small_array_is_in_memory(folder: Path) -> None:
    before = mapped_kib()
    array = large.empty((2, 10), np.int64)
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
        large.empty(large.LARGE_BYTES)


def test_a_directory_that_is_not_there_is_an_error_in_words(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "none"))
    with pytest.raises(OutputFailed, match="No such file or directory"):
        large.empty(large.LARGE_BYTES)


@pytest.mark.parametrize("offset", [0, 8, 4096, 5000])
def test_an_array_in_a_file_is_read_where_it_lies(tmp_path: Path, offset: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(offset) + np.arange(6, dtype="<i8").tobytes() + b"more")
    with path.open("rb") as file:
        found = large.mapped(file, offset, (2, 3), "<i8")
    assert found.tolist() == [[0, 1, 2], [3, 4, 5]]
    with pytest.raises(ValueError, match="read-only"):
        found[0, 0] = 1


def test_pieces_cover_a_series_once_and_in_order() -> None:
    count = 2 * large.PIECE + 5
    values = np.arange(count)
    assert [int(values[part].size) for part in large.pieces(count)] == [
        large.PIECE,
        large.PIECE,
        5,
    ]
    assert np.array_equal(np.concatenate([values[part] for part in large.pieces(count)]), values)
    assert list(large.pieces(0)) == []
