"""The verdict on logs as they are: years, plugins, wrappers, what was lost (logs.py)."""

from __future__ import annotations

import time

import logs
import pytest

from tcpx_mpi.doctor import judge, lines
from tcpx_mpi.findings import Severity
from tcpx_mpi.inputs import clean_line
from tcpx_mpi.machine import profiles

BAD, DOUBTFUL, NOTE, GOOD = Severity.BAD, Severity.DOUBTFUL, Severity.NOTE, Severity.GOOD


def clean(text: str) -> list[str]:
    """As the lines of a file come."""
    return [clean_line(line.rstrip("\r")) for line in text.split("\n")]


def judged(files: list[str]) -> judge.Verdict:
    named = [(f"{number}.log", clean(text)) for number, text in enumerate(files)]
    return judge.judge(list(lines.read_lines(named)), profiles.recipes())


@pytest.mark.parametrize("case", logs.CASES, ids=lambda case: case.name)
def test_a_log_has_its_right_verdict(case: logs.Case) -> None:
    verdict = judged([*case.files])
    told = "\n".join(f"{finding.severity.value}: {finding.text}" for finding in verdict.findings)
    assert int(verdict.code) == case.code, f"{verdict.headline}\n{told}"
    for words in case.says:
        assert words in verdict.headline
    for weights, wanted in (
        ((BAD,), case.off),
        ((DOUBTFUL, NOTE), case.warns),
    ):
        whats = "\n".join(f.text for f in verdict.findings if f.severity in weights)
        for words in wanted:
            assert words in whats, told
    for finding in verdict.findings:
        for words in case.never:
            assert finding.severity is GOOD or words not in finding.text, told
    if case.evidence:
        first = next(finding for finding in verdict.findings if finding.severity is BAD)
        assert first.evidence is not None
        assert first.evidence.line is not None
        assert case.evidence in first.evidence.line.text


def test_a_remedy_points_below_only_where_a_cause_is_below() -> None:
    for case in logs.CASES:
        findings = judged([*case.files]).findings
        for number, finding in enumerate(findings):
            if "below" in finding.remedy:
                below = [later for later in findings[number + 1 :] if later.severity is BAD]
                assert below, case.name


@pytest.mark.parametrize(
    "line",
    [
        '"' * 100_000,
        '"message": "\\' * 10_000,
        "[1," * 30_000 + ">:",
        "&amp;" * 20_000,
        "&" * 100_000 + "n:1:2 [0] NCCL INFO " + "&amp;amp;gt" * 3_000,
        "[0] " * 25_000 + "NCCL ",
        "1:1 [0] " * 12_000 + "NCCL INFO x",
        "n:1:2 [0] NCCL INFO " * 5_000,
        "n:1:2 [0] NCCL INFO " + "0[0] -> " * 12_000,
        "n:1:2 [0] NCCL INFO " + "NCCL_A set by environment to (" * 3_000,
        "n:1:2 [0] NCCL WARN " + "connect to update flow steering rule Could not find " * 2_000,
    ],
    ids=lambda line: line[:24],
)
def test_a_line_of_100000_letters_takes_time_in_proportion(line: str) -> None:
    start = time.process_time()
    judged([line])
    assert time.process_time() - start < 2  # 0.1 s; hours if a pattern went back over it
