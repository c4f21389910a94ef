"""Lines on rows that did not stay as they were while they were measured, with what to try."""

from __future__ import annotations

from collections.abc import Sequence

from tcpx_mpi.stats import Change, RowSummary, find_change
from tcpx_mpi.units import format_size

#: So many rows are named; of more, how many there are.
_MOST_LINES = 4
_TITLES = {"warm-up": "Warm-up", "drift": "Drift", "step": "Step"}


def steadiness_lines(summaries: Sequence[RowSummary]) -> list[tuple[str, str]]:
    """(title, text) of each row, the first few, that warmed up, drifted or jumped."""
    found = [(summary, find_change(summary.iteration_max_ns())) for summary in summaries]
    lines = [(_TITLES[change.kind], _text(s, change)) for s, change in found if change is not None]
    if len(lines) > _MOST_LINES:
        rest = f"{len(lines) - _MOST_LINES} more rows were not steady"
        lines[_MOST_LINES:] = [("Not steady", rest)]
    return lines


def _text(summary: RowSummary, change: Change) -> str:
    row = f"{format_size(summary.size_bytes)}: "
    percent = f"{100 * abs(change.relative):.2g} %"
    if change.kind == "warm-up":
        slower = 100 * (change.before / change.after - 1)
        return row + (
            f"the first {change.at} of {summary.iterations} iterations were {slower:.0f} % slower "
            f"than the rest: use -w {_rounded_up(change.at)} or more"
        )
    way = "slower" if change.after > change.before else "faster"
    if change.kind == "drift":
        return row + (
            f"the last third of the iterations was {percent} {way} than the first: use a longer "
            "warm-up (-w), and compare launches that took turns (tcpx-mpi ab)"
        )
    return row + (
        f"from iteration {change.at} of {summary.iterations} on {percent} {way}: something else "
        "began or ended on this machine; repeat, or use --runs"
    )


def _rounded_up(iterations: int) -> int:
    """The next number that one would type: 1, 2 or 5 times a power of ten."""
    magnitude = 1
    while True:
        for step in (1, 2, 5):
            if step * magnitude >= iterations:
                return step * magnitude
        magnitude *= 10
