"""Findings of preflight: one line a check and node, and the exit code of all of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tcpx_mpi.errors import ExitCode
from tcpx_mpi.findings import Finding, Severity

#: A warning does not keep a run from starting.
OK, WARNING, FAILED = Severity.GOOD, Severity.DOUBTFUL, Severity.BAD
WORDS = {OK: "OK", WARNING: "warning", FAILED: "FAILED"}


@dataclass(frozen=True)
class Checked:
    """The node of a check, and what a failure of it ends with."""

    node: str
    exit_code: ExitCode = ExitCode.SETUP_FAILED


#: The outcome of one check; without evidence of all nodes.
CheckFinding = Finding[Checked]
_ALL_NODES = Checked("")


def checked(finding: CheckFinding) -> Checked:
    """The check's place and severity."""
    return finding.evidence or _ALL_NODES


def exit_code(findings: Sequence[CheckFinding]) -> ExitCode:
    """0 without a failure; else that of a missing plugin before that of any other."""
    failed = {checked(each).exit_code for each in findings if each.severity is FAILED}
    if ExitCode.PLUGIN_MISSING in failed:
        return ExitCode.PLUGIN_MISSING
    return min(failed, default=ExitCode.OK)


def lines(findings: Sequence[CheckFinding]) -> list[str]:
    """The findings as a table, one line each, and a last line that counts them."""
    nodes = [checked(finding).node or "all nodes" for finding in findings]
    node_width = max(map(len, nodes), default=0)
    check_width = max((len(finding.title) for finding in findings), default=0)
    table = [
        f"{WORDS[finding.severity]:<7}  {node:<{node_width}}  {finding.title:<{check_width}}  "
        + (f"{finding.text} -> {finding.remedy}" if finding.remedy else finding.text)
        for node, finding in zip(nodes, findings, strict=True)
    ]
    counts = {word: sum(f.severity is each for f in findings) for each, word in WORDS.items()}
    said = ", ".join(
        f"{n} {word}{'s' if word == 'warning' and n > 1 else ''}" for word, n in counts.items() if n
    )
    return [*table, f"# {said or 'nothing was checked'}"]


def documents(findings: Sequence[CheckFinding]) -> list[dict[str, Any]]:
    """The same for programs."""
    return [
        {
            "status": WORDS[finding.severity],
            "node": checked(finding).node,
            "check": finding.title,
            "found": finding.text,
            "remedy": finding.remedy,
            "exit_code": checked(finding).exit_code,
        }
        for finding in findings
    ]


def encoded(findings: Sequence[CheckFinding]) -> str:
    """Findings as one line of JSON."""
    return json.dumps(documents(findings))


def decoded(text: str) -> list[CheckFinding]:
    """The findings that `encoded` made a text of."""
    severities = {word: severity for severity, word in WORDS.items()}
    return [
        Finding(
            severities[each["status"]], each["check"], each["found"], each["remedy"],
            Checked(each["node"], ExitCode(each["exit_code"])),
        )
        for each in json.loads(text)
    ]  # fmt: skip
