"""A verdict as text and as JSON."""

from __future__ import annotations

from typing import Any

from tcpx_mpi.doctor.judge import Finding, Verdict
from tcpx_mpi.errors import ExitCode
from tcpx_mpi.printable import printable

#: What a log does not say, of a job that is on the fast path.
_SLOW_RANK = (
    "A log does not say which rank is slow: mpirun ... tcpx-mpi run pairs --all measures it."
)
_WORDS = {"off": "OFF", "warning": "warning", "fact": "", "harmless": "harmless"}
_LONGEST = 160


def lines(verdict: Verdict) -> list[str]:
    """The verdict first, then each finding: what, evidence, what to do, how sure."""
    said = [verdict.headline]
    for finding in verdict.findings:
        mark = f"{_WORDS[finding.weight]:8}"
        sure = "" if finding.sure == "certain" else f" ({finding.sure})"
        times = f" [{finding.times} times]" if finding.times > 1 else ""
        said.append(f"{mark}  {finding.what}{sure}{times}")
        if finding.evidence is not None and finding.weight != "harmless":
            text = finding.evidence.text
            shown = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
            said.append(f"{'':8}    {finding.evidence.place}: {shown}")
        if finding.do and finding.weight != "harmless":
            said.append(f"{'':8}    -> {finding.do}")
    if verdict.code is ExitCode.OK:
        said.append(_SLOW_RANK)
    return [printable(line) for line in said]


def document(verdict: Verdict) -> dict[str, Any]:
    """The same for programs."""
    return {
        "exit_code": int(verdict.code),
        "verdict": verdict.headline,
        "findings": [_entry(finding) for finding in verdict.findings],
    }


def _entry(finding: Finding) -> dict[str, Any]:
    evidence = finding.evidence
    return {
        "weight": finding.weight,
        "what": finding.what,
        "do": finding.do,
        "sure": finding.sure,
        "times": finding.times,
        "evidence": None
        if evidence is None
        else {"file": evidence.source, "line": evidence.number, "text": evidence.text},
    }
