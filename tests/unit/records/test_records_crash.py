"""What was acknowledged is readable after SIGKILL, wherever it strikes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import invented
import pytest
from variants import variant

from tcpx_mpi.records import read_journal, read_run
from tcpx_mpi.records.commit_file import CommitFile, open_for_reading

PROGRAM = Path(__file__).parents[1] / "killed_writers.py"


#: Of a run's file each takes 10 s and more: "torn" is the worst.
@pytest.mark.parametrize(
    ("kind", "how"),
    [
        ("journal", "whole"),
        ("journal", "torn"),
        ("journal", "error"),
        ("begin", "whole"),
        ("begin", "torn"),
        ("begin", "error"),
        ("launches", "whole"),
        ("launches", "error"),
        variant("run", "torn"),
        variant("run", "whole"),
        variant("run", "error"),
    ],
)
def test_a_writer_that_dies_at_any_write_loses_nothing_acknowledged(
    tmp_path: Path, kind: str, how: str
) -> None:
    child = subprocess.run(
        [sys.executable, str(PROGRAM), kind, str(tmp_path), how],
        env=invented.child_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert child.returncode == 0, child.stderr
    outcome = json.loads(child.stdout)
    assert outcome["violations"] == []
    assert outcome["writers"] > (50 if kind == "run" else 3)
    if kind in ("begin", "launches"):  # all that there is has a name of its own
        assert all(path.name.isdecimal() for path in tmp_path.iterdir())


ENDLESS = {
    "run": """
import os, sys
import invented
from tcpx_mpi.records import Plan, RunWriter
writer = RunWriter(sys.argv[1])
writer.write_header(invented.run_header(plan=Plan(sizes=(1024,), run_cycles=0)))
index = 0
while True:
    writer.append_row(invented.row(index, size_bytes=1024, cycle=index))
    os.write(int(sys.argv[2]), b".")
    index += 1
""",
    "journal": """
import os, sys
import invented
from tcpx_mpi.records import Journal
journal = Journal(os.path.dirname(sys.argv[1]), "0011", 0, 4)
index = 0
while True:
    facts = invented.row_facts(0)
    journal.append_batch(index, 1024, "timed", 0, invented.rank_row(0, facts).samples)
    os.write(int(sys.argv[2]), b".")
    index += 1
""",
}


@pytest.mark.parametrize("kind", ["run", "journal"])
@pytest.mark.parametrize("rows", [1, 7, 20])
def test_a_killed_process_leaves_every_acknowledged_row(
    tmp_path: Path, kind: str, rows: int
) -> None:
    reading, writing = os.pipe()
    child = subprocess.Popen(
        [sys.executable, "-c", ENDLESS[kind], str(tmp_path / "o.h5"), str(writing)],
        env=invented.child_environment(),
        pass_fds=[writing],
    )
    os.close(writing)
    acknowledged = 0
    while acknowledged < rows:
        told = os.read(reading, 1)
        assert told, "the child ended before it was killed"
        acknowledged += 1
    child.send_signal(signal.SIGKILL)
    assert child.wait(timeout=30) == -signal.SIGKILL
    acknowledged += len(os.read(reading, 1 << 16))
    os.close(reading)

    if kind == "run":
        run = read_run(str(tmp_path / "o.h5"))
        assert len(run.rows) >= acknowledged
        assert not run.complete
        assert run.missing == ["the end of the run: its writer was killed, or is still running"]
    else:
        content = read_journal(str(next(tmp_path.glob("*.journal"))))
        assert len(content.rows) >= acknowledged


def test_changes_are_seen_before_the_commit_and_by_others_after_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a" * 10_000)
    file = CommitFile(os.open(path, os.O_RDWR))
    file.seek(4000)
    file.write(b"b" * 200)
    file.seek(9990)
    file.write(b"c" * 20)
    expected = b"a" * 4000 + b"b" * 200 + b"a" * 5790 + b"c" * 20

    file.seek(0)
    assert file.read() == expected
    assert path.read_bytes()[:10_000] == b"a" * 10_000
    file.commit()
    assert path.read_bytes() == expected
    file.truncate(5)
    file.commit()
    assert path.read_bytes() == b"aaaaa"
    file.close()


def killed_in_a_commit(path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[bytes, bytes]:
    """Change `path` in two places, but die between them; return its bytes before and after."""
    before = b"a" * 10_000
    path.write_bytes(before)
    file = CommitFile(os.open(path, os.O_RDWR))
    for offset in (100, 9000):
        file.seek(offset)
        file.write(b"b" * 50)
    writes = []

    def pwrite(descriptor: int, data: memoryview, offset: int) -> int:
        writes.append(offset)
        if len(writes) == 3:
            raise OSError("killed")
        return real_pwrite(descriptor, data, offset)

    real_pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(OSError, match="killed"):
        file.commit()
    monkeypatch.undo()
    file.close()
    after = bytearray(before)
    after[100:150] = after[9000:9050] = b"b" * 50
    return before, bytes(after)


def first_bytes(path: Path, count: int) -> bytes:
    with open_for_reading(str(path)) as file:
        return file.read(count)


def test_a_commit_that_was_cut_short_is_seen_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, after = killed_in_a_commit(tmp_path / "file", monkeypatch)
    assert (tmp_path / "file").read_bytes()[:10_000] != after
    assert first_bytes(tmp_path / "file", 10_000) == after


def test_a_damaged_redo_block_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_in_a_commit(tmp_path / "file", monkeypatch)
    data = (tmp_path / "file").read_bytes()
    for at in range(10_000, len(data), 7):
        flipped = bytearray(data)
        flipped[at] ^= 1
        (tmp_path / "file").write_bytes(flipped)
        assert first_bytes(tmp_path / "file", 10_000) == data[:10_000]


def test_an_uncommitted_change_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a" * 100)
    file = CommitFile(os.open(path, os.O_RDWR))
    file.write(b"b" * 50)
    file.close()
    assert path.read_bytes() == b"a" * 100


def test_reading_beyond_the_end_gives_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    with open_for_reading(str(tmp_path / "file")) as file:
        file.seek(1)
        assert file.read(10) == b"bc"
        assert file.read(10) == b""
