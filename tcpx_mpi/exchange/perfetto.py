"""A traced run as a timeline for Perfetto: JSON of trace events, compressed.

A process is a rank. Its tracks are its rows and iterations, and of each channel what chunks are in:
post, in flight, flush, unpack, reduce, consume. Arrows lead from each send to its receive, counters
say what is under way. All instants are on the clock of rank 0's node; the title has the bound.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np

from tcpx_mpi.arrays import Int64s
from tcpx_mpi.errors import UsageError
from tcpx_mpi.exchange.timeline import LEAST_NS, TITLE, Event, Tracks, meta, write_events
from tcpx_mpi.records import RankInfo, Row, Run, rank_name
from tcpx_mpi.records.trace import COLUMNS, RECEIVE, REDUCES, SEND
from tcpx_mpi.report.plugin_trace import PluginTrace
from tcpx_mpi.report.waterfall import Chunk, way_of
from tcpx_mpi.units import format_size

_INSTANTS = ("post", "posted", "done", "flushed", "launched", "unpacked", "finished")
#: Of the iterations of a rank and row, the last ones and those of the trace; of warm-ups the last.
_MOST_ITERATIONS = 4096


def write_perfetto(
    run: Run, plugin: PluginTrace | None, file: BinaryIO, per_node: bool = False
) -> None:
    """The timeline of a run, gzipped. Raises UsageError, before anything is written, for a run
    without a trace, and for one whose nodes have no time in common unless `per_node` is given:
    each then counts from its own first post, and no arrow leads from one to another.
    """
    if not any(row.trace.size for row in run.rows):
        raise UsageError(
            f"{run.path} has no trace, and a timeline is made of one: `tcpx-mpi run ... --trace N` "
            "keeps it"
        )
    apart = _without_common_time(run)
    if apart and not per_node:
        raise UsageError(
            f"{run.path}: {apart}, so nothing of one node is before or after anything of another: "
            "give --per-node, and each counts from its own first post"
        )
    timeline = _Timeline(run, plugin, per_node)
    write_events(timeline.facts(), timeline.events(), file)


def _without_common_time(run: Run) -> str:
    """Why instants of all ranks cannot be compared; "" if they can."""
    ranks = run.header.ranks
    if all(info.shares_clock(ranks[0]) for info in ranks):
        return ""
    rows = [row for row in run.rows if row.trace.size and row.clock is None]
    if not rows:
        return ""
    return f"the nodes have no clock in common at {format_size(rows[0].size_bytes)}"


class _Timeline:
    def __init__(self, run: Run, plugin: PluginTrace | None, per_node: bool) -> None:
        self._run, self._plugin, self._per_node = run, plugin, per_node
        self._infos = {info.rank: info for info in run.header.ranks}
        self._tracks = {rank: Tracks(rank) for rank in self._infos}
        self._zero: dict[str, int] = {}
        self._retransmits: Counter[int] = Counter()
        for row in run.rows:
            for rank, info in self._infos.items():
                mine = row.trace[row.trace[:, 0] == rank]
                if mine.size:
                    self._set_zero(info, self._common(row, rank, mine[:, COLUMNS.index("post")]))
                for samples in (row.samples, row.warmup):
                    if "start" in samples and (starts := samples["start"][rank]).size:
                        last = starts[-_MOST_ITERATIONS:]
                        self._set_zero(info, self._common(row, rank, last))

    def _set_zero(self, info: RankInfo, times: Int64s) -> None:
        key = info.node if self._per_node else ""
        self._zero[key] = min(int(times.min()), self._zero.get(key, int(times.min())))

    def _common(self, row: Row, rank: int, times: Int64s) -> Int64s:
        """Instants of a rank on the time of all, or with --per-node on that of its node."""
        info = self._infos[rank]
        if row.clock is None or self._per_node:
            return times
        return row.clock.tree.to_common(max(info.clock, 0), times)

    def _us(self, rank: int, time_ns: int) -> float:
        key = self._infos[rank].node if self._per_node else ""
        return (int(time_ns) - self._zero[key]) / 1e3

    def bound_ns(self) -> int:
        """Between any two instants of two nodes, of all rows."""
        numbers = sorted({max(info.clock, 0) for info in self._infos.values()})
        return max(
            (
                row.clock.tree.bound_between_ns(one, other)
                for row in self._run.rows
                if row.clock is not None
                for one in numbers
                for other in numbers
            ),
            default=0,
        )

    def facts(self) -> dict[str, Any]:
        """The facts for a reader who has only the file."""
        header = self._run.header
        bound = None if self._per_node else self.bound_ns() / 1e3
        return {"title": self.title(), "bound_us": bound, "run_id": header.run_id,
                "pattern": header.pattern, "start_time": header.start_time}  # fmt: skip

    def title(self) -> str:
        header = self._run.header
        if self._per_node:
            how = "each node by its own clock"
        elif bound := self.bound_ns():
            how = f"+-{bound / 1e3:.3g} us between nodes"
        else:
            how = "one clock"
        return f"{header.pattern} over {header.plugin_name}: {how}"

    def events(self) -> Iterator[Event]:
        """Slices, counters and arrows, and last what names processes and threads."""
        for row in self._run.rows:
            for rank in self._infos:
                yield from self._iterations(row, rank)
            if row.trace.size:
                yield from self._of_trace(row)
            yield from self._counted(row)
        yield from self._names()

    def _names(self) -> Iterator[Event]:
        yield meta(TITLE, 0, "process_name", name=self.title())
        yield meta(TITLE, 0, "process_sort_index", sort_index=-1)
        for rank, tracks in self._tracks.items():
            yield meta(rank, 0, "process_name", name=rank_name(self._run.header, rank))
            yield meta(rank, 0, "process_sort_index", sort_index=rank)
            ordered = sorted(tracks.named, key=lambda number: (*tracks.named[number], number))
            for place, number in enumerate(ordered):
                yield meta(rank, number, "thread_name", name=tracks.named[number][1])
                yield meta(rank, number, "thread_sort_index", sort_index=place)

    def _slice(
        self, rank: int, group: int, track: str, name: str, begin: int, end: int, **args: Any
    ) -> Event:
        end = max(end, begin + LEAST_NS)
        thread = self._tracks[rank].place(group, track, begin, end)
        return {"ph": "X", "pid": rank, "tid": thread, "name": name, "cat": track,
                "ts": self._us(rank, begin), "dur": (end - begin) / 1e3, "args": args}  # fmt: skip

    def _iterations(self, row: Row, rank: int) -> Iterator[Event]:
        size = format_size(row.size_bytes)
        for what, samples in (("warm-up", row.warmup), ("iteration", row.samples)):
            if not {"start", "iteration"} <= set(samples):
                continue
            starts = samples["start"][rank][-_MOST_ITERATIONS:]
            took = samples["iteration"][rank][-_MOST_ITERATIONS:]
            if not starts.size:
                continue
            first = samples["start"][rank].size - starts.size
            begins, ends = (self._common(row, rank, times) for times in (starts, starts + took))
            yield self._slice(
                rank, 0, "rows", f"{size}, {what}s", int(begins[0]), int(ends[-1]), row=row.index
            )
            for number, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
                if end > begin:  # else the rank has no part in it
                    name = f"{what} {first + number}"
                    yield self._slice(rank, 1, "iterations", name, begin, end, row=row.index)

    def _of_trace(self, row: Row) -> Iterator[Event]:
        table = row.trace.copy()
        for rank in self._infos:
            mine = table[:, 0] == rank
            for name in _INSTANTS:
                column = COLUMNS.index(name)
                seen = mine & (table[:, column] >= 0)
                table[seen, column] = self._common(row, rank, table[seen, column])
        chunks = [dict(zip(COLUMNS, line, strict=True)) for line in table.tolist()]
        # Of one thread in the order of time, so that a slice finds the place behind the one before.
        chunks.sort(key=lambda chunk: chunk["post"])
        receives = {way_of(chunk): chunk for chunk in chunks if chunk["kind"] == RECEIVE}
        ends: dict[int, tuple[int, float]] = {}
        sources: dict[int, tuple[int, float]] = {}
        for chunk in chunks:
            for phase, begin, end in _phases(chunk):
                made = self._slice(
                    chunk["rank"], 2, f"{_channel(chunk)}: {phase}", _label(row, chunk), begin, end,
                    bytes=chunk["bytes"], message=chunk["message"], step=chunk["step"],
                    iteration=chunk["iteration"], row=row.index,
                )  # fmt: skip
                yield made
                if phase == "post" and chunk["kind"] == SEND:
                    sources[id(chunk)] = made["tid"], made["ts"]
                if phase == "in flight" and chunk["kind"] == RECEIVE:
                    # Within the slice still: that is how an arrow knows it.
                    ends[id(chunk)] = made["tid"], made["ts"] + made["dur"] - 1e-3
            yield from self._of_plugin(row, chunk)
        number = 0
        for chunk in chunks:
            met = receives.get(way_of(chunk)) if chunk["kind"] == SEND else None
            if met is None or not self._comparable(chunk["rank"], met["rank"]):
                continue
            number += 1
            arrow = {"cat": "message", "name": "message", "id": f"{row.index}.{number}"}
            thread, at = sources[id(chunk)]
            yield {"ph": "s", "pid": chunk["rank"], "tid": thread, "ts": at, **arrow}
            thread, at = ends[id(met)]
            yield {"ph": "f", "bp": "e", "pid": met["rank"], "tid": thread, "ts": at, **arrow}
        yield from self._windows(chunks)

    def _comparable(self, one: int, other: int) -> bool:
        return not self._per_node or self._infos[one].node == self._infos[other].node

    def _of_plugin(self, row: Row, chunk: Chunk) -> Iterator[Event]:
        """softtcpx's own steps of a message: a slice from the first to the last, and an instant
        each."""
        if self._plugin is None:
            return
        rank = chunk["rank"]
        spans = self._plugin.of(self._infos[rank].pid, chunk["comm"], chunk["message"])
        if not spans:
            return
        names = list(spans)
        times = np.array([spans[name] for name in names], np.int64)
        common = self._common(row, rank, times.ravel()).reshape(-1, 2).tolist()
        track = f"{_channel(chunk)}: plugin"
        begin, end = min(first for first, _ in common), max(last for _, last in common)
        made = self._slice(rank, 2, track, _label(row, chunk), begin, end, row=row.index)
        yield made
        for name, (first, last) in zip(names, common, strict=True):
            for at in {first, last}:
                yield {"ph": "i", "s": "t", "pid": rank, "tid": made["tid"], "name": name,
                       "ts": self._us(rank, at), "cat": track}  # fmt: skip

    def _windows(self, chunks: Iterable[Chunk]) -> Iterator[Event]:
        """The windows: of each channel the chunks that are posted and not finished, of each rank
        the bytes."""
        changes: dict[int, list[tuple[int, str, int, int]]] = defaultdict(list)
        for chunk in chunks:
            name = f"window, {_channel(chunk)}"
            changes[chunk["rank"]].append((chunk["post"], name, 1, 0))
            changes[chunk["rank"]].append((chunk["finished"], name, -1, chunk["bytes"]))
        for rank, of_rank in changes.items():
            open_, done = Counter[str](), 0
            for at, name, posted, finished in sorted(of_rank):
                open_[name] += posted
                done += finished
                yield self._counter(rank, name, at, chunks=open_[name])
                if finished:
                    yield self._counter(rank, "bytes", at, finished=done)

    def _counter(self, rank: int, name: str, at_ns: int, **values: float) -> Event:
        return {"ph": "C", "pid": rank, "name": name, "ts": self._us(rank, at_ns), "args": values}

    def _counted(self, row: Row) -> Iterator[Event]:
        """The counters of a rank by row: the bound of its clock, and what TCP sent again."""
        for rank, info in self._infos.items():
            starts = row.samples["start"][rank] if "start" in row.samples else np.zeros(0, np.int64)
            if not starts.size:
                continue
            last = starts[-1:] + row.samples["iteration"][rank][-1:]
            begin, end = self._common(row, rank, np.concatenate([row.batch_start[rank][:1], last]))
            if row.clock is not None and not self._per_node:
                bound = row.clock.tree.bound_ns(max(info.clock, 0)) / 1e3
                # From the first instant that is shown of the row.
                begin = max(int(begin), self._zero[""])
                yield self._counter(rank, "clock bound (us)", begin, us=bound)
            if row.tcp_retransmits[rank] >= 0:
                self._retransmits[rank] += int(row.tcp_retransmits[rank])
                yield self._counter(rank, "retransmits", int(end), sum=self._retransmits[rank])


def _phases(chunk: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    """The phases of a chunk, each with its ends, one after the other."""
    yield "post", chunk["post"], chunk["posted"] if chunk["posted"] >= 0 else chunk["post"]
    at = max(chunk["posted"], chunk["post"])
    reduces = chunk["work"] == REDUCES
    for phase, end in (
        ("in flight", chunk["done"]),
        ("flush", chunk["flushed"]),
        ("reduce" if reduces else "unpack", chunk["unpacked"]),
    ):
        if end >= 0:
            yield phase, at, end
            at = max(at, end)
    if chunk["kind"] == SEND:
        return
    # By the CPU a chunk is reduced as soon as it is there.
    by_cpu = reduces and chunk["unpacked"] < 0
    last = "copy" if chunk["kind"] != RECEIVE else "reduce" if by_cpu else "consume"
    yield last, at, max(chunk["finished"], at)


def _channel(chunk: Mapping[str, int]) -> str:
    if chunk["kind"] not in (SEND, RECEIVE):
        return "copy"
    way = "send to" if chunk["kind"] == SEND else "receive from"
    lane = f", lane {chunk['lane']}" if chunk["lane"] else ""
    return f"{way} {chunk['peer']}, channel {chunk['channel']}{lane}"


def _label(row: Row, chunk: Mapping[str, int]) -> str:
    return f"{format_size(row.size_bytes)}, {chunk['iteration']}.{chunk['step']}.{chunk['chunk']}"
