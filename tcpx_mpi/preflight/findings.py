"""One line a check and node: what was found, and what to do about it."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from tcpx_mpi.errors import ExitCode


class Status(str, enum.Enum):
    """How a check ended; a warning does not keep a run from starting."""

    OK = "OK"
    WARNING = "warning"
    FAILED = "FAILED"


@dataclass(frozen=True)
class Finding:
    """The outcome of one check on one node; `node` is "" for what concerns all of them."""

    status: Status
    node: str
    check: str
    found: str
    remedy: str = ""
    exit_code: ExitCode = ExitCode.SETUP_FAILED


def exit_code(findings: Sequence[Finding]) -> ExitCode:
    """0 without a failure; else that of a missing plugin before that of any other."""
    failed = {finding.exit_code for finding in findings if finding.status is Status.FAILED}
    if ExitCode.PLUGIN_MISSING in failed:
        return ExitCode.PLUGIN_MISSING
    return min(failed, default=ExitCode.OK)


def lines(findings: Sequence[Finding]) -> list[str]:
    """The findings as a table, one line each, and a last line that counts them."""
    nodes = [finding.node or "all nodes" for finding in findings]
    node_width = max(map(len, nodes), default=0)
    check_width = max((len(finding.check) for finding in findings), default=0)
    table = [
        f"{finding.status.value:<7}  {node:<{node_width}}  {finding.check:<{check_width}}  "
        + (f"{finding.found} -> {finding.remedy}" if finding.remedy else finding.found)
        for node, finding in zip(nodes, findings, strict=True)
    ]
    counts = {status: sum(f.status is status for f in findings) for status in Status}
    words = {Status.WARNING: "warnings" if counts[Status.WARNING] > 1 else "warning"}
    said = ", ".join(f"{n} {words.get(status, status.value)}" for status, n in counts.items() if n)
    return [*table, f"# {said or 'nothing was checked'}"]
