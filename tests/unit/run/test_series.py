"""Several launches in one file: what is written, read, missing, shown, and exported."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import invented
import pytest
from launch_files import FACTORS, joined, launch_file, slowed
from same_run import same

from tcpx_mpi import cli
from tcpx_mpi.config.settings import load_settings
from tcpx_mpi.errors import ExitCode, OutputFailed, UsageError
from tcpx_mpi.exchange import tidy
from tcpx_mpi.machine.topology import read_host
from tcpx_mpi.records import Journal, LaunchesWriter, Plan, RunWriter, read_run
from tcpx_mpi.report import report_lines, to_json
from tcpx_mpi.report.launches import rows_over_launches
from tcpx_mpi.run.admission import refuse_series
from tcpx_mpi.run.plan import RowPlanner
from tcpx_mpi.run.series import (
    FILE_VARIABLE,
    NUMBER_VARIABLE,
    Command,
    Series,
    part_of_series,
    run_in_turns,
    run_series,
)
from tcpx_mpi.workload import workload_of


def test_launches_come_back_as_they_were(tmp_path: Path) -> None:
    run = read_run(joined(tmp_path))
    assert [each.header.run_id for each in run.all_launches] == [f"{n:012x}" for n in range(5)]
    for factor, launch in zip(FACTORS, run.all_launches, strict=True):
        assert same(launch.rows, [slowed(index, factor) for index in range(3)])
        assert launch.complete
    assert run.missing == []


def test_another_program_finds_the_first_launch_where_a_single_one_is(tmp_path: Path) -> None:
    with h5py.File(joined(tmp_path)) as file:
        assert file["rows/row_000001/samples/iteration"].shape == (4, 20)
        assert "rows/row_000001" in file["launches/launch_000004"]
        assert len(file["launches"]) == 4


def test_what_is_missing_of_launches_is_said(tmp_path: Path) -> None:
    writer = LaunchesWriter(str(tmp_path / "all.h5"), 4)
    writer.append(launch_file(tmp_path / "0.h5", 0))
    writer.append(launch_file(tmp_path / "1.h5", 1, rows=2))
    missing = read_run(writer.path).missing  # killed here: each launch is there once appended
    assert missing == ["2 of 4 launches", "launch 2: 1 of 3 rows: 4 KiB"]
    writer.close()


def test_a_file_without_a_launch_is_not_left_behind(tmp_path: Path) -> None:
    writer = LaunchesWriter(str(tmp_path / "all.h5"), 2)
    (tmp_path / "bad.h5").write_text("no HDF5")
    with pytest.raises(OutputFailed, match=r"all\.h5: cannot take over .*bad\.h5"):
        writer.append(str(tmp_path / "bad.h5"))
    writer.close()
    writer.close()
    assert not (tmp_path / "all.h5").exists()


# --- What is shown --------------------------------------------------------------------------------


def test_the_table_shows_the_launch_with_the_median_time_and_the_spread(tmp_path: Path) -> None:
    lines = report_lines(read_run(joined(tmp_path)))
    row = next(line for line in lines if line.split()[:1] == ["1024"]).split()
    assert float(row[5]) == pytest.approx(3 * 1.1595, abs=0.01)
    start = next(n for n, line in enumerate(lines) if line.startswith("## 5 launches"))
    size, launches, median, low, high, within, between = lines[start + 2].split()[1:]
    assert (size, launches, float(median)) == ("1024", "5", pytest.approx(3 * 1.1595, abs=0.01))
    assert (low, high) == ("n/a", "n/a")  # five launches do not bound a median with 95 %
    assert within == "n/a"  # a row of one batch
    # MAD of 1 2 3 4 5 is 1, of which the median is 3.
    assert float(between) == pytest.approx(100 * 1.4826 / 3, rel=0.01)


def test_launches_of_round_trips_are_known_by_stretches_of_their_rows(tmp_path: Path) -> None:
    run = read_run(joined(tmp_path))
    for launch in run.all_launches:
        launch.header.time_divisor = 2
        times = launch.rows[0].samples["iteration"].copy()
        times[:, 3] = 10**9  # a stretch that lost its CPU
        launch.rows[0] = dataclasses.replace(launch.rows[0], samples={"iteration": times})
    first = rows_over_launches(run)[0]
    assert first.times_ns == pytest.approx([1000 * f * 1.1595 / 2 for f in FACTORS], rel=1e-2)
    assert first.variation.within < 0.01


def test_a_launch_with_wrong_bytes_is_the_one_that_is_shown(tmp_path: Path) -> None:
    run = read_run(joined(tmp_path))
    bad = run.launches[2].rows[1]
    bad.wrong[2] = 7
    bad.faults.append("rank 2: 7 wrong bytes")
    lines = report_lines(run)
    assert "# Out of bounds values : 7 FAILED" in lines
    assert any(line.endswith("rank 2: 7 wrong bytes") for line in lines)
    assert to_json(run)["out_of_bounds"] == {"count": 7, "okay": False}


def test_an_unchecked_launch_is_not_hidden_by_checked_ones(tmp_path: Path) -> None:
    run = read_run(joined(tmp_path))
    run.launches[3].rows[0].checked[:] = False
    run.launches[3].rows[0].wrong[:] = -1
    assert any("bandwidth of unchecked bytes in 1 of 3 rows" in line for line in report_lines(run))


def test_json_has_the_time_of_every_launch(tmp_path: Path) -> None:
    result = to_json(read_run(joined(tmp_path)))["results"][0]
    assert result["launches"]["count"] == 5
    assert result["launches"]["times_us"] == pytest.approx([1.1595 * f for f in FACTORS], rel=1e-3)
    assert result["launches"]["low_us"] is None


def test_tables_have_the_lines_of_all_launches(tmp_path: Path) -> None:
    made = tidy.tables_of(read_run(joined(tmp_path)))
    ids = [block.values["run_id"] for block in made["rows"].blocks()]
    assert ids == [f"{number:012x}" for number in range(5) for _ in range(3)]
    assert sum(block.length for block in made["setup"].blocks()) == 5 * 12


# --- Joining by hand ------------------------------------------------------------------------------


def test_files_of_single_launches_are_joined(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [launch_file(tmp_path / f"{n}.h5", n, f) for n, f in enumerate(FACTORS)]
    assert cli.main(["join", str(tmp_path / "all.h5"), *files]) == 0
    assert capsys.readouterr().out == f"# wrote {tmp_path / 'all.h5'}\n"
    assert len(read_run(str(tmp_path / "all.h5")).launches) == 4


def test_journals_of_a_dead_run_are_known_by_their_name_or_how_they_begin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = Journal(str(tmp_path), "0" * 12, 0, 2)
    journal.write_header(invented.run_header(2, run_id="0" * 12))
    renamed, empty = str(tmp_path / "0"), str(tmp_path / "1.journal")
    Path(renamed).write_bytes(Path(journal.path).read_bytes())
    Path(empty).touch()
    assert cli.main(["join", str(tmp_path / "all.h5"), renamed]) == 12
    assert "all.h5 is partial: " in capsys.readouterr().err
    first = launch_file(tmp_path / "0.h5", 0)
    for files, error in (
        ([empty], f"{empty} is no journal of tcpx-mpi, or is cut off"),
        (
            [renamed, first],
            f"{first} is no journal of tcpx-mpi",
        ),
        ([first, "--run", first], f"{first} is no journal"),
        ([str(tmp_path / "2.h5")], "2.h5: no such file; give"),
    ):
        assert cli.main(["join", str(tmp_path / "more.h5"), *files]) == 2
        assert error in capsys.readouterr().err
    assert not (tmp_path / "more.h5").exists()


@pytest.mark.parametrize(
    ("changes", "what"),
    [({"memory": "emulated"}, "memory: emulated, host"),
     ({"plugin_sha256": "b" * 64}, " bbbbbbbbbbbb, "),
     ({"plan": Plan(sizes=(1024, 2048, 4096), slots=(64, 32, 16), check=0)}, "check (-c): 0, 1")],
)  # fmt: skip
def test_files_of_another_plugin_memory_or_check_are_no_launches(
    changes: dict[str, Any], what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = []
    for number, header in enumerate([invented.run_header(), invented.run_header(**changes)]):
        writer = RunWriter(str(tmp_path / f"{number}.h5"))
        writer.write_header(dataclasses.replace(header, run_id=f"{number:012x}"))
        writer.finish()
        paths.append(writer.path)
    assert cli.main(["join", str(tmp_path / "all.h5"), *paths]) == 2
    error = capsys.readouterr().err
    assert "1.h5 has another " in error
    assert what in error
    assert not (tmp_path / "all.h5").exists()


def test_a_disk_that_fills_keeps_the_launches_that_were_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [launch_file(tmp_path / f"{n}.h5", n, f) for n, f in enumerate(FACTORS)]
    writer = LaunchesWriter(str(tmp_path / "all.h5"), 4)
    writer.append(files[0])
    copied = h5py.Group.copy

    def half(source: h5py.Group, name: str, target: h5py.Group) -> None:
        copied(source, name, target)
        if name == "rows":
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(h5py.Group, "copy", half)
    with pytest.raises(OutputFailed, match="No space left on device"):
        writer.append(files[1])
    writer.close()
    found = read_run(writer.path)
    assert (len(found.rows), found.missing) == (3, ["3 of 4 launches"])


def test_a_place_that_is_not_there_is_named_by_what_was_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = launch_file(tmp_path / "0.h5", 0)
    assert cli.main(["join", str(tmp_path / "no" / "all.h5"), first]) == 2
    assert "error: OUT: the directory " in capsys.readouterr().err


def test_files_of_different_commands_are_no_launches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = launch_file(tmp_path / "0.h5", 0)
    other = RunWriter(str(tmp_path / "1.h5"))
    other.write_header(invented.run_header(pattern="mesh"))
    other.finish()
    out = str(tmp_path / "all.h5")
    assert cli.main(["join", out, first, other.path]) == 2
    assert "1.h5 has another pattern: mesh, ring than" in capsys.readouterr().err
    assert cli.main(["join", out, joined(tmp_path), first]) == 2
    assert "has several launches already" in capsys.readouterr().err
    assert not Path(out.replace("all.h5", "all.0.h5")).exists()


def test_the_same_run_is_not_two_launches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = launch_file(tmp_path / "0.h5", 0)
    copied = str(tmp_path / "copy.h5")
    Path(copied).write_bytes(Path(first).read_bytes())
    assert cli.main(["join", str(tmp_path / "all.h5"), first, copied]) == 2
    error = capsys.readouterr().err
    assert f"{copied} has the same run as {first}: give each launch once" in error
    assert not (tmp_path / "all.h5").exists()


# --- One launch after the other -------------------------------------------------------------------


def series_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, file: bool
) -> tuple[Series, list[int]]:
    """A series whose launches end so, with a file or without; and the code of each."""

    def ended(ranks: int, program: object, environ: Mapping[str, str], *_: object) -> object:
        if file:
            launch_file(Path(environ[FILE_VARIABLE]), len(codes))
        return code, "printed\n"

    monkeypatch.setattr("tcpx_mpi.launch.mpirun.run_captured", ended)
    codes: list[int] = []
    settings = load_settings({"pattern": "ring", "ranks": "2", "runs": "2"}, {})
    series = Series(Command(settings, ["run", "ring"], {}), str(tmp_path / "o.h5"), 2)
    with contextlib.closing(series):
        codes += [series.launch() for _ in range(2)]
    return series, codes


def test_a_launch_below_the_least_bandwidth_is_a_whole_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    series, codes = series_of(tmp_path, monkeypatch, ExitCode.BELOW_GATE, True)
    assert codes == [0, 0]
    assert read_run(series.path).missing == []
    assert capsys.readouterr().out == ""
    assert series.printed == ""
    series, codes = series_of(tmp_path, monkeypatch, ExitCode.STALL, True)
    assert codes == [6, 6]
    assert series.printed == "printed\n"
    assert capsys.readouterr().err.splitlines()[-3::2] == [
        f"# kept: launch {number}, as far as it came, in {series.path}" for number in (1, 2)
    ]


@pytest.mark.parametrize("file", [False, True])
def test_what_a_failed_launch_printed_is_shown_where_no_report_has_it(
    file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended(ranks: int, program: object, environ: Mapping[str, str], *_: object) -> object:
        if file:
            launch_file(Path(environ[FILE_VARIABLE]), 0)
        return ExitCode.STALL, "printed\n"

    monkeypatch.setattr("tcpx_mpi.launch.mpirun.run_captured", ended)
    settings = load_settings({"pattern": "ring", "ranks": "2", "runs": "2"}, {})
    command = Command(settings, ["run", "ring"], {})
    assert run_series(command, str(tmp_path / "o.h5")) == ExitCode.STALL
    said = capsys.readouterr().out
    assert ("printed\n" in said, "# Written" in said) == (not file, file)
    a, b = (Series(command, str(tmp_path / f"{side}.h5"), 2) for side in "ab")
    with contextlib.closing(a), contextlib.closing(b):
        assert run_in_turns(a, b, 2) == ExitCode.STALL
    assert capsys.readouterr().out == "printed\n"


def test_a_launch_that_ended_well_without_a_file_ends_the_series(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OutputFailed, match="launch 1 ended well and left no file"):
        series_of(tmp_path, monkeypatch, ExitCode.OK, False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("ends", "codes"),
    [
        ([(213, ""), (0, "a table")], [0]),
        ([(213, ""), (213, "")], [4]),
        ([(14, ""), (14, "")], [4]),
        ([(213, "a rank's word")], [4]),
        ([(ExitCode.STALL, "")], [6]),
        ([(137, "")], [137]),
    ],
)
def test_a_launch_whose_mpirun_did_not_come_up_is_tried_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    ends: list[tuple[int, str]], codes: list[int],
) -> None:  # fmt: skip
    left = list(ends)

    def ended(ranks: int, program: object, environ: Mapping[str, str], *_: object) -> object:
        if left[0][0] == 0:
            launch_file(Path(environ[FILE_VARIABLE]), 0)
        return left.pop(0)

    monkeypatch.setattr("tcpx_mpi.launch.mpirun.run_captured", ended)
    settings = load_settings({"pattern": "ring", "ranks": "2", "runs": "1"}, {})
    series = Series(Command(settings, ["run", "ring"], {}), str(tmp_path / "o.h5"), 1)
    with contextlib.closing(series):
        assert [series.launch()] == codes
    assert left == []
    said = capsys.readouterr().err
    assert said.count(f"mpirun started no rank (exit code {ends[0][0]}): again") == len(ends) - 1


def test_a_launch_that_ended_within_its_header_is_not_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(ranks: int, program: object, environ: Mapping[str, str], *_: object) -> object:
        left = Path(environ[FILE_VARIABLE])
        if not codes:
            launch_file(left, 0)
            return 0, ""
        with h5py.File(left, "w") as file:
            file.attrs["schema"] = "tcpx-mpi-run"
        return 130, ""

    monkeypatch.setattr("tcpx_mpi.launch.mpirun.run_captured", ended)
    codes: list[int] = []
    settings = load_settings({"pattern": "ring", "ranks": "2", "runs": "2"}, {})
    series = Series(Command(settings, ["run", "ring"], {}), str(tmp_path / "o.h5"), 2)
    with contextlib.closing(series):
        for _ in range(2):
            codes.append(series.launch())
    assert codes == [0, 130]
    assert series.launches == 1
    assert len(read_run(series.path).rows) > 0


# --- How a launch is planned ----------------------------------------------------------------------


def test_each_launch_has_the_sizes_in_an_order_of_its_own_by_the_seed() -> None:
    def order(launch: int, seed: int = 1) -> list[int]:
        settings = dataclasses.replace(
            load_settings({"pattern": "ring", "sizes": "1,2,3,4,5,6,7,8"}, {}),
            launch=launch,
            seed=seed,
        )
        planner = RowPlanner(workload_of(settings, 2), [read_host()] * 2)
        return [row.facts.index for row in planner.cycles(planner.rows())]

    assert order(0) == list(range(8))
    orders = [order(launch) for launch in range(1, 6)]
    assert all(sorted(each) == list(range(8)) for each in orders)
    assert len({tuple(each) for each in orders}) == 5
    assert order(1) == orders[0]
    assert order(1, seed=2) != orders[0]


def test_a_launch_of_a_series_writes_its_part_and_nothing_else() -> None:
    given = {
        "pattern": "ring", "output_file": "o.json", "csv": "o.csv", "runs": "3", "gate": "g.toml",
    }  # fmt: skip
    environ = {NUMBER_VARIABLE: "2", FILE_VARIABLE: "/tmp/2.h5"}
    part = part_of_series(load_settings(given, environ), environ)
    assert (part.launch, part.hdf5_path, part.json_path, part.csv_path, part.gate_path) == (
        2, "/tmp/2.h5", None, None, None,
    )  # fmt: skip
    assert part.sources["hdf5_path"] == f"environment {FILE_VARIABLE}"
    alone = load_settings(given, {})
    assert part_of_series(alone, {}) == alone


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("hdf5", "none", "--runs keeps its launches"),
        ("json_stream", "-", "--json-stream is of one"),
    ],
)
def test_what_a_series_cannot_have_is_refused(option: str, value: str, text: str) -> None:
    settings = load_settings({"pattern": "ring", option: value, "runs": "2"}, {})
    with pytest.raises(UsageError, match=text):
        refuse_series(settings)
