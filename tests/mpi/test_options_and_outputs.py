"""What the options change in the table, in JSON and in the file, on real runs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jobs import Result, mpirun, run, tcpx_mpi
from variants import variant

from tcpx_mpi.records import Run, read_run

pytestmark = pytest.mark.multirank


def ran(place: Path, *arguments: str, ranks: int = 2) -> tuple[Result, Run]:
    """A run that must succeed, and its file."""
    common = ["--ranks", str(ranks), "--plugin", "softtcpx", "--hdf5", "o.h5", "--spool", "spool"]
    result = run(tcpx_mpi("run", *arguments, *common), place)
    assert result.code == 0, result.text
    return result, read_run(str(place / "o.h5"))


def columns(result: Result) -> list[str]:
    """The titles to the right of the 13 standard ones."""
    return next(x for x in result.out.splitlines() if x.startswith("#       size")).split()[14:]


SMALL = ("--sizes", "1K,64K", "-n", "10")
ALWAYS = ["t_max", "@rank", "p50", "p50_low", "p50_high", "p95", "p99", "net_bw", "cpu_s_per_GB"]


def test_m_posts_messages_together_and_reports_their_rate(place: Path) -> None:
    result, found = ran(place, "ring", *SMALL, "-m", "8")
    assert columns(result) == [*ALWAYS, "Mmsg/s"]
    for table, row in zip(result.rows, found.rows, strict=True):
        assert row.agg == 8
        assert row.payload_bytes_received.tolist() == [8 * 10 * row.size_bytes] * 2
        assert table.wrong == 0
        # `time` is of one message, so the rate is its reciprocal.
        assert float(table.ours[-1]) == pytest.approx(1 / table.time_us, abs=0.006)
        batch_us = row.samples["iteration"].mean() / 1e3
        assert table.time_us == pytest.approx(batch_us / 8, rel=0.01)


def test_the_reporting_options_add_their_columns_and_leave_the_13_alone(place: Path) -> None:
    options = ("-I", "-K", "2", "-S", "-C", "--report_gbits")
    result, found = ran(place, "ring", *SMALL, *options)
    added = ["algbw", "busbw", "i_min", "i_max", "i_avg", "i_stdev", "i_cv%", "cputime",
             "timestamp"]  # fmt: skip
    assert columns(result) == ALWAYS + added
    for table, row in zip(result.rows, found.rows, strict=True):
        ours = dict(zip(ALWAYS + added, table.ours, strict=True))
        assert float(ours["algbw"]) == pytest.approx(8 * table.algbw, abs=0.05)
        slowest = row.samples["iteration"].max(axis=0)[2:] / 1e3
        assert float(ours["i_min"]) == pytest.approx(slowest.min(), abs=0.006)
        assert float(ours["i_max"]) == pytest.approx(slowest.max(), abs=0.06)
        assert float(ours["cputime"]) > 0
        assert ours["timestamp"] == row.finished_time


def test_c_0_claims_no_checked_bandwidth(place: Path) -> None:
    result, found = ran(place, "ring", *SMALL, "-c", "0")
    assert [row.wrong for row in result.rows] == [None, None]
    assert "WARNING              : bandwidth of unchecked bytes in 2 of 2 rows" in result.out
    assert [row.wrong.tolist() for row in found.rows] == [[-1, -1]] * 2
    assert not any(row.checked.any() for row in found.rows)


@pytest.mark.variant
def test_z_1_starts_every_iteration_together(place: Path) -> None:
    result, found = ran(place, "ring", *SMALL, "-z", "1")
    assert found.header.mode == "synchronised"
    assert "synchronised" in result.out
    for row in found.rows:
        starts = row.samples["start"]
        # Ranks of one machine share a clock: the start is one instant, agreed on beforehand. A
        # rank that the machine woke too late says so of the whole batch.
        together = starts[0] == starts[1]
        assert together.all() or row.late.any()
        # And nobody starts before all have ended the iteration before.
        ends = (starts + row.samples["iteration"]).max(axis=0)
        assert (starts.min(axis=0)[1:] >= ends[:-1]).all()


def test_n_2_measures_all_sizes_twice(place: Path) -> None:
    result, found = ran(place, "ring", *SMALL, "-N", "2")
    assert [row.size for row in result.rows] == [1024, 65536] * 2
    assert [(row.index, row.cycle) for row in found.rows] == [(0, 0), (1, 0), (2, 1), (3, 1)]


@pytest.mark.parametrize(
    "average",
    [variant(0), 1, variant(2), variant(3)],
)
def test_a_averages_over_the_ranks_that_receive(average: int, place: Path) -> None:
    result, found = ran(place, "ring", "--sizes", "64K", "-n", "10", "-a", str(average), ranks=3)
    means = found.rows[0].samples["iteration"].mean(axis=1) / 1e3
    wanted = [means[0], means.mean(), means.min(), means.max()][average]
    assert result.rows[0].time_us == pytest.approx(wanted, rel=1e-3, abs=0.006)
    assert result.rows[0].ours[1] == f"@{int(np.argmax(means))}"


def test_one_option_is_as_good_as_the_variable_of_the_earlier_system_and_wins(place: Path) -> None:
    common = ["run", "ring", "--plugin", "softtcpx", "-n", "2", "--spool", "spool", "--ranks", "2"]
    environ = {"UCCL_TCPX_PERF_SIZE": "4096", "UCCL_TCPX_NUM_CHANNELS": "3"}
    result = run(tcpx_mpi(*common, "--hdf5", "o.h5", "--channels", "1"), place, environ)
    assert [row.size for row in result.rows] == [4096], result.text
    settings = {name: (value, source) for name, value, source in
                read_run(str(place / "o.h5")).header.settings}  # fmt: skip
    assert settings["sizes"] == ("4096", "environment UCCL_TCPX_PERF_SIZE")
    assert settings["channels"] == ("1", "command line --channels")


def test_a_run_of_the_saved_settings_has_them_again_and_the_file_as_their_source(
    place: Path,
) -> None:
    (place / "c.toml").write_text("mine")
    first, before = ran(place, "mesh", *SMALL, "--channels", "3", "--save-config", "c.toml")
    assert "# Written              : c.toml.0" in first.out
    assert (place / "c.toml").read_text() == "mine"
    again = run(tcpx_mpi("run", "--config", "c.toml.0", "--hdf5", "p.h5"), place)
    assert again.code == 0, again.text
    after = read_run(str(place / "p.h5"))
    assert (after.header.pattern, after.header.plan) == (before.header.pattern, before.header.plan)
    sources = {name: source for name, _, source in after.header.settings}
    assert sources["channels"] == "file c.toml.0: channels"
    assert after.header.world == before.header.world
    assert sources["hdf5_path"] == "command line --hdf5"
    assert "# Setting: channels = 3 (file c.toml.0: channels)" in again.out


# --- Files ---------------------------------------------------------------------------------------


def test_what_is_set_for_softtcpx_is_in_the_file_with_its_reason(place: Path) -> None:
    _, found = ran(place, "pair", *SMALL)
    name = "SOFTTCPX_ANSWER_TIMEOUT_MS"
    assert (name, "0", "no limit but that of --connect-timeout") in found.header.settings
    assert found.header.environment[name] == "0"


def test_a_rank_has_more_connections_than_the_shell_allows_files(place: Path) -> None:
    mesh = tcpx_mpi(
        "run", "mesh", "--ranks", "3", "--channels", "12", "--sizes", "1K", "-n", "5",
        "--plugin", "softtcpx", "--hdf5", "none", "--spool", "spool", "--connect-timeout", "5",
    )  # fmt: skip
    result = run(["sh", "-c", 'ulimit -Sn 110 && exec "$0" "$@"', *mesh], place)
    assert result.code == 0, result.text
    assert [row.wrong for row in result.rows] == [0]


def test_json_has_the_keys_of_nccl_tests_with_real_numbers(place: Path) -> None:
    result, found = ran(place, "mesh", "--sizes", "0,1K,64K", "-n", "60", "-J", "o.json", "-I",
                        ranks=3)  # fmt: skip
    document = json.loads((place / "o.json").read_text(), parse_constant=no_constant)
    assert document["version"] == 3
    assert {"start_time", "args", "env", "nccl_version", "config", "results", "out_of_bounds",
            "average_bus_bandwidth", "errors", "end_time"} <= set(document)  # fmt: skip
    assert [device["rank"] for device in document["config"]["devices"]] == [0, 1, 2]
    assert document["out_of_bounds"] == {"count": 0, "okay": True}
    assert document["errors"] == []
    for table, row, entry in zip(result.rows, found.rows, document["results"], strict=True):
        assert (entry["size"], entry["type"], entry["redop"]) == (row.size_bytes, "uint8", "none")
        side = entry["out_of_place"]
        assert side["time"] == pytest.approx(table.time_us, rel=1e-3, abs=0.006)
        assert side["bus_bw"] == pytest.approx(table.busbw, abs=0.006)
        assert side["nwrong"] == table.wrong
        times = entry["out_of_place_per_iter"]["times_us"]
        slowest = row.samples["iteration"].max(axis=0) / 1e3
        assert times == pytest.approx(slowest.tolist())
        assert entry["out_of_place_per_iter"]["p95_us"] in times
        assert entry["out_of_place_per_iter"]["p99_us"] is None
        assert entry["in_place"] is None


def no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def test_files_that_exist_are_kept_and_the_names_used_are_printed(place: Path) -> None:
    for name in ("o.h5", "o.0.h5", "o.json"):
        (place / name).write_text("mine")
    command = tcpx_mpi("run", "ring", "--ranks", "2", "--plugin", "softtcpx", "--sizes", "1K",
                       "-n", "2", "--hdf5", "o.h5", "-J", "o.json", "--spool", "spool")  # fmt: skip
    result = run(command, place)
    assert result.code == 0, result.text
    for name in ("o.h5", "o.0.h5", "o.json"):
        assert (place / name).read_text() == "mine"
    for option, path, name in (("--hdf5", "o.h5", "o.1.h5"), ("-J", "o.json", "o.json.0")):
        kept = f"# Note: {option} {path} is there and is kept: the result goes to {name}\n"
        assert kept in result.out
        assert f"# Written              : {name}" in result.out
    assert read_run(str(place / "o.1.h5")).complete
    assert json.loads((place / "o.json.0").read_text())["results"]


def test_report_prints_the_table_that_the_run_printed(place: Path) -> None:
    result, _ = ran(place, "mesh", *SMALL, "-m", "2", "-C", ranks=3)
    report = run(tcpx_mpi("report", "o.h5"), place)
    assert report.code == 0, report.text
    assert report.out == result.out


@pytest.mark.variant
def test_under_a_users_own_mpirun_the_file_has_a_name_of_its_own(place: Path) -> None:
    command = mpirun(2, "run", "pair", "--plugin", "softtcpx", "--sizes", "1K", "-n", "2")
    result = run(command, place, {"TMPDIR": str(place / "spool")})
    assert result.code == 0, result.text
    (written,) = place.glob("tcpx-mpi-pair-*.h5")
    assert f"# Written              : {written.name}" in result.out
    assert read_run(str(written)).complete
    assert list((place / "spool").iterdir()) == [], "journals in the temporary directory"


# --- Gates and failures --------------------------------------------------------------------------


@pytest.mark.parametrize(("limit", "code"), [variant("0.000001", 0), ("1000", 9)])
def test_a_minimum_bandwidth_is_a_gate_that_fails_closed(
    limit: str, code: int, place: Path
) -> None:
    command = tcpx_mpi("run", "ring", "--ranks", "2", "--plugin", "softtcpx", "--sizes", "64K",
                       "-n", "5", "--hdf5", "none", "--spool", "spool")  # fmt: skip
    result = run(command, place, {"NCCL_TESTS_MIN_BW": limit})
    assert result.code == code, result.text
    verdict = next(x for x in result.out.splitlines() if x.startswith("# Avg bus bandwidth"))
    assert verdict.split()[-1] == ("FAILED" if code else "OK")
    said = ["NCCL_TESTS_MIN_BW asks for 1000; 0.9 of it must be reached"] if code else []
    assert [line.partition(": ")[2] for line in result.errors] == said


@pytest.mark.parametrize("limit", ["much", "nan", "-1", ""])
def test_a_minimum_bandwidth_that_is_none_is_refused_before_anything_is_measured(
    limit: str, place: Path
) -> None:
    command = tcpx_mpi("run", "ring", "--ranks", "2", "--plugin", "softtcpx", "--hdf5", "none")
    result = run(command, place, {"NCCL_TESTS_MIN_BW": limit})
    assert (result.code, result.out) == (2, ""), result.text
    assert result.errors[0].startswith(f"NCCL_TESTS_MIN_BW ({limit}) is no bandwidth in GB/s")


@pytest.fixture
def small_disk(place: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    disk = place / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tests", str(disk)]
    try:
        mounted = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError as error:
        pytest.skip(f"needs mount: {error}")
    if mounted.returncode != 0:
        pytest.skip(f"needs mount: {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_ends_the_run_with_its_own_code_and_keeps_the_rows(
    small_disk: Path, place: Path
) -> None:
    # Rows of 2 ranks x 4 phases x 8 bytes x 5000 iterations: the disk holds two or three.
    command = tcpx_mpi("run", "ring", "--ranks", "2", "--plugin", "softtcpx", "--sizes",
                       "1,2,3,4,5,6", "-n", "5000", "--hdf5", "disk/o.h5",
                       "--spool", "spool")  # fmt: skip
    result = run(command, place)
    assert result.code == 8, result.text
    assert len(result.errors) == 1, result.text
    assert "disk/o.h5" in result.errors[0]
    assert "No space left" in result.errors[0]
    found = read_run(str(small_disk / "o.h5"))
    assert 1 <= len(found.rows) < 6
    assert [row.size_bytes for row in found.rows] == [row.size for row in result.rows]
    assert not found.complete
    assert f"# kept: {len(found.rows)} rows in disk/o.h5" in result.err
    # What the file could not take is still in the journals.
    assert len(list((place / "spool").iterdir())) == 2
