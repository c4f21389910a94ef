"""Findings as lines: `# Title : text`."""

from __future__ import annotations

from collections.abc import Sequence

from tcpx_mpi.findings import Finding, Severity
from tcpx_mpi.findings.run import Matrix, RunFinding
from tcpx_mpi.units import format_size

#: Where the text of a line begins.
INDENT = 25


def lines_of(findings: Sequence[RunFinding], world: int) -> list[str]:
    """Each finding in one line; a matrix in as many as it has."""
    return [line for finding in findings for line in finding_lines(finding, world)]


def finding_lines(finding: RunFinding, world: int) -> list[str]:
    """The lines of one finding."""
    if isinstance(finding.evidence, Matrix):
        return _matrix_lines(finding.evidence, world)
    return [f"# {title_of(finding):<20} : {words_of(finding)}"]


def title_of(finding: RunFinding) -> str:
    """The finding's title."""
    return finding.title or "WARNING"


def words_of(finding: RunFinding) -> str:
    """The finding's place, text and remedy in one sentence."""
    text = finding.text
    if finding.remedy:
        text += f"{'; ' if ': ' in text else ': '}{finding.remedy}"
    return f"{finding.evidence}: {text}" if finding.evidence else text


def written(files: Sequence[str]) -> list[Finding[str]]:
    """The results by the names that they got."""
    return [Finding(Severity.NOTE, "Written", name) for name in files]


def _matrix_lines(matrix: Matrix, world: int) -> list[str]:
    size, links = matrix.size_bytes, matrix.links
    lines = [f"# {format_size(size)}, GB/s: a row sends, a column receives"]
    lines.append("#       " + "".join(f"{rank:>8}" for rank in range(world)))
    for sender in range(world):
        cells = []
        for receiver in range(world):
            found = links.get((sender, receiver))
            cells.append(f"{size / found.time_ns:8.3f}" if found else f"{'-':>8}")
        lines.append(f"#  {sender:>5}" + "".join(cells))
    return lines
