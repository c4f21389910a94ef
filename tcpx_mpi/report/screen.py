"""What a terminal shows of a run: a short header, the columns that fit, and a verdict in words.

A pipe and a file have all columns; see `preamble`, `table` and `footer`.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TextIO

from tcpx_mpi.printable import printable_lines, write_own
from tcpx_mpi.records import RunHeader, SetupTimes
from tcpx_mpi.report.brief import brief_lines
from tcpx_mpi.report.fitted import Fitted
from tcpx_mpi.report.lines import titled
from tcpx_mpi.report.preamble import header_lines
from tcpx_mpi.report.setup_table import setup_lines
from tcpx_mpi.report.verdict import BAD, DOUBTFUL, GOOD, PLAIN, Said
from tcpx_mpi.stats import RowSummary

#: Where the text of `# Title : text` begins, for the lines that go on with it.
_TITLED = re.compile(r"# [^:]{4,20} : ")
_COLOURS = {GOOD: "\x1b[32m", BAD: "\x1b[31m", DOUBTFUL: "\x1b[33m"}
_RESET = "\x1b[0m"
#: Findings that a good verdict has said already.
_SAID = ("# Checked ", "# Beside peers ")
#: A narrower terminal is written to as if it had these.
_LEAST_COLUMNS = 40


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
            lines = brief_lines(header, path, max(self.columns, _LEAST_COLUMNS))
        return [*lines, *fitted.title_lines()]

    def row(self, header: RunHeader, summary: RowSummary) -> str:
        """A row; in red where it has wrong bytes."""
        line = Fitted(header, self.columns).row_line(summary)
        return self._coloured(line, BAD if summary.wrong_found else "")

    def closing(
        self,
        header: RunHeader,
        verdict: Sequence[Said],
        findings: Sequence[str],
        files: Sequence[str],
        gate: Sequence[str],
    ) -> list[str]:
        """Everything below the last row: the verdict first, then what a reader must know."""
        proved = any(said.kind == GOOD for said in verdict)
        rest = [each for each in findings if not (proved and each.startswith(_SAID))]
        said = [*verdict, *map(_finding, rest)]
        if left_out := Fitted(header, self.columns).left_out:
            names = ", ".join(dict.fromkeys(left_out))
            said.append(Said(titled("Not shown here", f"{names}: use --wide, a pipe, or the file")))
        lines = [line for each in said for line in self._shown(each)]
        # Names are to be copied, and a gate's lines are a table.
        return ["#", *lines, *(titled("Written", name) for name in files), *gate]

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

    def _shown(self, said: Said) -> list[str]:
        found = _TITLED.match(said.line)
        if found is None:  # of a table of a finding
            return [said.line]
        lines = self._parts(said.line, "#".ljust(found.end()))
        return [self._coloured(line, said.kind) for line in lines]

    def _parts(self, line: str, indent: str) -> list[str]:
        """A line as several that fit."""
        width = max(self.columns, _LEAST_COLUMNS)
        if len(line) <= width:
            return [line]
        return textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False)

    def _coloured(self, line: str, kind: str) -> str:
        if not self.colour or kind not in _COLOURS:
            return line
        return f"{_COLOURS[kind]}{line}{_RESET}"


def _finding(line: str) -> Said:
    return Said(line, DOUBTFUL if line.startswith("# WARNING ") else PLAIN)
