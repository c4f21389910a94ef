"""The table of the matrix, below the results of SUITE=faults."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fault_matrix import DEVIATIONS, FAULTS, HOWS, PHASES, Cell, expected


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    ends: dict[str, str] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            told = dict(getattr(report, "user_properties", ()))
            if getattr(report, "when", "") == "call" and "cell" in told:
                ends[told["cell"]] = ("" if report.passed else "!") + told.get("end", "failed")
    if ends:
        for line in table(ends):
            terminalreporter.write_line(line)


def table(ends: dict[str, str]) -> Iterator[str]:
    """A line a fault and launcher: exit code and seconds by phase; "!" has failed, a letter says
    why there is no cell."""
    width = max(map(len, PHASES)) + 1
    reasons: dict[str, str] = {}
    yield ""
    yield f"{'fault':11}{'launcher':9}" + "".join(f"{phase:{width}}" for phase in PHASES)
    for fault in FAULTS:
        for how in HOWS:
            line = f"{fault:11}{how:9}"
            for phase in PHASES:
                cell = Cell(fault, phase, how)
                wanted = expected(cell)
                if isinstance(wanted, str):
                    letter = reasons.setdefault(wanted, "abcdefgh"[len(reasons)])
                    line += f"{letter:{width}}"
                else:
                    line += f"{ends.get(cell.name, '?'):{width}}"
            yield line.rstrip()
    for fault, what in FAULTS.items():
        yield f"{fault}: {what}"
    for reason, letter in reasons.items():
        yield f"{letter}: {reason}"
    for code, why in DEVIATIONS.items():
        yield f"mpirun's own: {code}: {why}"
