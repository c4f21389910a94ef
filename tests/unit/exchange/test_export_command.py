"""`tcpx-mpi export`: the file that it writes, what it refuses, a file of a crash."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import invented
import pytest

from tcpx_mpi import cli
from tcpx_mpi.cli.export import TABLES
from tcpx_mpi.errors import ExitCode
from tcpx_mpi.exchange import export
from tcpx_mpi.exchange.tidy import tables_of
from tcpx_mpi.records import RunWriter, read_run

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with the file o.h5 of a run that died after its first row."""
    monkeypatch.chdir(tmp_path)
    writer = RunWriter("o.h5")
    writer.write_header(invented.run_header())
    writer.write_setup(invented.setup_times())
    writer.append_row(invented.row(0))
    writer.fail("stall", 6, {0: "stuck"})
    return tmp_path


def write_complete(place: Path) -> None:
    (place / "o.h5").unlink()
    writer = RunWriter("o.h5")
    writer.write_header(invented.run_header())
    writer.write_setup(invented.setup_times())
    for index in range(3):
        writer.append_row(invented.row(index))
    writer.finish()


@pytest.mark.parametrize("form", ["csv", "parquet", "json"])
def test_a_partial_file_is_exported_and_what_it_lacks_is_said(
    form: str, place: Path, capsys: Captured
) -> None:
    assert cli.main(["export", "o.h5", f"--{form}"]) == ExitCode.PARTIAL_RESULT
    said = capsys.readouterr()
    assert said.out == f"# wrote o.{form}\n"
    assert "o.h5 is partial: the end of the run: stall (exit code 6)" in said.err
    assert "2 of 3 rows: 2 KiB, 4 KiB" in said.err
    assert {path.name for path in place.iterdir()} == {f"o.{form}", "o.h5"}


@pytest.mark.parametrize("table", TABLES)
def test_each_table_has_a_file_beside_that_of_the_run(
    table: str, place: Path, capsys: Captured
) -> None:
    write_complete(place)
    assert cli.main(["export", "o.h5", "--csv", "--table", table]) == 0
    name = "o.csv" if table == "samples" else f"o.{table}.csv"
    assert capsys.readouterr().out == f"# wrote {name}\n"
    expected = export.csv_text(tables_of(read_run("o.h5"))[table])
    assert (place / name).read_text() == expected
    assert os.stat(name).st_mode & 0o777 == 0o666 & ~umask()


def umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def test_the_standard_output_has_the_table_and_nothing_else(
    place: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    write_complete(place)
    assert cli.main(["export", "o.h5", "--csv", "--table", "rows", "--output", "-"]) == 0
    said = capfdbinary.readouterr()
    assert said.out.decode() == export.csv_text(tables_of(read_run("o.h5"))["rows"])
    assert said.err == b""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["o.h5"], ["exactly one of --csv, --parquet, --json and --perfetto"]),
        (["o.h5", "--csv", "--json"], ["exactly one of --csv, --parquet, --json and --perfetto"]),
        (["o.h5", "--json", "--table", "rows"], ["--table", "--json has all tables"]),
        (["o.h5", "--csv", "--table", "row"], ["--table", "row", "samples", "settings"]),
        (["o.h5", "--csv", "--output", "given"], ["given exists and is kept", "--output"]),
        (["o.h5", "--csv", "--output", "no/o.csv"], ["--output", "no does not exist"]),
        (["o.h5", "--csv", "--output", "."], ["--output", "directory"]),
        (["o.h5", "--csv", "--output", "/proc/o.csv"], ["cannot create /proc/o.csv"]),
        (["no.h5", "--csv"], ["no.h5", "no such file"]),
        (["given", "--csv"], ["given is no HDF5 file"]),
    ],
)
def test_what_cannot_be_exported_is_one_line_and_leaves_nothing(
    arguments: list[str], says: list[str], place: Path, capsys: Captured
) -> None:
    (place / "given").write_text("mine")
    assert cli.main(["export", *arguments]) == ExitCode.USAGE
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert all(part in said.err for part in says), said.err
    assert (place / "given").read_text() == "mine"
    assert sorted(path.name for path in place.iterdir()) == ["given", "o.h5"]


def test_without_pyarrow_parquet_says_how_to_get_it(
    place: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert cli.main(["export", "o.h5", "--parquet"]) == ExitCode.PLUGIN_MISSING
    assert "pip install 'tcpx-mpi[analysis]'" in capsys.readouterr().err
    assert [path.name for path in place.iterdir()] == ["o.h5"]
