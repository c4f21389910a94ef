"""What a run has shown, by case: for scripts, a terminal, the page, JSON and the exit code."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import invented
import invented_runs
import numpy as np
import pytest
from judged import run_of, summaries_of

from tcpx_mpi.errors import ExitCode
from tcpx_mpi.findings import Severity
from tcpx_mpi.findings.verdict import (
    as_nccl_tests,
    errors_of,
    in_words,
    on_page,
    out_of_bounds,
    outcome_of,
    passes_minimum_bandwidth,
)
from tcpx_mpi.records import Fault, Run
from tcpx_mpi.report import to_json

BAD, DOUBTFUL, GOOD = Severity.BAD, Severity.DOUBTFUL, Severity.GOOD


def limited(limit: str) -> Run:
    return invented_runs.sound(rows=3, environment={"NCCL_TESTS_MIN_BW": limit})


def of_rows(*changes: dict[str, object]) -> Run:
    rows = [invented.row(index, **change) for index, change in enumerate(changes)]
    return run_of(rows, invented.run_header(plan=invented.Plan(sizes=(1024, 2048)[: len(rows)])))


WRONG = np.array([0, 3, 0, 0])
SOME = np.array([True, True, False, True])
#: Case -> severity on the page, how its first sentence begins, nccl-tests' count, exit code.
CASES: dict[str, tuple[Callable[[], Run], Severity, str, str, ExitCode]] = {
    "sound": (lambda: of_rows({}, {}), GOOD, "Complete: 2 rows, and every", "0 OK", ExitCode.OK),
    "launches": (
        lambda: invented_runs.several(3, 2), GOOD, "Complete: 3 launches of 2 rows", "0 OK",
        ExitCode.OK,
    ),
    "wrong": (
        lambda: of_rows({"wrong": WRONG}, {}), BAD, "3 wrong bytes in 1 of 2 rows: no", "3 FAILED",
        ExitCode.WRONG_BYTES,
    ),
    "wrong and not all checked": (
        lambda: of_rows({"wrong": np.array([0, 3, -1, 0]), "checked": SOME}), BAD,
        "3 wrong bytes in 1 of 1 row: no", "3 FAILED", ExitCode.WRONG_BYTES,
    ),
    "a peer's wrong": (
        invented_runs.beside_baselines, BAD, "The peer mpi delivered 7 wrong bytes: no ratio",
        "0 OK", ExitCode.WRONG_BYTES,
    ),
    "unchecked": (
        lambda: of_rows({}, {"checked": SOME}), DOUBTFUL, "Unchecked bytes in 1 of 2 rows", "0 OK",
        ExitCode.OK,
    ),
    "no bytes": (
        lambda: of_rows({"size_bytes": 0, "checked": SOME}, {}), GOOD, "Complete: 2 rows", "0 OK",
        ExitCode.OK,
    ),
    "too slow": (
        lambda: limited("1000"), BAD, "Below NCCL_TESTS_MIN_BW: ", "0 OK", ExitCode.BELOW_GATE,
    ),
    "unfinished": (
        lambda: dataclasses.replace(invented_runs.sound(rows=3), complete=False), DOUBTFUL,
        "Incomplete: 1 thing is missing", "0 OK", ExitCode.OK,
    ),
    "stalled": (
        lambda: dataclasses.replace(of_rows({}, {}), fault=Fault("stall", 6, {0: "no"})), BAD,
        "Ended early: stall (exit code 6).", "0 OK", ExitCode.OK,
    ),
    "no rows": (
        lambda: dataclasses.replace(invented_runs.sound(rows=3), rows=[]), DOUBTFUL,
        "Not a single row", "0 OK", ExitCode.OK,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_page_scripts_and_exit_code_agree_on_a_run(case: str) -> None:
    make, severity, sentence, count, code = CASES[case]
    run = make()
    summaries = summaries_of(run)
    first = on_page(run, summaries)[0]
    assert (first.severity, first.text[: len(sentence)]) == (severity, sentence)
    bounds, _ = as_nccl_tests(run.header, summaries)
    assert bounds.text == count
    assert outcome_of(run.header, summaries)[0] == code
    document = to_json(run)
    wrong, well = out_of_bounds(run.header, summaries)
    assert document["out_of_bounds"] == {"count": wrong, "okay": well}
    faults = [] if run.fault is None else [*run.fault.texts.values()]
    assert document["errors"] == [*errors_of(summaries), *faults]


@pytest.mark.parametrize(
    ("case", "severity", "text"),
    [
        ("sound", GOOD, "right: all 240 KiB that were timed are checked"),
        ("wrong", BAD, "3 WRONG: no figure of this run is valid"),
        ("unchecked", DOUBTFUL, "not all were checked, so the bandwidth is only claimed, not"),
    ],
)
def test_the_first_words_below_a_terminals_table_are_of_the_bytes(
    case: str, severity: Severity, text: str
) -> None:
    run = CASES[case][0]()
    first, speed, *_ = in_words(run.header, summaries_of(run))
    assert (first.severity, first.title) == (severity, "Bytes")
    assert first.text.startswith(text)
    assert speed.text.endswith(f"on average over 2 rows, most at 2 KiB ({2048 / 1159.5:.4g})")


def test_a_run_stands_beside_each_kind_of_peer_and_the_best_of_its_variants() -> None:
    run = invented_runs.beside_baselines()
    words = {each.title: each.text for each in in_words(run.header, summaries_of(run))}
    assert words["Beside raw"] == "0.80 times its speed: slower in 5 of 5 rows"
    assert words["raw at its best"] == "0.50 times its speed: slower in 5 of 5 rows"
    assert words["Beside mpi"] == "2.00 times its speed: faster in 5 of 5 rows"


def test_why_a_run_failed_is_told_in_a_line() -> None:
    row = invented.row(0, wrong=WRONG, faults=["rank 1: 3 wrong bytes at 17"])
    assert outcome_of(invented.run_header(), summaries_of(run_of([row])))[1] == row.faults[0]
    row.faults = []
    wrong = outcome_of(invented.run_header(), summaries_of(run_of([row])))
    assert wrong == (ExitCode.WRONG_BYTES, "wrong bytes were received")
    slow = limited("1000")
    words = list(in_words(slow.header, summaries_of(slow)))
    _, text = outcome_of(slow.header, summaries_of(slow))
    assert text.endswith("NCCL_TESTS_MIN_BW asks for 1000; 0.9 of it must be reached")
    assert [each.text for each in words if each.title == "Too slow"] == [text]


@pytest.mark.parametrize(
    ("limit", "bandwidth", "passes"),
    [
        (None, 1.0, None),
        ("100", 90.0, True),
        ("100", 89.9, False),
        ("100", math.nan, False),
        ("nan", 100.0, False),
        ("fast", 100.0, False),
        ("", 100.0, False),
    ],
)
def test_the_minimum_bandwidth_passes_at_nine_tenths_and_fails_closed(
    limit: str | None, bandwidth: float, passes: bool | None
) -> None:
    environment = {} if limit is None else {"NCCL_TESTS_MIN_BW": limit}
    header = invented.run_header(environment=environment)
    assert passes_minimum_bandwidth(header, bandwidth) is passes


@pytest.mark.parametrize(
    ("limit", "passed"), [(None, "75 "), ("80", "75 OK"), ("100", "75 FAILED")]
)
def test_the_average_is_printed_with_whether_it_reaches_its_minimum(
    limit: str | None, passed: str
) -> None:
    rows = [invented.row(0, world=1, size_bytes=1_000_000) for _ in range(2)]
    for row, bandwidth in zip(rows, (100, 50), strict=True):
        row.samples["iteration"][:] = 1_000_000 // bandwidth
    environment = {} if limit is None else {"NCCL_TESTS_MIN_BW": limit}
    header = invented.run_header(environment=environment)
    run = run_of(rows, header)
    assert as_nccl_tests(header, summaries_of(run))[1].text == passed
    okay = to_json(run)["average_bus_bandwidth"]["okay"]
    assert okay == {"75 ": None, "75 OK": True, "75 FAILED": False}[passed]
    assert as_nccl_tests(header, [])[1].text.startswith("n/a")
