"""A new file is whole or not there, and replaces nothing."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tcpx_mpi.errors import OutputFailed, UsageError
from tcpx_mpi.records.new_file import write_new_file


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_link_to_nowhere_is_kept(folder: Path) -> None:
    os.symlink("nowhere", "o.csv")
    with pytest.raises(UsageError, match="exists and is kept"):
        write_new_file("o.csv", lambda file: pytest.fail("nothing is to be computed"), "--csv")
    assert os.readlink("o.csv") == "nowhere"


def test_a_file_that_appears_meanwhile_is_kept(folder: Path) -> None:
    def write(file: Any) -> None:
        (folder / "o.csv").write_text("mine")
        file.write(b"ours")

    with pytest.raises(UsageError, match="exists and is kept"):
        write_new_file("o.csv", write, "--csv")
    assert (folder / "o.csv").read_text() == "mine"
    assert sorted(path.name for path in folder.iterdir()) == ["o.csv"]


@pytest.mark.parametrize("meanwhile", [False, True])
def test_without_hard_links_a_file_is_still_not_replaced(
    meanwhile: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*names: str) -> None:
        raise OSError(errno.EPERM, "no links here")

    def write(file: Any) -> None:
        if meanwhile:
            (folder / "o.csv").write_text("mine")
        file.write(b"ours")

    monkeypatch.setattr(os, "link", no_links)
    if meanwhile:
        with pytest.raises(UsageError, match="exists and is kept"):
            write_new_file("o.csv", write, "--csv")
    else:
        write_new_file("o.csv", write, "--csv")
    assert (folder / "o.csv").read_text() == ("mine" if meanwhile else "ours")
    assert sorted(path.name for path in folder.iterdir()) == ["o.csv"]


def test_a_full_disk_leaves_no_half_of_a_file(folder: Path) -> None:
    def write(file: Any) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OutputFailed, match=r"o\.csv: cannot write: No space left on device"):
        write_new_file("o.csv", write, "--csv")
    assert not list(folder.iterdir())
