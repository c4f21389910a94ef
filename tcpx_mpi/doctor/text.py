"""A verdict as text and as JSON."""

from __future__ import annotations

from typing import Any

from tcpx_mpi.doctor.judge import LogFinding, Seen, Verdict, doubt
from tcpx_mpi.errors import ExitCode
from tcpx_mpi.findings import Severity
from tcpx_mpi.printable import printable

#: What a log does not say, of a job that is on the fast path.
_SLOW_RANK = (
    "A log does not say which rank is slow: mpirun ... tcpx-mpi run pairs --all measures it."
)
#: By severity the word before a finding, and its weight for programs.
_WORDS = {
    Severity.BAD: ("OFF", "off"),
    Severity.DOUBTFUL: ("warning", "warning"),
    Severity.NOTE: ("", "fact"),
    Severity.GOOD: ("harmless", "harmless"),
}
_LONGEST = 160


def lines(verdict: Verdict) -> list[str]:
    """The verdict first, then each finding: what, evidence, what to do, how sure."""
    said = [verdict.headline]
    for finding in verdict.findings:
        seen = finding.evidence or Seen()
        mark = f"{_WORDS[finding.severity][0]:8}"
        times = f" [{seen.times} times]" if seen.times > 1 else ""
        said.append(f"{mark}  {finding.text}{doubt(finding)}{times}")
        if finding.severity is Severity.GOOD:
            continue
        if seen.line is not None:
            text = seen.line.text
            shown = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
            said.append(f"{'':8}    {seen.line.place}: {shown}")
        if finding.remedy:
            said.append(f"{'':8}    -> {finding.remedy}")
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


def _entry(finding: LogFinding) -> dict[str, Any]:
    seen = finding.evidence or Seen()
    line = seen.line
    return {
        "weight": _WORDS[finding.severity][1],
        "what": finding.text,
        "do": finding.remedy,
        "sure": seen.sure,
        "times": seen.times,
        "evidence": None
        if line is None
        else {"file": line.source, "line": line.number, "text": line.text},
    }
