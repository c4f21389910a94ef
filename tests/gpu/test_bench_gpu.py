"""What `benchmarks/gpu/bench.py` refuses, and how it takes a line that fails."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from gpus import Gpus, stand_in
from jobs import Result, run, started
from variants import variant

from tcpx_mpi.records import read_run

PROGRAM = str(Path(__file__).resolve().parents[2] / "benchmarks" / "gpu" / "bench.py")
#: The program with lines that are short on the stand-in: one that cannot be run, one that can, and
#: one without an end.
SHORT = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background may ignore it
sys.path.insert(0, sys.argv.pop(1))
import bench
LITTLE = ("-n", "4", "-w", "1", "--check-memory", "1M")
bench.LINES = {
    "refused": ("pair", "--sizes", "pear"),
    "measured": ("pair", "--sizes", "8K", *LITTLE),
    "endless": ("pair", "--sizes", "8,1M", "--chunk", "4K", "-n", "20000", "-c", "0", "-w", "0",
                "--check-memory", "1M"),
}
sys.exit(bench.main(*sys.argv[1:]))
"""
#: The same with two lines, of which one is of four ranks.
TWO = SHORT.replace(
    "sys.exit(",
    """bench.FOUR = {"of-four": bench.LINES["measured"]}
bench.LINES = {"of-two": bench.LINES["measured"], **bench.FOUR}
sys.exit(""",
)


def short(*names: str, program: str = SHORT) -> list[str]:
    return [sys.executable, "-c", program, str(Path(PROGRAM).parent), "results", *names]


def refused(place: Path, *arguments: str, **variables: str) -> Result:
    """A run of the program that ends with one line, and makes nothing."""
    before = sorted(place.iterdir())
    result = run([sys.executable, PROGRAM, *arguments], place, variables)
    assert result.code == 2, result.text
    assert result.out == ""
    assert len(result.err.splitlines()) == 1, result.text
    assert sorted(place.iterdir()) == before
    return result


def test_a_line_that_there_is_not_is_refused_with_those_that_are(place: Path) -> None:
    said = refused(place, "results", "pair-8K", "pear").err
    assert said.startswith("no line pear: there are pair-64M, ")


def test_a_machine_without_a_gpu_is_told_what_to_use_instead(place: Path) -> None:
    said = refused(place, "results", CUDA_VISIBLE_DEVICES="").err  # as on a machine without
    assert said.startswith("found no GPU (")
    assert said.endswith("install its driver, or use `make bench`\n")


@pytest.mark.stand_in
def test_a_line_of_four_ranks_where_there_are_fewer_gpus_is_refused(place: Path) -> None:
    here = stand_in(2)
    said = refused(place, "results", "pair-8K", "ring-64M-4", **here.variables).err
    assert said == "ring-64M-4: 4 GPUs needed, 2 found; name other lines\n"


@pytest.mark.stand_in
@pytest.mark.parametrize(
    ("count", "measured"), [variant(2, {"of-two": 2}), (4, {"of-two": 2, "of-four": 4})]
)
def test_lines_of_four_ranks_are_measured_where_there_are_four_gpus(
    count: int, measured: dict[str, int], place: Path, gpus: Gpus
) -> None:
    if gpus.real:
        pytest.skip("for the stand-in: the topology of this machine has GPUs of its own")
    result = run(short(program=TWO), place, stand_in(count).variables)
    assert result.code == 0, result.text
    found = {path.stem: read_run(str(path)) for path in (place / "results").iterdir()}
    assert {name: len(each.header.ranks) for name, each in found.items()} == measured


@pytest.mark.stand_in
def test_a_folder_that_cannot_be_made_is_refused(gpus: Gpus, place: Path) -> None:
    (place / "results").write_text("a file")
    assert refused(place, "results", **gpus.variables).err == (
        "no folder results for results: File exists\n"
    )


@pytest.mark.stand_in
def test_a_line_that_fails_keeps_no_other_from_being_measured(gpus: Gpus, place: Path) -> None:
    result = run(short("refused", "measured"), place, gpus.variables)
    assert result.code == 2, result.text
    assert read_run(str(place / "results" / "measured.h5")).complete
    assert [path.name for path in (place / "results").iterdir()] == ["measured.h5"]


@pytest.mark.stand_in
def test_ctrl_c_ends_the_line_under_way_in_good_order_and_begins_no_other(
    gpus: Gpus, place: Path
) -> None:
    with started(short("endless", "measured"), place, gpus.variables) as job:
        job.wait_for_row(8)
        job.send_group(signal.SIGINT)
        result = job.finish()
    assert result.code == 130, result.text
    assert result.out.count("$ tcpx-mpi run ") == 1
    found = read_run(str(place / "results" / "endless.h5"))
    assert found.rows
    assert not found.complete
    assert found.fault is not None
    assert found.fault.exit_code == 130
    assert "# kept: 1 row in results/endless.h5" in result.err
    assert "Traceback" not in result.err
