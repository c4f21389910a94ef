"""`tcpx-mpi report --trace`: the median time of each step of a message, as text."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from tcpx_mpi.records import Run
from tcpx_mpi.report.plugin_trace import VARIABLE, PluginTrace
from tcpx_mpi.report.waterfall import Waterfall, waterfalls
from tcpx_mpi.units import counted, format_size

#: Chunks of a message that have a column: the first ones, and the last.
_CHUNKS_SHOWN = 8
#: Ways of a size that are shown: all are alike in a ring.
_LINKS_SHOWN = 4


def plugin_trace_of(run: Run, prefix: str | None) -> tuple[PluginTrace | None, list[str]]:
    """The plugin's own trace of a run, and in words what of it is missing.

    `prefix`: its SOFTTCPX_TRACE; None: that of the run's environment. Raises UsageError if a
    file is no trace.
    """
    prefix = prefix or run.header.environment.get(VARIABLE) or None
    if prefix is None:
        return None, [f"{VARIABLE} was not set: no steps of the plugin's own"]
    paths = {info.pid: f"{prefix}.{info.pid}" for info in run.header.ranks}
    there = [(pid, path) for pid, path in paths.items() if os.path.exists(path)]
    missing = [path for path in paths.values() if not os.path.exists(path)]
    lost = [f"the plugin's trace {path} is not here" for path in missing]
    return (PluginTrace(there) if there else None), lost


def trace_lines(run: Run, prefix: str | None = None) -> list[str]:
    """The waterfalls of a run in text; what cannot be told is said."""
    if not any(row.trace.size for row in run.rows):
        return ["# Trace: none in this file; `tcpx-mpi run ... --trace N` keeps one"]
    plugin, lost = plugin_trace_of(run, prefix)
    lines = [f"# Trace: {text}" for text in lost]
    by_size: dict[int, list[Waterfall]] = {}
    for found in waterfalls(run, plugin):
        by_size.setdefault(found.size_bytes, []).append(found)
    for found_of_size in by_size.values():
        for found in found_of_size[:_LINKS_SHOWN]:
            lines += _lines_of(found)
        if left := found_of_size[_LINKS_SHOWN:]:
            lines.append(f"# and {counted(len(left), 'link')} more of this size")
    if not by_size:
        lines.append("# Trace: no message is whole in it, on both sides; ask for more chunks")
    return lines


def _lines_of(found: Waterfall) -> list[str]:
    chunks = len(found.chunk_bytes)
    shown = list(range(chunks))
    if chunks > _CHUNKS_SHOWN:
        shown = [*range(_CHUNKS_SHOWN - 1), chunks - 1]
    title = (
        f"# Trace of {format_size(found.size_bytes)}, rank {found.sender} -> rank "
        f"{found.receiver}, step {found.step}: {counted(found.messages, 'message')} of "
        f"{counted(chunks, 'chunk')}; median us after the first post"
    )
    lines = [title]
    if not found.one_clock:
        lines.append(
            "#   The two hosts have no clock in common: each side counts from its own first post"
        )
    lines.append(_line("", "chunk", [str(c) for c in shown]))
    lines.append(_line("", "KiB", [f"{found.chunk_bytes[c] / 1024:.4g}" for c in shown]))
    lines.append(_line("send", "iteration begins", [f"{np.median(found.start_us):.1f}"]))
    for step in found.steps:
        lines.append(_line(step.side, step.name, [_median(step.us[:, c]) for c in shown]))
    low, middle, high = np.percentile(found.end_us(), (10, 50, 90))
    lines.append(
        _line("message", "all consumed", [f"{middle:.1f}"]) + f"  p10 {low:.1f}, p90 {high:.1f}"
    )
    return lines


def _median(us: np.ndarray) -> str:
    seen = us[~np.isnan(us)]
    return f"{np.median(seen):.1f}" if seen.size else "-"


def _line(side: str, name: str, values: Sequence[str]) -> str:
    return f"#   {side:<8}{name:<31}" + "".join(f"{value:>9}" for value in values)
