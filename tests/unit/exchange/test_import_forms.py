"""`tcpx-mpi import`: logs as people have them, of all versions; what is not understood is said."""

from __future__ import annotations

import bz2
import gzip
import io
import os
import re
import sys
import threading
from pathlib import Path

import nccl_tests_logs as logs
import pytest
from imported_logs import FOUND, figures, found, imported, refusal

from tcpx_mpi import cli
from tcpx_mpi.errors import ExitCode
from tcpx_mpi.exchange.nccl_tests import log
from tcpx_mpi.report import report_lines, to_json

Captured = pytest.CaptureFixture[str]


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


@pytest.mark.timeout(20, method="signal")  # a search by re lets no thread run
def test_a_line_of_blanks_is_looked_through_once() -> None:
    assert not log._OF_RCCL_TESTS.match(" " * 1_000_000)
    for begin in ('{"name": ', ' [ {"name": ', '[{"name": ', " collective, "):
        assert log._OF_RCCL_TESTS.match(begin)


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
