"""`tcpx-mpi import`: logs as people have them, of all versions; what is not understood is said."""

from __future__ import annotations

import bz2
import dataclasses
import gzip
import io
import json
import os
import re
import resource
import subprocess
import sys
import threading
from pathlib import Path

import nccl_tests_logs as logs
import pytest

from tcpx_mpi import cli
from tcpx_mpi.compare import differences
from tcpx_mpi.errors import ExitCode, UsageError
from tcpx_mpi.exchange.nccl_tests import read_log, run_of, write_run
from tcpx_mpi.records import Run, read_run
from tcpx_mpi.report import report_lines, to_json

FOUND = Path(__file__).parents[2] / "fixtures" / "nccl_tests"
Captured = pytest.CaptureFixture[str]


def found(name: str) -> Run:
    return run_of(read_log(str(FOUND / name)))


def imported(place: Path, text: str | bytes, name: str = "o.log") -> Run:
    """The run of a log, by way of its file."""
    (place / name).write_bytes(text.encode() if isinstance(text, str) else text)
    run = run_of(read_log(str(place / name)))
    return read_run(write_run(run, str(place / f"{name}.h5")))


def refusal(place: Path, text: str) -> str:
    with pytest.raises(UsageError) as refused:
        imported(place, text)
    return str(refused.value)


def figures(run: Run) -> list[str]:
    """Rows as text: NaN is not equal to itself."""
    return [repr((row.size_bytes, row.type_name, row.redop, row.averages)) for row in run.rows]


# --- Lines with something before them, and text in other encodings --------------------------------

PREFIXES = {
    "srun -l, padded": lambda n: " 3: ",
    "tag-output": lambda n: "[1,0]<stdout>:",
    "tag-output of Open MPI 5": lambda n: "[prterun-n1-77@1,0]<stdout>: ",
    "host": lambda n: "gpu-a: ",
    "kubectl --timestamps": lambda n: f"2025-03-14T09:26:{n % 60:02d}.589793238Z ",
    "kubectl --prefix": lambda n: "[pod/nccl-0/worker] ",
    "ts": lambda n: f"Mar 14 09:26:{n % 60:02d} ",
    "ts -s": lambda n: f"00:00:{n % 60:02d} ",
    "epoch": lambda n: f"1741944413.{n:06d} ",
    "time and rank": lambda n: f"Fri Mar 14 09:26:{n % 60:02d} 2025[1,0]<stdout>:",
    "compose": lambda n: "nccl-1  | ",
    "quoted twice": lambda n: "> > ",
    "indented": lambda n: "    ",
    "a tab": lambda n: "\t",
}


@pytest.mark.parametrize("what", PREFIXES)
@pytest.mark.parametrize("hash_lost", [False, True])
def test_one_prefix_for_all_lines_is_taken_off(what: str, hash_lost: bool, tmp_path: Path) -> None:
    text = logs.alltoall()
    expected = imported(tmp_path, text)
    lines = [line.replace("#", "", 1) if hash_lost else line for line in text.splitlines()]
    lines = [f"{PREFIXES[what](n)}{line}".rstrip() for n, line in enumerate(lines)]
    run = imported(tmp_path, "\n".join(lines) + "\n", "p.log")
    assert (figures(run), run.header.ranks) == (figures(expected), expected.header.ranks)
    assert (run.missing, run.header.pattern) == ([], "alltoall")
    assert run.header.environment == expected.header.environment


@pytest.mark.parametrize("name", sorted(p.name for p in FOUND.glob("k1-*")))
def test_logs_that_were_found_with_something_before_each_line(name: str) -> None:
    run = found(name)
    assert run.missing == []
    assert [(row.size_bytes, row.averages[1].time_ns) for row in run.rows] == [(8, 3000.0)]
    assert (run.header.world, run.header.plan.iters) == (1, 20)


def test_lines_of_other_ranks_are_kept_apart(tmp_path: Path) -> None:
    other = "2: 8 8 nonsense of another rank\n"
    lines = [f"0: {line}\n{other}" for line in logs.sendrecv().splitlines()]
    run = imported(tmp_path, "".join(lines))
    assert (len(run.rows), run.missing) == (3, [])


def test_ranks_that_ran_alone_are_several_runs(tmp_path: Path) -> None:
    pairs = [f"0: {line}\n1: {line}\n" for line in logs.sendrecv().splitlines()]
    assert "holds 2 runs" in refusal(tmp_path, "".join(pairs))


@pytest.mark.parametrize(
    "form", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "crlf", "crcrlf", "colour", "gzip",
             "bzip2", "two members"],
)  # fmt: skip
def test_text_in_other_forms_is_the_same_run(form: str, tmp_path: Path) -> None:
    text = logs.TABLE
    half = len(text) // 2
    content = {
        "crlf": lambda: text.replace("\n", "\r\n").encode(),
        "crcrlf": lambda: text.replace("\n", "\r\r\n").encode(),
        "colour": lambda: "".join(f"\x1b[1;32m{x}\x1b[0m\n" for x in text.splitlines()).encode(),
        "gzip": lambda: gzip.compress(text.encode()),
        "bzip2": lambda: bz2.compress(text.encode()),
        "two members": lambda: (
            gzip.compress(text[:half].encode()) + gzip.compress(text[half:].encode())
        ),
    }.get(form, lambda: text.encode(form))()
    run = imported(tmp_path, content)
    assert figures(run) == figures(imported(tmp_path, text, "plain.log"))
    assert run.missing == []


def test_a_packed_log_that_was_cut_has_its_whole_rows(tmp_path: Path) -> None:
    packed = gzip.compress(logs.TABLE.encode(), compresslevel=0)
    run = imported(tmp_path, packed[: packed.index(b"    67108864") + 20], "o.log.gz")
    assert [row.size_bytes for row in run.rows] == [33554432]
    assert any("ends before nccl-tests did" in text for text in run.missing)


def test_standard_input_and_pipes_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(logs.TABLE.encode())))
    assert cli.main(["import", "-"]) == ExitCode.OK
    os.mkfifo("pipe")
    writer = threading.Thread(target=lambda: Path("pipe").write_text(logs.TABLE))
    writer.start()
    assert cli.main(["import", "pipe"]) == ExitCode.OK
    writer.join()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in lines] == ["nccl-tests.h5:", "nccl-tests.0.h5:"]


def test_a_packed_log_gets_a_name_without_both_endings(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "o.log.gz").write_bytes(gzip.compress(logs.TABLE.encode()))
    assert cli.main(["import", str(tmp_path / "o.log.gz")]) == ExitCode.OK
    assert f"# wrote {tmp_path}/o.h5:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("x.dat.2", "x.dat.2.h5"), ("x.dat", "x.h5"), ("o.log.1", "o.log.1.h5"),
        ("job-7.1234", "job-7.1234.h5"), ("o.log.2.gz", "o.log.2.h5"), ("run.v2", "run.v2.h5"),
        ("2026-11.26", "2026-11.26.h5"), ("o.JSON", "o.h5"), ("o.out", "o.h5"), ("o", "o.h5"),
    ],
)  # fmt: skip
def test_what_tells_one_log_from_the_next_is_in_the_name(
    name: str, written: str, tmp_path: Path, capsys: Captured
) -> None:
    content = logs.TABLE.encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert cli.main(["import", str(tmp_path / name)]) == ExitCode.OK
    assert f"# wrote {tmp_path}/{written}:" in capsys.readouterr().out


def test_the_refusal_says_what_the_log_looks_like(tmp_path: Path) -> None:
    text = logs.TABLE.replace("# nThread", "# threads")
    assert "found '# threads 1 nGpus 1" in refusal(tmp_path, text)


# --- Formats of other years -----------------------------------------------------------------------


def test_the_format_of_2019_has_no_count_of_wrong_elements() -> None:
    run = found("k2-2019-format.log")
    assert run.missing == []
    assert [(a.time_ns, a.busbw, a.wrong) for a in run.rows[0].averages] == [
        (1000.0, 0.02, -1), (3000.0, 0.04, -1),
    ]  # fmt: skip
    assert (run.header.plan.agg_iters, run.rows[0].agg, run.rows[0].root) == (-1, -1, -1)
    assert "# Out of bounds values : N/A" in report_lines(run)
    config = to_json(run)["config"]
    assert (config["aggregated_iterations"], config["graph"], config["warmup_iters"]) == (
        None, None, 5,
    )  # fmt: skip


def test_what_an_old_log_found_out_of_bounds_is_told(tmp_path: Path) -> None:
    text = (FOUND / "k2-2019-format.log").read_text()
    bad = text.replace("# Avg", "# Out of bounds values : 3 FAILED\n# Avg")
    run = imported(tmp_path, bad)
    assert any("values out of bounds (3 FAILED)" in words for words in run.missing)
    assert "# Out of bounds values : 3 FAILED" in report_lines(run)
    good = imported(tmp_path, bad.replace("3 FAILED", "0 OK"), "good.log")
    assert good.missing == []
    assert to_json(good)["out_of_bounds"] == {"count": 0, "okay": True}


@pytest.mark.parametrize(
    ("titles", "row", "expected"),
    [
        ("size count type", "8 2 float", ("none", -1)),
        ("size count type redop", "8 2 float", ("none", -1)),
        ("size count type redop root", "8 2 float", ("none", -1)),
        ("size count type root", "8 2 float 3", ("none", 3)),
        ("size count type redop root", "8 2 float 3", ("none", 3)),
        ("bytes N type op", "8 2 float sum", ("sum", -1)),
    ],
)
def test_operations_without_an_operator_or_a_root_have_less_columns(
    titles: str, row: str, expected: tuple[str, int], tmp_path: Path
) -> None:
    text = (FOUND / "k2-2019-format.log").read_text()
    text = text.replace("size         count    type   redop ", titles)
    text = text.replace("8             2   float     sum", row)
    run = imported(tmp_path, text)
    assert [(r.redop, r.root, r.averages[1].time_ns) for r in run.rows] == [(*expected, 3000.0)]


def test_a_row_without_its_last_column_is_not_one_with_less_columns(tmp_path: Path) -> None:
    lines = logs.TABLE.replace("54.85       0\n", "54.85\n")
    run = imported(tmp_path, lines)
    assert [row.size_bytes for row in run.rows] == [67108864]
    assert any("a row that is not whole" in text for text in run.missing)


def test_columns_are_found_by_their_titles(tmp_path: Path) -> None:
    run = found("k4-copybw.log")
    assert [(a.time_ns, a.busbw, a.wrong) for a in run.rows[0].averages] == [
        (1000.0, 0.02, 0), (3000.0, 0.04, 0),
    ]  # fmt: skip
    assert "columns of the log that are not imported: copybw" in run.header.notes
    text = logs.TABLE.replace("#wrong \n", "#wrong #iters           timestamp\n")
    text = text.replace("54.85       0\n", "54.85       7     20 2025-03-14 09:26:53\n")
    run = imported(tmp_path, text.replace("N/A\n", "N/A     20 2025-03-14 09:26:54\n"))
    assert [[a.wrong for a in row.averages] for row in run.rows] == [[0, 7], [0, -1]]


def test_columns_behind_both_sides_are_named(tmp_path: Path) -> None:
    """As rccl-tests has them with -M."""
    text = logs.TABLE.replace("#wrong \n", "#wrong      algo     proto   nchannels\n")
    text = re.sub(r"(?m)(^    \d.*)$", r"\1    RING     LL128          32", text)
    run = imported(tmp_path, text)
    assert figures(run) == figures(imported(tmp_path, logs.TABLE, "plain.log"))
    assert "columns of the log that are not imported: algo, proto, nchannels" in run.header.notes


def test_a_side_that_was_not_run_may_be_blank(tmp_path: Path) -> None:
    """As where `alltoallv_perf` replays a trace; a row that was cut off is none of these."""
    sides = [("20.25", "0.05", "0.04", "0"), ("19.50", "0.06", "0.03", "2")]
    whole = logs.row(1024, sides)
    start, middle = (whole.index(time) - len("  ") for time in ("  20.25", "  19.50"))
    text = logs.header("alltoallv_perf", most=1024) + "{}" + logs.footer("alltoallv_perf")
    run = imported(tmp_path, text.format(whole[:start] + " " * 32 + whole[middle:]))
    out, inside = run.rows[0].averages
    assert (repr(out.time_ns), repr(out.busbw), out.wrong) == ("nan", "nan", -1)
    assert (inside.time_ns, inside.algbw, inside.wrong) == (19500.0, 0.06, 2)
    cut = imported(tmp_path, text.format(whole[:middle] + "\n"), "cut.log")
    assert (cut.rows, len(cut.missing) > 0) == ([], True)


@pytest.mark.parametrize(
    "text",
    [
        '{"name":"AllReduce", "nodes":1, "ranks":8, "size":8, "time":9.5, "busBw":0.1}\n' * 2,
        '[\n{"name":"AllReduce", "size":8, "inPlace":0, "time":9.5}\n]\n',
        "collective, ranks, rankspernode, gpusperrank, size, type, redop, inplace, time\n",
    ],
)
def test_what_rccl_tests_writes_by_z_is_named(text: str, tmp_path: Path) -> None:
    assert "o.log is what rccl-tests wrote by -Z" in refusal(tmp_path, text)


def test_a_table_in_place_only_is_in_place() -> None:
    run = found("k4-rccl-in-place-only.log")
    out, inside = run.rows[0].averages
    assert (repr(out.time_ns), inside.time_ns, inside.wrong) == ("nan", 1000.0, 0)
    row = next(line for line in report_lines(run) if line.split()[0] == "8")
    assert row.split()[5:] == ["N/A"] * 4 + ["1.00", "0.01", "0.02", "0"]
    assert to_json(run)["average_bus_bandwidth"]["bandwidth"] == 0.02


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
