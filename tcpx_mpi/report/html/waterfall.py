"""Waterfalls of traced messages: what each chunk was at on both sides, when."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tcpx_mpi.records import Run
from tcpx_mpi.report.html.axes import Plot, empty_axes, legend
from tcpx_mpi.report.html.svg import COLOURS
from tcpx_mpi.report.trace_text import plugin_trace_of
from tcpx_mpi.report.waterfall import Waterfall, waterfalls
from tcpx_mpi.units import counted, format_size

#: Waterfalls of a page, and chunks of one: the first ones.
_SHOWN = 8
_CHUNKS_SHOWN = 8
#: Stretches of a lane: (name, side, first step, last step, colour). `*` is the plugin's own.
_STRETCHES = (
    ("post", "send", "post", "post has returned", "series-1"),
    ("post", "receive", "post", "post has returned", "series-1"),
    ("copy", "send", "copy begun *", "last copy landed *", "series-2"),
    ("in sockets", "send", "given to a socket *", "last bytes sent *", "series-3"),
    ("in sockets", "receive", "header read *", "last bytes read *", "series-3"),
    ("flush", "receive", "done", "flushed", "series-5"),
    ("unpack", "receive", "done", "unpacked", "series-4"),
)
#: Instants that are marked.
_MARKS = (
    ("worker awake", "worker is awake *", "^"),
    ("done", "done", "|"),
)


def waterfall_plots(run: Run, prefix: str | None = None) -> tuple[list[Plot], list[str]]:
    """The plots of the traced rows, and in words what is not in them; none without a trace."""
    if not any(row.trace.size for row in run.rows):
        return [], []
    plugin, lost = plugin_trace_of(run, prefix)
    found = waterfalls(run, plugin)
    if left := len(found) - _SHOWN:
        lost += [f"{counted(left, 'more link')} is in the file alone"] if left > 0 else []
    return [_plot(number, each) for number, each in enumerate(found[:_SHOWN])], lost


def _plot(number: int, found: Waterfall) -> Plot:
    """The message whose end is the median of all."""
    end = found.end_us()
    which = int(np.argsort(end, kind="stable")[(len(end) - 1) // 2])
    chunks = range(min(len(found.chunk_bytes), _CHUNKS_SHOWN))
    at = {(step.side, step.name): step.us[which] for step in found.steps}
    lanes = [(side, chunk) for chunk in chunks for side in ("send", "receive")]
    heading = f"{format_size(found.size_bytes)}, rank {found.sender} to {found.receiver}"
    named: set[str] = set()
    with empty_axes(f"waterfall-{number}", 70 + 20 * len(lanes)) as plot:
        for lane, (side, chunk) in enumerate(lanes):
            for name, of_side, first, last, colour in _STRETCHES:
                begin, finish = (at.get((side, step)) for step in (first, last))
                if of_side != side or begin is None or finish is None:
                    continue
                plot.axes.barh(
                    lane, finish[chunk] - begin[chunk], left=begin[chunk], height=0.6,
                    color=COLOURS[colour], label=_name_once(named, name),
                )  # fmt: skip
            for name, step, mark in _MARKS:
                if (side, step) in at:
                    plot.axes.plot(
                        at[side, step][chunk], lane, mark, color=COLOURS["ink"], markersize=6,
                        label=_name_once(named, name), linestyle="none",
                    )  # fmt: skip
        plot.axes.set_yticks(range(len(lanes)), [f"{side} {chunk}" for side, chunk in lanes])
        plot.axes.invert_yaxis()
        plot.axes.grid(visible=False, axis="y")
        plot.axes.set_xlabel("us after the first post of the message")
        legend(plot.axes)
        text = _description(found, end)
        return Plot(f"A message of {heading}", plot.finished(f"Waterfall of {heading}", text), text)


def _name_once(names: set[str], name: str) -> str:
    """The label of what is drawn, the first time."""
    if name in names:
        return "_nolegend_"
    names.add(name)
    return name


def _description(found: Waterfall, end: Sequence[float] | np.ndarray) -> str:
    low, middle, high = np.percentile(end, (10, 50, 90))
    words = (
        f"The message of median time of {found.messages}: all consumed after {middle:.1f} us "
        f"(p10 {low:.1f}, p90 {high:.1f}), {counted(len(found.chunk_bytes), 'chunk')}"
    )
    if len(found.chunk_bytes) > _CHUNKS_SHOWN:
        words += f"; the first {_CHUNKS_SHOWN} are drawn"
    if not found.one_clock:
        words += ". The hosts have no clock in common: each side counts from its own first post"
    if not any(step.by_plugin for step in found.steps):
        words += ". Without steps of the plugin's own (SOFTTCPX_TRACE)"
    return words + "."
