"""`tcpx-mpi import`: what nccl-tests told, all of it and nothing more."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import math
from pathlib import Path
from typing import Any

import nccl_tests_logs as logs
import pytest
from nccl_tests_output import read_text
from same_run import same

import tcpx_mpi
from tcpx_mpi import cli
from tcpx_mpi.errors import ExitCode, UsageError
from tcpx_mpi.exchange.nccl_tests import read_log, run_of, write_run
from tcpx_mpi.records import Run, read_run
from tcpx_mpi.report import report_lines, to_json

Captured = pytest.CaptureFixture[str]
LOGS = {
    "all_reduce": logs.TABLE,
    "alltoall": logs.alltoall(),
    "sendrecv": logs.sendrecv(),
}


def imported(place: Path, text: str, name: str = "o.log") -> Run:
    """The run of a log, by way of its file."""
    (place / name).write_text(text)
    run = run_of(read_log(str(place / name)))
    return read_run(write_run(run, str(place / f"{name}.h5")))


def standard(lines: list[str] | str) -> list[list[str]]:
    """The words of the rows, but for ours to the right."""
    rows = lines.splitlines() if isinstance(lines, str) else lines
    return [words[:13] for line in rows if (words := line.split()) and words[0].isdecimal()]


# --- What is there --------------------------------------------------------------------------------


@pytest.mark.parametrize("test", LOGS)
def test_the_report_prints_the_rows_of_the_log(test: str, tmp_path: Path) -> None:
    run = imported(tmp_path, LOGS[test])
    assert run.header.pattern == test
    assert run.missing == []
    assert standard(report_lines(run)) == standard(LOGS[test])


@pytest.mark.parametrize("text", ['{"a":' + "[" * 200_000, '{"version":' + "9" * 6000 + "}"])
def test_a_document_that_no_reader_takes_is_refused_in_a_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text(text)
    with pytest.raises(UsageError, match=r"log\.json is no JSON of nccl-tests"):
        read_log(str(tmp_path / "log.json"))


def test_numbers_in_powers_of_ten_are_numbers(tmp_path: Path) -> None:
    run = imported(tmp_path, logs.TABLE.replace(" 612.25 ", "1.2e+08 "))
    assert run.rows[0].averages[0].time_ns == 1.2e11


def test_a_script_for_nccl_tests_reads_the_same_from_the_report(tmp_path: Path) -> None:
    run = imported(tmp_path, logs.TABLE)
    ours, theirs = read_text("\n".join(report_lines(run))), read_text(logs.TABLE)
    assert (ours.rows, ours.devices, ours.bandwidth, ours.out_of_bounds, ours.okay) == (
        theirs.rows, theirs.devices, theirs.bandwidth, theirs.out_of_bounds, theirs.okay,
    )  # fmt: skip
    assert ours.config == theirs.config


def test_ranks_have_hosts_devices_and_the_addresses_of_their_gpus(tmp_path: Path) -> None:
    run = imported(tmp_path, LOGS["alltoall"])
    assert run.header.world == 4
    assert [(r.rank, r.host, r.pid, r.device, r.gpu_pci) for r in run.header.ranks] == [
        (0, "node-0", 7000, 0, "0000:04:00"),
        (1, "node-0", 7001, 1, "0000:05:00"),
        (2, "node-1", 7002, 0, "0000:04:00"),
        (3, "node-1", 7003, 1, "0000:05:00"),
    ]
    assert {(r.device_name, r.nic, r.numa_node) for r in run.header.ranks} == {
        ("NVIDIA H100 80GB HBM3", "", -1)
    }


def test_text_and_document_of_one_run_are_the_same_run(tmp_path: Path) -> None:
    text, document = imported(tmp_path, logs.TABLE), imported(tmp_path, logs.DOCUMENT, "o.json")
    assert same(text.rows, document.rows)
    assert text.header.ranks == document.header.ranks
    # Only the document says whether nccl-tests waited for each operation.
    assert (text.header.plan.blocking, document.header.plan.blocking) == (-1, 0)
    assert dataclasses.replace(text.header.plan, blocking=0) == document.header.plan
    assert document.header.command[0] == "all_reduce_perf"
    assert document.header.environment == {"NCCL_DEBUG": "INFO"}


def test_a_document_with_texts_for_numbers_is_read_too(tmp_path: Path) -> None:
    document = json.loads(logs.DOCUMENT)
    del document["config"]["step_bytes"]
    document["config"]["aggregated_iterations"] = "4"
    for result in document["results"]:
        result["root"] = f"{result['root']:6d}"
        result["out_of_place"].update(alg_bw="3.5", bus_bw="7")
        result["in_place"]["nwrong"] = "nan"
    document.update(version=2, average_bus_bandwidth={"bandwidth": 55.195, "okay": "unchecked"})
    run = imported(tmp_path, json.dumps(document), "o.json")
    assert [(row.root, row.averages[1].wrong) for row in run.rows] == [(-1, -1), (-1, -1)]
    assert run.missing == []
    assert {row.agg for row in run.rows} == {4}
    sides = [row.averages[0] for row in run.rows]
    assert {(side.algbw, side.busbw) for side in sides} == {(3.5, 7.0)}


def test_a_document_without_in_place_has_one_side(tmp_path: Path) -> None:
    document = json.loads(logs.DOCUMENT)
    for result in document["results"]:
        result["in_place"] = None
    run = imported(tmp_path, json.dumps(document), "o.json")
    assert [len(row.averages) for row in run.rows] == [1, 1]
    assert standard(report_lines(run))[0][9:] == ["N/A"] * 4
    assert to_json(run)["results"][0]["in_place"] is None


def test_the_environment_is_what_nccl_said_of_it_and_keeps_secrets(tmp_path: Path) -> None:
    run = imported(tmp_path, LOGS["alltoall"])
    assert run.header.environment == {"NCCL_ALGO": "Ring", "NCCL_SECRET_KEY": "(redacted)"}
    assert run.header.versions["nccl-tests"] == "2.17.1"
    assert run.header.versions["NCCL"] == "22703"


def test_older_rank_lines_and_a_log_without_a_name_are_read(tmp_path: Path) -> None:
    text = "\n".join(
        line.replace(" Group  0", "").replace("[0000:", "[0x")
        for line in logs.TABLE.splitlines(keepends=False)
        if "nccl-tests version" not in line and "Collective test" not in line
    )
    run = imported(tmp_path, text + "\n")
    assert (run.header.pattern, run.missing) == ("unknown", [])
    assert run.header.ranks[1].gpu_pci == "0x05:00"
    assert "the log does not name its test" in run.header.notes


def test_wrong_elements_of_both_sides_are_counted(tmp_path: Path) -> None:
    run = imported(tmp_path, LOGS["sendrecv"])
    assert [[side.wrong for side in row.averages] for row in run.rows] == [[0, 0], [3, 4], [-1, -1]]
    assert "# Out of bounds values : 7 FAILED" in report_lines(run)
    document = to_json(run)
    assert document["out_of_bounds"] == {"count": 7, "okay": False}
    sides = [(r["out_of_place"]["nwrong"], r["in_place"]["nwrong"]) for r in document["results"]]
    assert sides == [(0, 0), (3, 4), (None, None)]


def test_columns_of_single_iterations_are_passed_over_with_a_note(tmp_path: Path) -> None:
    run = imported(tmp_path, logs.per_iteration())
    (row,) = run.rows
    assert [side.time_ns for side in row.averages] == [101_250, 102_500]
    assert any("per-iteration" in note for note in run.header.notes)


# --- What is not there ----------------------------------------------------------------------------


@pytest.mark.parametrize("test", LOGS)
def test_no_view_has_a_sample_or_a_percentile(test: str, tmp_path: Path, capsys: Captured) -> None:
    run = imported(tmp_path, LOGS[test])
    path = run.path
    assert any("averages" in line and "no samples" in line for line in report_lines(run))
    assert any(line.startswith("# Imported  ") for line in report_lines(run))

    for result in to_json(run)["results"]:
        figures = result["out_of_place_per_iter"]
        assert {v for k, v in figures.items() if k != "skipped_iterations"} == {None}
        unknown = ("t_max_us", "t_max_rank", "payload_bytes_received", "chunk_bytes", "slots",
                   "prepare_and_check_s", "late_starts", "net_bw", "mmsg_per_s")  # fmt: skip
        assert [result[name] for name in unknown] == [None] * len(unknown)

    frames = tcpx_mpi.open_run(path)
    assert len(frames.samples) == 0
    assert len(frames.batches) == 0
    percentiles = frames.rows[["p50_us", "p95_us", "min_us", "max_us", "t_max_us", "stdev_us"]]
    assert percentiles.isna().all(axis=None)
    assert set(frames.rows.side) == {"plugin", "in_place"}
    assert set(frames.rows["mode"]) == {"averages"}

    assert cli.main(["export", path, "--csv", "--table", "rows", "--output", "-"]) == 0
    lines = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(lines) == 2 * len(run.rows)
    assert {line["p50_us"] for line in lines} == {""}
    assert float(lines[1]["time_us"]) == run.rows[0].averages[1].time_ns / 1e3


def test_the_page_says_that_it_is_imported(tmp_path: Path, capsys: Captured) -> None:
    run = imported(tmp_path, LOGS["alltoall"])
    assert cli.main(["report", run.path, "--html", str(tmp_path / "o.html")]) == 0
    page = (tmp_path / "o.html").read_text()
    assert "Imported from nccl-tests: averages only" in page
    assert "every timed byte was checked" not in page
    assert "us, in place" in page


# --- What is cut off or damaged -------------------------------------------------------------------


def test_a_log_cut_anywhere_gives_its_whole_rows_or_one_refusal(tmp_path: Path) -> None:
    text = LOGS["sendrecv"]
    begins = text.index("#       size")
    path = tmp_path / "o.log"
    for end in (*range(0, begins, 31), *range(begins, len(text))):
        path.write_text(text[:end])
        try:
            run = run_of(read_log(str(path)))
        except UsageError:
            assert end < begins
            continue
        rows = standard(text[: text.rindex("\n", 0, end) + 1])
        assert [row.size_bytes for row in run.rows] == [int(row[0]) for row in rows]
        concluded = "# Avg bus bandwidth    : " in text[: end - 1]
        assert bool(run.missing) is not concluded, run.missing
        if not concluded and run.header.world == 4 and len(rows) < 3:
            assert f"{3 - len(rows)} of 3 rows" in " ".join(run.missing)


def test_a_document_cut_anywhere_gives_its_whole_rows_or_one_refusal(tmp_path: Path) -> None:
    path = tmp_path / "o.json"
    counts = []
    for end in range(0, len(logs.DOCUMENT) - 2, 3):
        path.write_text(logs.DOCUMENT[:end])
        try:
            run = run_of(read_log(str(path)))
        except UsageError:
            assert counts == []
            continue
        counts.append(len(run.rows))
        concluded = end > logs.DOCUMENT.index('"errors"') - 4
        assert bool(run.missing) is not concluded, (end, run.missing)
    assert counts == sorted(counts)
    assert set(counts) == {0, 1, 2}


def test_quotes_and_brackets_in_texts_close_nothing_of_a_document_that_was_cut(
    tmp_path: Path,
) -> None:
    document = json.loads(logs.DOCUMENT)
    document["args"].append('5" \\ }]} [{')
    text = json.dumps(document)
    run = imported(tmp_path, text[: text.index('"average_bus_bandwidth"')], "o.json")
    assert len(run.rows) == 2
    assert run.header.command[-1] == document["args"][-1]


def test_a_row_that_nccl_talked_into_is_missed(tmp_path: Path) -> None:
    middle = logs.row(2048, [("21.00", "0.10", "0.07", "0"), ("20.75", "0.10", "0.07", "N/A")])
    broken = middle[:60] + "node-1:7002:7010 [0] NCCL INFO Connected\n" + middle[60:]
    run = imported(tmp_path, LOGS["alltoall"].replace(middle, broken))
    assert [row.size_bytes for row in run.rows] == [1024, 4096]
    assert any("a row that is not whole in the log: '2048 512 float" in x for x in run.missing)
    assert not run_of(read_log(str(tmp_path / "o.log"))).complete


def test_a_rank_without_its_line_is_missed(tmp_path: Path) -> None:
    lines = [line for line in LOGS["alltoall"].splitlines() if not line.startswith("#  Rank  2")]
    run = imported(tmp_path, "\n".join(lines) + "\n")
    assert run.missing == ["1 of 4 ranks in the rank map: rank 2"]


def test_several_passes_over_the_sizes_are_one_table(tmp_path: Path) -> None:
    # As with -o all: each operation goes through all sizes.
    sides = [("1.00", "1.00", "1.00", "0")] * 2
    rows = [
        logs.row(size, sides, redop) for redop in ("sum", "prod") for size in (1024, 2048, 4096)
    ]
    head = logs.header("all_reduce_perf")
    whole = imported(tmp_path, head + "".join(rows) + logs.footer("all_reduce_perf"))
    assert [row.redop for row in whole.rows] == ["sum"] * 3 + ["prod"] * 3
    assert whole.missing == []
    cut = imported(tmp_path, head + "".join(rows[:4]), "cut.log")
    assert "2 of 6 rows: 2 KiB, 4 KiB" in cut.missing


# --- The command ----------------------------------------------------------------------------------


def test_the_command_writes_beside_the_log_and_overwrites_nothing(
    tmp_path: Path, capsys: Captured
) -> None:
    log = tmp_path / "o.log"
    log.write_text(logs.TABLE)
    for name in ("o.h5", "o.0.h5"):
        assert cli.main(["import", str(log)]) == ExitCode.OK
        wrote = f"# wrote {tmp_path}/{name}: all_reduce, 2 ranks, 2 rows, averages only\n"
        assert capsys.readouterr().out == wrote
    assert cli.main(["import", str(log), "--output", str(tmp_path / "other.h5")]) == ExitCode.OK
    assert cli.main(["report", str(tmp_path / "other.h5")]) == ExitCode.OK


def test_a_partial_log_ends_in_12_and_so_does_its_report(tmp_path: Path, capsys: Captured) -> None:
    log = tmp_path / "o.log"
    log.write_text(logs.TABLE[: logs.TABLE.index("    67108864")])
    assert cli.main(["import", str(log)]) == ExitCode.PARTIAL_RESULT
    out, errors = capsys.readouterr()
    assert "1 row" in out
    assert errors.count("\n") == 1
    assert "o.log ends before nccl-tests did" in errors
    assert "1 of 2 rows: 64 MiB" in errors
    assert cli.main(["report", str(tmp_path / "o.h5")]) == ExitCode.PARTIAL_RESULT


OURS = "# tcpx-mpi version 0.1.0\n" + logs.TABLE.split("\n", 1)[1]
BAD: dict[str, tuple[Any, list[str]]] = {
    "no log": ("hello\n", ["no log of nccl-tests", "# nThread"]),
    "nothing": ("", ["no log of nccl-tests"]),
    "binary": (b"\x89HDF\r\n\x1a\n\x00\xff" * 99, ["no log of nccl-tests"]),
    "several": (logs.TABLE + LOGS["sendrecv"], ["holds 2 runs", "a file of its own"]),
    "ours": (OURS, ["a table of tcpx-mpi", "report"]),
    "cpu time": (logs.TABLE.replace("    time ", " cputime "), ["-C", "without it"]),
    "other json": ('{"a": 1}', ["version 2 or 3, found None"]),
    "no json": ("{ nothing", ["no JSON of nccl-tests"]),
    "json list": ('{"version": 3, "config": [], "args": [], "env": []}', ["no JSON"]),
    "our json": ('{"version": 3, "tcpx_mpi": {}}', ["a document of tcpx-mpi"]),
    "newer json": (logs.DOCUMENT.replace('"version": 3', '"version": 4'), ["found 4"]),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_one_line_and_leaves_nothing(
    what: str, tmp_path: Path, capsys: Captured
) -> None:
    content, parts = BAD[what]
    log = tmp_path / "o.log"
    log.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert cli.main(["import", str(log)]) == ExitCode.USAGE
    out, errors = capsys.readouterr()
    assert (out, errors.count("\n")) == ("", 1)
    for part in [str(log), *parts]:
        assert part in errors
    assert [path.name for path in tmp_path.iterdir()] == ["o.log"]


@pytest.mark.timeout(60)
def test_more_gpus_than_lines_tell_of_are_refused_before_there_is_a_rank(tmp_path: Path) -> None:
    many = logs.TABLE.replace("nGpus 1", "nGpus 999999999")
    with pytest.raises(UsageError, match="tells of 999999999 ranks"):
        imported(tmp_path, many)


def test_what_stands_before_the_settings_alone_is_no_prefix(tmp_path: Path) -> None:
    odd = logs.TABLE.replace("# nThread", "x" * 300 + "# nThread")
    assert len(imported(tmp_path, odd).rows) == 2


def test_a_missing_log_and_an_impossible_output_are_refused(
    tmp_path: Path, capsys: Captured
) -> None:
    assert cli.main(["import", str(tmp_path / "o.log")]) == ExitCode.USAGE
    assert "no such file" in capsys.readouterr().err
    (tmp_path / "o.log").write_text(logs.TABLE)
    output = str(tmp_path / "absent" / "o.h5")
    assert cli.main(["import", str(tmp_path / "o.log"), "--output", output]) == ExitCode.USAGE
    assert "absent does not exist" in capsys.readouterr().err


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    (tmp_path / "o.log").write_text(LOGS["sendrecv"])
    run = run_of(read_log(str(tmp_path / "o.log")))
    back = read_run(write_run(run, str(tmp_path / "o.h5")))
    assert math.isnan(back.header.busbw_factor)
    header = dataclasses.replace(back.header, busbw_factor=0.0)
    assert same(header, dataclasses.replace(run.header, busbw_factor=0.0))
    # NaN is not equal to itself: as text.
    assert repr([row.averages for row in back.rows]) == repr([row.averages for row in run.rows])
    assert [row.samples["iteration"].shape for row in back.rows] == [(4, 0)] * 3
