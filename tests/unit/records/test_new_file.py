"""A new file is whole or not there, and replaces nothing."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tcpx_mpi.errors import OutputFailed, UsageError
from tcpx_mpi.records import RunWriter, require_creatable, write_text
from tcpx_mpi.records.new_file import write_new_file


@pytest.fixture(params=["without a name", "by a name"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory; its file system makes files without a name, or makes none."""
    monkeypatch.chdir(tmp_path)
    if request.param == "by a name":
        by_a_name_only(monkeypatch)
    return tmp_path


def by_a_name_only(monkeypatch: pytest.MonkeyPatch) -> None:
    opens = os.open

    def open_(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "no files without a name here")
        return opens(path, flags, mode)

    monkeypatch.setattr(os, "open", open_)


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
    meanwhile: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path
    monkeypatch.chdir(folder)
    by_a_name_only(monkeypatch)

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


def test_until_it_can_be_read_a_file_has_no_name_or_one_that_says_so(
    folder: Path, request: pytest.FixtureRequest
) -> None:
    """So a writer that is killed leaves no half of a result under the name of one."""
    seen: list[str] = []

    def parts() -> Any:
        yield "half"
        seen.extend(path.name for path in folder.iterdir())
        yield " and half"

    assert write_text("o.json", parts()) == "o.json"
    assert (folder / "o.json").read_text() == "half and half"
    expected = [] if "without" in request.node.name else [r"o\.json\.[0-9a-f]{8}\.unfinished"]
    assert len(seen) == len(expected)
    assert all(map(re.fullmatch, expected, seen))
    assert [path.name for path in folder.iterdir()] == ["o.json"]


def test_a_run_begins_with_the_first_free_name(folder: Path) -> None:
    (folder / "o.h5").write_text("mine")
    writers = [RunWriter("o.h5") for _ in range(2)]
    assert [writer.path for writer in writers] == ["o.0.h5", "o.1.h5"]
    assert sorted(path.name for path in folder.iterdir()) == ["o.0.h5", "o.1.h5", "o.h5"]
    for writer in writers:
        writer.discard()
    assert (folder / "o.h5").read_text() == "mine"


def test_a_name_that_can_be_none_is_refused_before_anything_is_written(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"^cannot create (x{250})x*: File name too long$"):
        require_creatable("x" * 300, "--hdf5")
    require_creatable("o.h5", "--hdf5")
    assert not list(folder.iterdir())
