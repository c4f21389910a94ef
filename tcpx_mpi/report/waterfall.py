"""Waterfalls of traced messages: time of each step of each chunk.

What the engine saw (`--trace`) and what the plugin wrote by itself are joined by process, comm and
number of the message on it; both sides of a message by the comm's channel and that number.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tcpx_mpi.arrays import Float64s
from tcpx_mpi.records import RankInfo, Row, Run
from tcpx_mpi.records.trace import COLUMNS, RECEIVE, SEND
from tcpx_mpi.report.plugin_trace import PluginTrace, Spans

Chunk = dict[str, int]

#: A step: the column of the trace, or ("plugin's name", 0 first or 1 last).
_Source = str | tuple[str, int]
#: (what it is called, where it comes from), in the order in which they happen.
_SENDS: tuple[tuple[str, _Source], ...] = (
    ("post", "post"),
    ("copy begun *", ("copy begun", 0)),
    ("caller has woken the worker *", ("wakes", 0)),
    ("post has returned", "posted"),
    ("worker is awake *", ("woken", 0)),
    ("first copy landed *", ("copy landed", 0)),
    ("last copy landed *", ("copy landed", 1)),
    ("given to a socket *", ("sending", 0)),
    ("first bytes sent *", ("sent", 0)),
    ("last bytes sent *", ("sent", 1)),
    ("done", "done"),
    ("finished", "finished"),
)
_RECEIVES: tuple[tuple[str, _Source], ...] = (
    ("post", "post"),
    ("post has returned", "posted"),
    ("worker is awake *", ("woken", 0)),
    ("header read *", ("header", 0)),
    ("first bytes read *", ("received", 0)),
    ("last bytes read *", ("received", 1)),
    ("handed over *", ("whole", 0)),
    ("done", "done"),
    ("flushed", "flushed"),
    ("unpack launched", "launched"),
    ("unpacked", "unpacked"),
    ("consumed", "finished"),
)


@dataclass(frozen=True, eq=False)
class Step:
    """One step on one side: float64[message, chunk] in us, NaN if it was not seen."""

    side: str
    name: str
    us: Float64s

    @property
    def by_plugin(self) -> bool:
        return self.name.endswith("*")


@dataclass(frozen=True, eq=False)
class Waterfall:
    """Messages of one row from one rank to another."""

    size_bytes: int
    sender: int
    receiver: int
    #: Row of the sender's schedule.
    step: int
    chunk_bytes: tuple[int, ...]
    #: From when the sender's first post of the message on; those of a receiver on another host
    #: from its own first post.
    one_clock: bool
    steps: tuple[Step, ...]
    #: Start of the iteration on the sender, us, by message.
    start_us: Float64s

    @property
    def messages(self) -> int:
        return len(self.start_us)

    def end_us(self) -> Float64s:
        """When the last chunk was consumed, by message."""
        return np.asarray(self.steps[-1].us.max(axis=1), np.float64)


def waterfalls(run: Run, plugin: PluginTrace | None) -> list[Waterfall]:
    """The waterfalls of each row and link: messages of which both sides have every chunk."""
    return [found for row in run.rows for found in _of_row(row, run.header.ranks, plugin)]


def _of_row(row: Row, ranks: Sequence[RankInfo], plugin: PluginTrace | None) -> list[Waterfall]:
    chunks: list[Chunk] = [dict(zip(COLUMNS, line, strict=True)) for line in row.trace.tolist()]
    receives = {way_of(chunk): chunk for chunk in chunks if chunk["kind"] == RECEIVE}
    messages: dict[tuple[int, int, int], dict[int, list[Chunk]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for chunk in chunks:
        if chunk["kind"] == SEND:
            key = (chunk["rank"], chunk["peer"], chunk["step"])
            messages[key][chunk["iteration"]].append(chunk)
    found = []
    for (sender, receiver, step), by_iteration in sorted(messages.items()):
        most = max(map(len, by_iteration.values()))
        pairs = []
        for _, sends in sorted(by_iteration.items()):
            sends.sort(key=lambda chunk: chunk["chunk"])
            arrivals = [receives.get(way_of(chunk)) for chunk in sends]
            if len(sends) == most and all(arrivals):
                pairs.append((sends, [chunk for chunk in arrivals if chunk is not None]))
        if pairs:
            found.append(_waterfall(row, ranks, plugin, (sender, receiver, step), pairs))
    return found


def way_of(chunk: Chunk) -> tuple[int, int, int, int, int]:
    """The key that both sides of a chunk share: from, to, lane, channel, number."""
    ends = (chunk["rank"], chunk["peer"])
    if chunk["kind"] == RECEIVE:
        ends = ends[::-1]
    return (*ends, chunk["lane"], chunk["channel"], chunk["message"])


def _waterfall(
    row: Row,
    ranks: Sequence[RankInfo],
    plugin: PluginTrace | None,
    which: tuple[int, int, int],
    pairs: Sequence[tuple[list[Chunk], list[Chunk]]],
) -> Waterfall:
    sender, receiver, step = which
    one_clock = row.clock is not None or ranks[sender].shares_clock(ranks[receiver])
    shape = (len(pairs), len(pairs[0][0]))
    start = np.zeros(len(pairs))
    tables = {
        (side, name): np.full(shape, np.nan)
        for side, names in (("send", _SENDS), ("receive", _RECEIVES))
        for name, _ in names
    }
    for m, (sends, arrivals) in enumerate(pairs):
        zero = min(chunk["post"] for chunk in sends)
        start[m] = (int(row.samples["start"][sender, sends[0]["iteration"]]) - zero) / 1e3
        zero_there = zero if one_clock else min(chunk["post"] for chunk in arrivals)
        for side, names, side_chunks, from_ns in (
            ("send", _SENDS, sends, zero),
            ("receive", _RECEIVES, arrivals, zero_there),
        ):
            for c, chunk in enumerate(side_chunks):
                spans: Spans = {}
                if plugin is not None:
                    process = ranks[chunk["rank"]].pid
                    spans = plugin.of(process, chunk["comm"], chunk["message"])
                for name, source in names:
                    at = _instant(source, chunk, spans)
                    if at is not None:
                        tables[side, name][m, c] = (at - from_ns) / 1e3
    steps = tuple(
        Step(side, name, us) for (side, name), us in tables.items() if not np.isnan(us).all()
    )
    sizes = tuple(chunk["bytes"] for chunk in pairs[0][0])
    return Waterfall(row.size_bytes, sender, receiver, step, sizes, one_clock, steps, start)


def _instant(source: _Source, chunk: Chunk, spans: Spans) -> int | None:
    if isinstance(source, str):
        return chunk[source] if chunk[source] >= 0 else None
    name, which = source
    return spans[name][which] if name in spans else None
