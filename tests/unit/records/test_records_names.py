"""Names of results: never over an existing file, never half-written."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import pytest

from tcpx_mpi.errors import UsageError
from tcpx_mpi.records import create_exclusively, default_run_name, require_writable


def test_hdf5_names_count_before_the_suffix(tmp_path: Path) -> None:
    path = tmp_path / "o.h5"
    for expected in ("o.h5", "o.0.h5", "o.1.h5"):
        descriptor, name = create_exclusively(str(path))
        os.close(descriptor)
        assert name == str(tmp_path / expected)


def test_other_names_count_after_the_suffix(tmp_path: Path) -> None:
    path = tmp_path / "o.json"
    for expected in ("o.json", "o.json.0", "o.json.1"):
        descriptor, name = create_exclusively(str(path))
        os.close(descriptor)
        assert name == str(tmp_path / expected)


def test_a_dangling_link_is_an_existing_file(tmp_path: Path) -> None:
    (tmp_path / "o.json").symlink_to(tmp_path / "nowhere")
    descriptor, name = create_exclusively(str(tmp_path / "o.json"))
    os.close(descriptor)
    assert name == str(tmp_path / "o.json.0")
    assert not (tmp_path / "nowhere").exists()


def test_the_default_name_says_pattern_and_start() -> None:
    start = datetime.datetime(2025, 3, 1, 12, 34, 56)
    assert default_run_name("ring", start) == "tcpx-mpi-ring-20250301-123456.h5"


def test_a_file_in_an_existing_directory_is_writable_and_not_yet_made(tmp_path: Path) -> None:
    require_writable(str(tmp_path / "o.h5"), "--hdf5")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_directory_is_one_line_that_names_the_option(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as error:
        require_writable(str(tmp_path / "no" / "o.h5"), "--hdf5")
    assert str(error.value).startswith("--hdf5: the directory ")
    assert "\n" not in str(error.value)


def test_a_directory_is_no_name_of_a_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a directory"):
        require_writable(str(tmp_path), "-J")


@pytest.mark.skipif(os.geteuid() == 0, reason="needs no-root: it may write all")
def test_a_directory_without_write_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="not writable"):
        require_writable(str(tmp_path / "o.h5"), "--hdf5")


def test_a_directory_where_nobody_can_make_files_is_refused() -> None:
    with pytest.raises(UsageError):
        create_exclusively("/proc/o.json")
