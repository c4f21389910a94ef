"""The report on a terminal: a short header, the columns that fit, and a verdict in words.

A pipe and a file have all columns; see `preamble` and `table`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

from tcpx_mpi.findings import Finding, Severity, worst_first
from tcpx_mpi.findings.run import RunFinding
from tcpx_mpi.folded import LEAST_COLUMNS, folded
from tcpx_mpi.printable import printable_lines, write_own
from tcpx_mpi.records import RunHeader, SetupTimes
from tcpx_mpi.report.brief import brief_lines
from tcpx_mpi.report.fitted import Fitted
from tcpx_mpi.report.lines import INDENT, finding_lines, lines_of, written
from tcpx_mpi.report.preamble import header_lines
from tcpx_mpi.report.setup_table import setup_lines
from tcpx_mpi.stats import RowSummary

_COLOURS = {Severity.GOOD: "\x1b[32m", Severity.BAD: "\x1b[31m", Severity.DOUBTFUL: "\x1b[33m"}
_RESET = "\x1b[0m"


def show_lines(lines: Iterable[str], screen: Screen | None, stream: TextIO | None = None) -> None:
    """Prints lines. Those for a screen may have its colours around them, and no other escape."""
    shown = "".join(f"{_printable(line) if screen is not None else line}\n" for line in lines)
    stream = stream or sys.stdout
    if screen is not None:
        write_own(stream, shown)
    else:
        print(shown, end="", file=stream, flush=True)


def _printable(line: str) -> str:
    colour = next((each for each in _COLOURS.values() if line.startswith(each)), "")
    if not colour:
        return printable_lines(line)
    return f"{colour}{printable_lines(line[len(colour) :].removesuffix(_RESET))}{_RESET}"


@dataclass(frozen=True)
class Screen:
    """A terminal of so many columns; `verbose` has the whole header and footer."""

    columns: int
    colour: bool = False
    verbose: bool = False

    def opening(self, header: RunHeader, setup: SetupTimes | None, path: str) -> list[str]:
        """Everything above the first row."""
        fitted = Fitted(header, self.columns)
        if self.verbose:
            lines = [*header_lines(header), *(setup_lines(setup) if setup is not None else [])]
        else:
            lines = brief_lines(header, path, max(self.columns, LEAST_COLUMNS))
        return [*lines, *fitted.title_lines()]

    def row(self, header: RunHeader, summary: RowSummary) -> str:
        """A row; in red where it has wrong bytes."""
        line = Fitted(header, self.columns).row_line(summary)
        return self._coloured(line, Severity.BAD if summary.wrong_found else Severity.NOTE)

    def closing(
        self,
        header: RunHeader,
        verdict: Sequence[Finding[str]],
        findings: Sequence[RunFinding],
        files: Sequence[str],
        gate: Sequence[str],
    ) -> list[str]:
        """Everything below the last row: what is in doubt, then the verdict, then the rest."""
        proved = any(finding.severity is Severity.GOOD for finding in verdict)
        # What is well besides is a part of a good verdict.
        rest = [each for each in findings if not (proved and each.severity is Severity.GOOD)]
        if left_out := Fitted(header, self.columns).left_out:
            names = ", ".join(dict.fromkeys(left_out))
            text = f"{names}: use --wide, a pipe, or the file"
            rest.append(Finding(Severity.NOTE, "Not shown here", text))
        doubts = (Severity.BAD, Severity.DOUBTFUL)
        said: list[RunFinding] = [*verdict, *rest]
        in_order = worst_first(each for each in said if each.severity in doubts)
        in_order += [each for each in said if each.severity not in doubts]
        lines = []
        for each in in_order:
            coloured = each in verdict or each.severity in doubts
            lines += self._shown(each, header, each.severity if coloured else Severity.NOTE)
        judged = [part for line in gate for part in self._parts(line, "#".ljust(6))]
        # Names are to be copied.
        return ["#", *lines, *lines_of(written(files), header.world), *judged]

    def narrowed(self, table: Sequence[str]) -> list[str]:
        """A table of comments with its columns as narrow as they can be, if it does not fit."""
        if all(len(line) <= self.columns for line in table):
            return list(table)
        columns = len(table[-1].split())
        cells = {i: line.split() for i, line in enumerate(table) if len(line.split()) == columns}
        widths = [max(map(len, each)) for each in zip(*cells.values(), strict=True)]
        lines = []
        for i, line in enumerate(table):
            if i in cells:
                pairs = zip(cells[i], widths, strict=True)
                lines.append("  ".join(text.rjust(width) for text, width in pairs))
            else:
                lines += self._parts(line, "## ")
        return lines

    def _shown(self, finding: RunFinding, header: RunHeader, colour: Severity) -> list[str]:
        lines = finding_lines(finding, header.world)
        if not finding.text:  # a table
            return lines
        parts = [part for line in lines for part in self._parts(line, "#".ljust(INDENT))]
        return [self._coloured(part, colour) for part in parts]

    def _parts(self, line: str, indent: str) -> list[str]:
        """A line as several that fit."""
        return folded(line, self.columns, indent)

    def _coloured(self, line: str, kind: Severity) -> str:
        if not self.colour or kind not in _COLOURS:
            return line
        return f"{_COLOURS[kind]}{line}{_RESET}"
