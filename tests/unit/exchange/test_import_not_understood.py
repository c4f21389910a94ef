"""`tcpx-mpi import`: what a log says and no row, run or file can hold is named."""

from __future__ import annotations

import dataclasses
import json
import resource
import subprocess
import sys
from pathlib import Path

import nccl_tests_logs as logs
import pytest
from imported_logs import FOUND, figures, found, imported, refusal

from tcpx_mpi import cli
from tcpx_mpi.compare import differences
from tcpx_mpi.errors import ExitCode
from tcpx_mpi.exchange.nccl_tests import write_run
from tcpx_mpi.records import read_run
from tcpx_mpi.report import report_lines, to_json

Captured = pytest.CaptureFixture[str]


# --- What is not understood -----------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(p.name for p in FOUND.glob("k3-*")))
def test_no_row_and_no_run_is_passed_over(name: str, tmp_path: Path, capsys: Captured) -> None:
    out = str(tmp_path / "o.h5")
    code = cli.main(["import", str(FOUND / name), "--output", out])
    errors = capsys.readouterr().err
    if "text-before-row" in name:
        assert code == ExitCode.PARTIAL_RESULT
        assert "a row that is not whole in the log: 'gpu-a:1:2" in errors
    else:
        assert code == ExitCode.USAGE
        assert "holds 2 runs of nccl-tests" in errors


def test_lines_that_are_not_understood_are_counted_and_named(tmp_path: Path) -> None:
    """Of a log that lacks a row: one of them could be what is left of it."""
    last = logs.TABLE.index("    67108864 ")
    table = logs.TABLE[:last] + "one\ntwo\nthree\nfour\n" + logs.TABLE[last:].partition("\n")[2]
    run = imported(tmp_path, "before\n" + table + "after\n")
    (text,) = [words for words in run.missing if "not understood" in words]
    assert "4 lines are not understood: line 14: 'one'; line 15: 'two'; line 16: 'three'" in text
    assert "; line 16: 'three' and 1 more" in text
    assert "before" not in text
    assert len(run.rows) == 1


FOREIGN = {
    "rccl-tests": ["rccl-tests: Version develop:448c4c7"],
    "glog": ["I1126 12:00:01.123456 12345 launcher.cc:88] still there"],
    "a progress bar": ["allreduce:  33%|###3      | 1/3 [00:01<00:02,  1.10s/it]"],
    "UCX": ["[1700000000.123456] [gpu-a:7000 :0]  ucp_context.c:1849 UCX  WARN  an older version"],
    "libibverbs": ["libibverbs: Warning: couldn't load driver 'libx-rdmav34.so': no such file"],
    "Open MPI": ["-" * 76, "WARNING: There was an error.", "", "  Local host:   gpu-a", "-" * 76],
    "Python": ["/usr/lib/site.py:12: UserWarning: it is deprecated", "  warnings.warn('it')"],
    "srun": ["srun: job 12345 queued and waiting for resources"],
    "date": ["Tue Nov 26 12:00:00 UTC 2026", "=== step 3 ==="],
}


@pytest.mark.parametrize("what", FOREIGN)
@pytest.mark.parametrize("behind", ["# Using devices", "(us)", "    33554432", "    67108864"])
def test_lines_of_others_are_told_and_take_nothing_from_a_whole_log(
    what: str, behind: str, tmp_path: Path
) -> None:
    lines = logs.TABLE.splitlines()
    place = next(n for n, line in enumerate(lines, 1) if behind in line)
    text = "\n".join([*lines[:place], *FOREIGN[what], *lines[place:]]) + "\n"
    run = imported(tmp_path, text)
    assert figures(run) == figures(imported(tmp_path, logs.TABLE, "plain.log"))
    assert run.missing == []
    if what == "rccl-tests":
        assert run.header.versions["rccl-tests"] == "develop:448c4c7"
    else:
        assert any("not understood: line" in note for note in run.header.notes)


TAGS = ("[1,0]<stdout>:", "[prterun-n1-77@1,0]<stdout>: ", "Fri Mar 14 09:26:11 2025[1,0]<stdout>:")


@pytest.mark.parametrize("tag", TAGS)
@pytest.mark.parametrize("before", ["", "tag"])
def test_a_tag_in_the_middle_of_a_line_is_taken_off(tag: str, before: str, tmp_path: Path) -> None:
    """mpirun writes it again where a rank's words came in two parts, within a number too."""
    first = tag if before else ""
    plain = figures(imported(tmp_path, logs.TABLE, "plain.log"))
    rows = [line for line in logs.TABLE.splitlines() if line.startswith("    ")]
    for at in range(20, len(rows[0]), 7):
        text = "".join(
            f"{first}{line[:at]}{tag}{line[at:]}\n" if line in rows else f"{first}{line}\n"
            for line in logs.TABLE.splitlines()
        )
        run = imported(tmp_path, text)
        assert (figures(run), run.missing) == (plain, []), at


def test_what_another_rank_wrote_into_a_row_is_no_part_of_it(tmp_path: Path) -> None:
    text = logs.TABLE.replace("54.85       0\n", "54.8[1,3]<stdout>:5       0\n")
    run = imported(tmp_path, "".join(f"[1,0]<stdout>:{x}\n" for x in text.splitlines()))
    assert any("a row that is not whole" in each for each in run.missing)


NUMBERED = {
    "nl -ba": "{n:6d}\t{line}",
    "grep -n": "{n}:{line}",
    "less -N": "{n:7d} {line}",
    "cat -n of srun -l": "{n:6d}\t0: {line}",
    "cat -n of tags": "{n:6d}\t[1,0]<stdout>:{line}",
    "from the middle": "{n:6d}\t{line}",
}


@pytest.mark.parametrize("what", NUMBERED)
def test_numbers_of_lines_are_no_ranks(what: str, tmp_path: Path) -> None:
    begin = 1001 if what == "from the middle" else 1
    lines = [
        NUMBERED[what].format(n=n, line=line)
        for n, line in enumerate(logs.TABLE.splitlines(), begin)
    ]
    run = imported(tmp_path, "\n".join(lines) + "\n")
    assert figures(run) == figures(imported(tmp_path, logs.TABLE, "plain.log"))
    assert run.missing == []


def test_sizes_that_begin_again_are_another_run(tmp_path: Path) -> None:
    rows = logs.TABLE[logs.TABLE.index("    33554432") : logs.TABLE.index("# Out of bounds")]
    assert "begin again at 33554432" in refusal(tmp_path, logs.TABLE.replace(rows, rows * 2))


def test_sizes_that_were_rounded_to_one_do_not_begin_again(tmp_path: Path) -> None:
    sides = [("1.00", "0.01", "0.01", "0")] * 2
    head = logs.header("all_reduce_perf", least=8, most=12).replace("2(factor)", "2(bytes)")
    rows = "".join(logs.row(size, sides, "sum") for size in (8, 8, 12))
    assert len(imported(tmp_path, head + rows + logs.footer("all_reduce_perf")).rows) == 3


def test_a_row_after_the_footer_is_of_another_run(tmp_path: Path) -> None:
    sides = [("1.00", "0.01", "0.01", "0")] * 2
    assert "holds 2 runs" in refusal(tmp_path, logs.TABLE + logs.row(8, sides, "sum"))


def test_a_header_that_is_not_whole_is_said(tmp_path: Path) -> None:
    run = imported(tmp_path, logs.TABLE.replace("step: 2(factor)", "step: gpu-a:1:2"))
    assert any("the line of settings is not whole" in text for text in run.missing)


# --- Facts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["41-json-8gpus-one-process.json",
                                  "42-json-4gpus-two-processes.json"])  # fmt: skip
def test_a_document_lists_one_gpu_of_each_process(name: str) -> None:
    run = found(name)
    assert (run.header.world, run.missing) == (8, [])
    listed = {0, 4} if name.startswith("42") else {0}
    assert {r.rank for r in run.header.ranks if r.device_name} == listed
    assert {r.device for r in run.header.ranks if r.rank not in listed} == {-1}
    hosts = {r.rank: r.host for r in run.header.ranks}
    assert hosts[7] == ("gpu-b" if name.startswith("42") else "gpu-a")
    assert hosts[3] == "gpu-a"


def test_compare_sees_what_the_logs_say_of_graphs_gpus_and_blocking(tmp_path: Path) -> None:
    text = (FOUND / "k5-graph-and-ngpus.log").read_text()
    first = imported(tmp_path, text)
    second = imported(tmp_path, text.replace("graph: 10", "graph: 0"), "p.log")
    assert [(d.name, d.first, d.second) for d in differences(first, second)] == [
        ("graph", "10", "0")
    ]
    document = json.loads((FOUND / "41-json-8gpus-one-process.json").read_text())
    waits = json.loads(json.dumps(document))
    waits["config"].update(blocking_collectives="true", nthreads=2, ngpus=4)
    pair = [imported(tmp_path, json.dumps(d), f"{n}.json") for n, d in enumerate((document, waits))]
    names = {d.name: (d.first, d.second) for d in differences(*pair)}
    assert names == {
        "nthreads": ("1", "2"), "ngpus": ("8", "4"), "blocking_collectives": ("false", "true"),
    }  # fmt: skip
    assert [run.header.plan.blocking for run in pair] == [0, 1]


def test_the_report_prints_the_settings_of_the_log_and_invents_none(tmp_path: Path) -> None:
    run = found("k5-graph-and-ngpus.log")
    (line,) = [line for line in report_lines(run) if "nThread" in line]
    assert line == (
        "# nThread 1 nGpus 8 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 20 "
        "agg iters: 1 validation: 1 graph: 10 unalign: N/A"
    )
    config = to_json(run)["config"]
    assert (config["ngpus"], config["graph"], config["blocking_collectives"]) == (8, 10, None)
    assert any("not told by the log: blocking_collectives" in n for n in run.header.notes)


# --- Numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["k6-wrong-inf.log", "52-json-wrong-inf.json"])
def test_a_count_that_is_infinite_is_said_and_not_told(name: str, tmp_path: Path) -> None:
    run = found(name)
    assert [average.wrong for average in run.rows[0].averages] == [-1, 0]
    assert any("has #wrong inf, which is no figure" in text for text in run.missing)
    assert cli.main(["import", str(FOUND / name), "--output", str(tmp_path / "o.h5")]) == 12


@pytest.mark.parametrize("word", ["inf", "-inf"])
def test_bandwidths_that_are_infinite_are_not_told(word: str, tmp_path: Path) -> None:
    run = imported(tmp_path, logs.TABLE.replace("54.81   54.81", f"{word}   54.81"))
    assert repr(run.rows[0].averages[0].algbw) == "nan"
    assert any(f"algbw {word}" in text for text in run.missing)
    assert report_lines(run)


@pytest.mark.parametrize("number", [2**63, 2**64 - 1, 10**30])
def test_numbers_that_no_file_can_hold_are_named(number: int, tmp_path: Path) -> None:
    run = imported(tmp_path, logs.TABLE.replace("    33554432 ", f"    {number} "))
    assert [row.size_bytes for row in run.rows] == [67108864]
    assert any(f"{number} is larger than 2^63 - 1" in text for text in run.missing)
    run = imported(tmp_path, logs.TABLE.replace("maxBytes 67108864", f"maxBytes {number}"), "p.log")
    assert any(f"{number} is larger than 2^63 - 1" in text for text in run.missing)
    document = json.loads(logs.DOCUMENT)
    document["results"][0]["count"] = number
    run = imported(tmp_path, json.dumps(document), "o.json")
    assert any(f"{number} is larger than 2^63 - 1" in text for text in run.missing)


def test_a_step_of_one_byte_is_no_plan_of_a_thousand_million_rows(tmp_path: Path) -> None:
    text = (FOUND / "k6-step-one-byte.log").read_text()
    assert [row.size_bytes for row in imported(tmp_path, text).rows] == [8]
    run = imported(tmp_path, text[: text.index("# Avg")], "cut.log")
    assert len(run.header.plan.sizes) < 10_000
    assert any("of 8589934585 sizes that were asked for 1 are there" in t for t in run.missing)


# --- A result that cannot be written --------------------------------------------------------------


@pytest.mark.parametrize("room", [0, 1000, 20_000])
def test_an_import_without_room_leaves_nothing(room: int, tmp_path: Path) -> None:
    (tmp_path / "o.log").write_text(logs.TABLE)
    done = subprocess.run(
        [sys.executable, "-m", "tcpx_mpi", "import", str(tmp_path / "o.log")],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (room, room)),
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (ExitCode.OUTPUT_FAILED, 1), done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["o.log"]


def test_a_rank_says_where_it_is_in_the_file_too(tmp_path: Path) -> None:
    run = found("42-json-4gpus-two-processes.json")
    back = read_run(write_run(run, str(tmp_path / "o.h5")))
    assert back.header.ranks == run.header.ranks
    assert dataclasses.asdict(back.header.plan) == dataclasses.asdict(run.header.plan)


def test_a_number_of_thousands_of_digits_is_no_number_of_a_line(tmp_path: Path) -> None:
    lines = logs.TABLE.splitlines()
    begin = next(number for number, line in enumerate(lines) if "nThread" in line)
    lines[begin + 1] = f"{'9' * 4301}: {lines[begin + 1]}"
    text = "\n".join(f"n{number}: {line}" for number, line in enumerate(lines)) + "\n"
    text = text.replace(f"n{begin + 1}: 9", "n9", 1)
    assert "is no log of nccl-tests" in refusal(tmp_path, text)
