"""Rows that vanished whole from a log of nccl-tests: its footer is there, and sizes are not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import nccl_tests_logs as logs
import pytest

from tcpx_mpi import cli
from tcpx_mpi.compare.rows import launch_times
from tcpx_mpi.errors import ExitCode
from tcpx_mpi.exchange.nccl_tests import read_log, run_of
from tcpx_mpi.records import Run

SIDES = [("20.25", "0.05", "0.04", "0"), ("19.50", "0.05", "0.04", "0")]
SIZES = [1024 << n for n in range(7)]  # to 65536


def log_of(*passes: list[int], most: int = 65536, kinds: str = "float half int8") -> str:
    rows = [
        logs.row(size, SIDES, redop="sum", kind=kind)
        for sizes, kind in zip(passes, kinds.split(), strict=False)
        for size in sizes
    ]
    header = logs.header("all_reduce_perf", most=most)
    return header + "".join(rows) + logs.footer("all_reduce_perf")


def read(place: Path, text: str, name: str = "o.log") -> Run:
    (place / name).write_text(text)
    return run_of(read_log(str(place / name)))


def lost(place: Path, text: str, name: str = "o.log") -> str:
    """What is said of missing rows, and that the run is not whole; "" where it is."""
    run = read(place, text, name)
    assert run.complete == (not run.missing)
    return "; ".join(run.missing)


@pytest.mark.parametrize("gone", [[1024], [4096], [65536], [2048, 4096], [1024, 8192, 65536]])
def test_sizes_of_no_row_are_named_and_the_import_is_partial(
    gone: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = log_of([size for size in SIZES if size not in gone])
    are = "1 row is" if len(gone) == 1 else f"{len(gone)} rows are"
    expected = (
        f"{are} not in the log, of 7 sizes from 1024 to 65536 bytes: no row of "
        f"{', '.join(map(str, gone))} bytes"
    )
    assert expected in lost(tmp_path, text)
    code = cli.main(["import", str(tmp_path / "o.log"), "--output", str(tmp_path / "o.h5")])
    assert code == ExitCode.PARTIAL_RESULT
    assert expected in capsys.readouterr().err


def test_a_step_of_bytes_has_its_gaps_too(tmp_path: Path) -> None:
    whole = log_of([1000, 1400, 1800, 2200]).replace(
        "minBytes 1024 maxBytes 65536 step: 2(factor)",
        "minBytes 1000 maxBytes 2300 step: 400(bytes)",
    )
    assert lost(tmp_path, whole) == ""
    gap = "\n".join(line for line in whole.splitlines() if line.split()[:1] != ["1400"]) + "\n"
    assert "1 row is not in the log, of 4 sizes from 1000 to 2300 bytes: no row of 1400 bytes" in (
        lost(tmp_path, gap)
    )


def test_all_rows_and_rows_rounded_down_to_what_ranks_divide_are_whole(tmp_path: Path) -> None:
    assert lost(tmp_path, log_of(SIZES)) == ""
    assert lost(tmp_path, log_of([size // 48 * 48 for size in SIZES])) == ""
    # Three sizes of which none has a share of 16 bytes for 300 ranks.
    assert lost(tmp_path, log_of([0, 0, 0, 4800, 14400, 28800, 62400])) == ""


def test_rounding_that_leaves_open_which_row_is_gone_leaves_the_number(tmp_path: Path) -> None:
    text = lost(tmp_path, log_of([0, 0, 4800, 14400, 28800, 62400]))
    assert "1 row is not in the log, of 7 sizes" in text


def test_each_pass_is_looked_at(tmp_path: Path) -> None:
    assert lost(tmp_path, log_of(SIZES, SIZES, SIZES)) == ""
    text = lost(tmp_path, log_of(SIZES, SIZES[:3] + SIZES[4:], SIZES))
    assert "1 row of the pass half sum root -1 is not in the log" in text
    assert "no row of 8192 bytes" in text


def test_a_row_in_pieces_is_not_missing_besides(tmp_path: Path) -> None:
    rows = log_of(SIZES).splitlines()
    at = next(n for n, line in enumerate(rows) if line.split()[:1] == ["4096"])
    rows[at] = rows[at][:60]
    text = lost(tmp_path, "\n".join(rows) + "\n")
    assert "a row that is not whole in the log" in text
    assert "not in the log, of" not in text
    del rows[at + 1]
    assert "1 row is not in the log, of 7 sizes" in lost(tmp_path, "\n".join(rows) + "\n")


def test_less_memory_than_was_asked_for_is_no_gap(tmp_path: Path) -> None:
    said = "# Reducing maxBytes to 5000 due to memory limitation\n#\n# Using devices"
    text = log_of([1024, 2048, 4096]).replace("#\n# Using devices", said)
    assert lost(tmp_path, text) == ""
    gap = "\n".join(line for line in text.splitlines() if line.split()[:1] != ["2048"]) + "\n"
    assert "no row of 2048 bytes" in lost(tmp_path, gap)


def test_a_log_without_any_row_of_those_that_were_asked_for_is_not_whole(tmp_path: Path) -> None:
    assert "7 rows are not in the log" in lost(tmp_path, log_of([]))


@pytest.mark.parametrize(
    ("cut", "said"),
    [
        (lambda rows: rows, ""),
        (lambda rows: rows[:1] + rows[2:], "1 row is not in the log"),
        (lambda rows: rows[1:], "1 row is not in the log"),
        # JSON does not tell of less memory than was asked for.
        (lambda rows: rows[:-1], ""),
    ],
)
def test_a_document_has_its_gaps_too(
    cut: Callable[[list[object]], list[object]], said: str, tmp_path: Path
) -> None:
    document = json.loads(logs.DOCUMENT)
    results = document["results"]
    document["config"]["minimum_bytes"] = results[0]["size"]
    document["config"]["maximum_bytes"] = results[0]["size"] * 4
    document["config"] |= {"step_factor": 2}
    document["results"] = cut([{**results[0], "size": results[0]["size"] << n} for n in range(3)])
    text = lost(tmp_path, json.dumps(document), "o.json")
    assert (said in text) if said else text == ""


def test_what_ran_in_place_only_is_compared_in_place_and_with_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fixtures = Path(__file__).parents[2] / "fixtures" / "nccl_tests"
    text = (fixtures / "k4-rccl-in-place-only.log").read_text()
    inside = launch_times(read(tmp_path, text))
    ((key, times),) = inside.items()
    assert (str(key), times.tolist()) == ("8 B float sum in place", [1000.0])
    out = launch_times(read(tmp_path, log_of(SIZES)))
    assert all(not key.in_place for key in out)
    (tmp_path / "a.log").write_text(text)
    (tmp_path / "b.log").write_text(text.replace("1.00    0.01", "2.00    0.01"))
    for name in ("a", "b"):
        assert cli.main(["import", str(tmp_path / f"{name}.log")]) == ExitCode.OK
    capsys.readouterr()
    # One launch each: a difference, and no verdict on it.
    code = cli.main(["compare", str(tmp_path / "a.h5"), str(tmp_path / "b.h5")])
    out = capsys.readouterr().out
    assert code == ExitCode.INCONCLUSIVE, out
    (row,) = [line for line in out.splitlines() if "in place" in line]
    assert "1.00" in row
    assert "2.00" in row
