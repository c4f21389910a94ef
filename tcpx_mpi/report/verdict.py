"""What a run has shown, in plain words: its bytes, its speed, and how it stands beside peers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tcpx_mpi.records import RunHeader
from tcpx_mpi.report.footer import below_minimum_text, passes_minimum_bandwidth
from tcpx_mpi.report.lines import titled
from tcpx_mpi.stats import RowSummary, mean_bus_bandwidth
from tcpx_mpi.stats.ratios import Ratio, strongest
from tcpx_mpi.units import counted, format_size

GOOD, BAD, DOUBTFUL, PLAIN = "good", "bad", "doubtful", ""


@dataclass(frozen=True)
class Said:
    """A line of a verdict, and whether it is good news."""

    line: str
    kind: str = PLAIN


def verdict(header: RunHeader, summaries: Sequence[RowSummary]) -> list[Said]:
    """The lines below the table of a terminal, the most important first."""
    said = [*_bytes(header, summaries), *_speed(header, summaries)]
    average = mean_bus_bandwidth(summaries)
    if passes_minimum_bandwidth(header, average) is False:
        said.append(Said(titled("Too slow", below_minimum_text(header, average)), BAD))
    return [*said, *_peers(header, summaries)]


def _bytes(header: RunHeader, summaries: Sequence[RowSummary]) -> list[Said]:
    wrong = sum(summary.wrong_found for summary in summaries)
    if wrong:
        return [Said(titled("Bytes", f"{wrong} WRONG: no figure of this run is valid"), BAD)]
    if header.averages_only:
        return []  # the footer says by whose check
    moved = [summary for summary in summaries if summary.size_bytes > 0]
    if not moved:
        return []
    if any(not summary.checked for summary in moved):
        text = "not all were checked, so the bandwidth is only claimed, not proved"
        return [Said(titled("Bytes", text), DOUBTFUL)]
    total = format_size(sum(summary.payload_received_checked for summary in moved))
    return [Said(titled("Bytes", f"right: all {total} that were timed are checked"), GOOD)]


def _speed(header: RunHeader, summaries: Sequence[RowSummary]) -> list[Said]:
    average = mean_bus_bandwidth(summaries)
    if not math.isfinite(average):
        return []
    best = max(summaries, key=lambda s: s.busbw if math.isfinite(s.busbw) else -1.0)
    text = f"{average:.4g} GB/s bus bandwidth on average over {counted(len(summaries), 'row')}"
    if len(summaries) > 1 and math.isfinite(best.busbw):
        text += f", most at {format_size(best.size_bytes)} ({best.busbw:.4g})"
    return [Said(titled("Speed", text))]


def _peers(header: RunHeader, summaries: Sequence[RowSummary]) -> list[Said]:
    """Of each kind of peer in how many rows it was faster or slower, by the interval."""
    names: dict[str, list[str]] = {}
    for baseline in header.baselines:
        names.setdefault(baseline.kind, []).append(baseline.name)
    said = []
    for kind, variants in names.items():
        said += _beside(f"Beside {kind}", [s.against.get(kind) for s in summaries])
        if len(variants) > 1:
            best = [strongest(s.against, variants) for s in summaries]
            said += _beside(f"{kind} at its best", best)
    return said


def _beside(title: str, found: Sequence[Ratio | None]) -> list[Said]:
    ratios = [each for each in found if each is not None and not each.void]
    ratios = [each for each in ratios if math.isfinite(each.ratio)]
    if not ratios:
        return []
    faster = sum(each.ci_low > 1 for each in ratios)
    slower = sum(each.ci_high < 1 for each in ratios)
    equal = len(ratios) - faster - slower
    parts = [f"faster in {faster}"] if faster else []
    parts += [f"slower in {slower}"] if slower else []
    parts += [f"no difference shown in {equal}"] if equal else []
    low, high = min(each.ratio for each in ratios), max(each.ratio for each in ratios)
    span = f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
    text = f"{span} times its speed: {', '.join(parts)} of {counted(len(found), 'row')}"
    return [Said(titled(title, text))]
