"""The tables of a page, as texts: what is in which cell, and what a table leaves out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np

from tcpx_mpi.findings import Severity
from tcpx_mpi.findings.row_names import row_names
from tcpx_mpi.findings.rows import is_unchecked
from tcpx_mpi.findings.run import Matrix, RunFinding
from tcpx_mpi.records import RunHeader, SetupTimes, rank_name
from tcpx_mpi.report.field import UNKNOWN, Field
from tcpx_mpi.report.fields import ALGBW, BUSBW, PAGE, SIZE, TIME, WRONG, in_place
from tcpx_mpi.report.html.plots import longest_by_rank
from tcpx_mpi.report.lines import title_of, words_of
from tcpx_mpi.stats import RowSummary, slowest_rank
from tcpx_mpi.stats.ratios import Ratio
from tcpx_mpi.stragglers.links import Link
from tcpx_mpi.units import format_size, format_time_us

#: Rows of the measured table on a page; a browser stays quick, and the page small.
ROWS_SHOWN = 1000
#: Lines of any other table.
LINES_SHOWN = 500


@dataclass(frozen=True)
class Column:
    """A column: title, unit below it, and whether it holds text (else numbers)."""

    title: str
    unit: str = ""
    is_text: bool = False


def _columns(titles: str) -> tuple[Column, ...]:
    """`title|unit` each, with a semicolon between them; of text where a blank leads."""
    parts = [(title, *title.strip().partition("|")[::2]) for title in titles.split(";")]
    return tuple(Column(name, unit, title.startswith(" ")) for title, name, unit in parts)


@dataclass(frozen=True)
class Line:
    """The cells of a line; `mark` is "", or the class that makes the line stand out."""

    cells: tuple[str, ...]
    mark: str = ""


@dataclass(frozen=True)
class Table:
    """A table; the first cell of a line is its heading. `note` says what is not shown."""

    caption: str
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]
    note: str = ""


#: What rows of one size may differ in, and its title.
_APART = {"type_name": "type", "redop": "redop", "root": "root"}


def rows_table(summaries: Sequence[RowSummary], path: str) -> Table:
    """Every row, or the troubled, the slowest and the first ones of too many."""
    shown = _most_telling(summaries, ROWS_SHOWN)
    note = ""
    if len(shown) < len(summaries):
        note = (
            f"{len(shown):,} of {len(summaries):,} rows are shown: those with wrong bytes, then "
            "the unchecked, then the slowest for their size, and the first. "
            f"All are in {path}: tcpx-mpi report {path}"
        )
    columns = _ROW_CELLS
    if any(summary.in_place is not None for summary in summaries):
        columns += _IN_PLACE_CELLS
    if any(summary.cycle > 0 for summary in summaries):
        names = [n for n in _APART if len({getattr(s, n) for s in summaries}) > 1] or ["cycle"]
        apart = tuple(
            (Column(_APART.get(name, name)), lambda s, name=name: str(getattr(s, name)))
            for name in names
        )
        columns = (columns[0], *apart, *columns[1:])
    return Table(
        caption=f"{len(summaries):,} row{'' if len(summaries) == 1 else 's'}",
        columns=tuple(column for column, _ in columns),
        lines=tuple(
            Line(tuple(text(summary) for _, text in columns), _mark(summary)) for summary in shown
        ),
        note=note,
    )


def ranks_table(header: RunHeader, summaries: Sequence[RowSummary]) -> Table | None:
    """The ranks that receive, the slowest first: each against the median rank of every row."""
    compared = [int((~np.isnan(s.time_ns_by_rank)).sum()) > 1 for s in summaries]
    comparable = [*compress(summaries, compared)]
    names = [*compress(row_names(summaries), compared)]
    if not comparable:
        return None
    times_ns = np.stack([summary.time_ns_by_rank for summary in comparable])
    ratios = times_ns / np.nanmedian(times_ns, axis=1, keepdims=True)
    receiving = np.flatnonzero(~np.isnan(ratios).all(axis=0))
    times_slowest = Counter(summary.t_max_rank for summary in comparable)
    slowest = slowest_rank(comparable)
    # In the order by which `slowest_rank` chooses, so that its choice is the first.
    order = sorted(receiving.tolist(), key=lambda rank: (-times_slowest[rank], rank))
    lines = []
    for rank in order[:LINES_SHOWN]:
        worst = int(np.nanargmax(ratios[:, rank]))
        lines.append(
            Line(
                (
                    rank_name(header, rank),
                    str(times_slowest[rank]),
                    f"{np.nanmedian(ratios[:, rank]):.3f}",
                    f"{ratios[worst, rank]:.3f}",
                    names[worst],
                ),
                "slowest" if slowest is not None and rank == slowest.rank else "",
            )
        )
    return Table(
        caption=f"Time of a rank over the median rank, in {len(comparable):,} rows",
        columns=_columns(" rank;slowest|in rows;median|x;worst|x;at|row"),
        lines=tuple(lines),
        note=left_out(len(lines), len(order), "ranks that receive, the slowest first"),
    )


def ratios_table(summaries: Sequence[RowSummary]) -> Table | None:
    """Every row against every baseline that took turns with it; None if none did."""
    found = [(summary, ratio) for summary in summaries for ratio in summary.ratios.values()]
    if not found:
        return None
    shown = found[:LINES_SHOWN]
    return Table(
        caption="Ratio to each peer, above 1: faster than it",
        columns=_columns(
            "size; peer;ratio|x;95 % interval|x; plugin is;plugin;peer;pairs|of blocks;"
            "wrong bytes|of the peer"
        ),
        lines=tuple(_ratio_line(summary, ratio) for summary, ratio in shown),
        note=left_out(len(shown), len(found), "ratios"),
    )


def baselines_table(header: RunHeader) -> Table | None:
    """The baselines and their settings; None if there are none."""
    if not header.baselines:
        return None
    return Table(
        caption="Peers",
        columns=_columns(" peer; what it is;streams|a direction; congestion control;send buffer"),
        lines=tuple(
            Line(
                (
                    baseline.name,
                    baseline.description,
                    str(baseline.streams) if baseline.streams > 0 else "its own",
                    baseline.congestion_control or UNKNOWN,
                    format_size(baseline.send_buffer_bytes)
                    if baseline.send_buffer_bytes > 0
                    else UNKNOWN,
                )
            )
            for baseline in header.baselines
        ),
    )


def setup_table(setup: SetupTimes) -> Table | None:
    """The longest call of each phase on each rank, with the number of calls in all."""
    phases = setup.phases()
    if not phases:
        return None
    longest = {phase: longest_by_rank(setup, phase) for phase in phases}
    ranks = sorted(set(setup.table["rank"].tolist()))
    latest = {phase: max(times, key=lambda rank: times[rank]) for phase, times in longest.items()}

    def cell(phase: str, rank: int) -> str:
        time_ns = longest[phase].get(rank)
        if time_ns is None:
            return UNKNOWN
        return format_time_us(time_ns, 12) + (" *" if rank == latest[phase] else "")

    shown = ranks[:LINES_SHOWN]
    return Table(
        caption="Longest call of each rank (* the slowest rank of a phase)",
        columns=(
            Column("rank"),
            *(Column(phase, f"us, {setup.of(phase).size:,} calls") for phase in phases),
        ),
        lines=tuple(Line((str(rank), *(cell(phase, rank) for phase in phases))) for rank in shown),
        note=left_out(len(shown), len(ranks), "ranks"),
    )


def placement_table(header: RunHeader) -> Table:
    """The map rank -> host -> device -> NIC -> NUMA node -> CPUs."""
    shown = header.ranks[:LINES_SHOWN]
    return Table(
        caption="Where every rank was",
        columns=_columns("rank; host; device; NIC;NIC speed|Mb/s;NUMA node; CPUs;progress CPU"),
        lines=tuple(
            Line(
                (
                    str(info.rank),
                    info.host,
                    f"{info.device} {info.device_name}",
                    f"{info.nic or 'unknown'} {info.nic_pci}".strip(),
                    str(info.nic_speed_mbps) if info.nic_speed_mbps > 0 else UNKNOWN,
                    str(info.numa_node) if info.numa_node >= 0 else UNKNOWN,
                    info.cpus or UNKNOWN,
                    str(info.progress_cpu) if info.progress_cpu >= 0 else UNKNOWN,
                )
            )
            for info in shown
        ),
        note=left_out(len(shown), len(header.ranks), "ranks"),
    )


def settings_table(header: RunHeader, *, defaults: bool) -> Table:
    """The settings that were left at their default, or all others, each with its source."""
    chosen = [item for item in header.settings if (item[2] == "default") is defaults]
    return Table(
        caption="Settings left at their default" if defaults else "Settings and their sources",
        columns=_columns(" setting; value; source"),
        lines=tuple(Line(item) for item in chosen),
    )


def pairs_table(caption: str, pairs: Mapping[str, str]) -> Table:
    """Names and values."""
    return Table(
        caption=caption,
        columns=_columns(" name; value"),
        lines=tuple(Line(pair) for pair in pairs.items()),
    )


def findings_table(findings: Sequence[RunFinding]) -> Table:
    """The findings on the run; a matrix has a table of its own."""
    said = [finding for finding in findings if finding.text]
    shown = said[:LINES_SHOWN]
    return Table(
        caption="What the run says of itself",
        columns=_columns(" finding; "),
        lines=tuple(
            Line((title_of(each), words_of(each)), _MARKS.get(each.severity, "")) for each in shown
        ),
        note=left_out(len(shown), len(said), "findings"),
    )


def matrix_table(matrix: Matrix, world: int) -> Table:
    """The bandwidth from each rank to each other one, if pairs met one by one."""
    size, links = matrix.size_bytes, matrix.links

    def cell(link: Link) -> str:
        return f"{size / links[link].time_ns:.3f}" if link in links else "-"

    return Table(
        caption=f"{format_size(size)}, GB/s: a row sends, a column receives",
        columns=(Column("rank", is_text=True), *(Column(str(rank)) for rank in range(world))),
        lines=tuple(
            Line((str(sender), *(cell((sender, receiver)) for receiver in range(world))))
            for sender in range(world)
        ),
    )


_METRIC_UNITS = {"bus_bw": "GB/s", "time": "us"}


def _ratio_line(summary: RowSummary, ratio: Ratio) -> Line:
    unit = _METRIC_UNITS[ratio.metric]
    cells = (
        format_size(summary.size_bytes),
        ratio.baseline,
        _figure(ratio.ratio),
        f"{_figure(ratio.ci_low)} to {_figure(ratio.ci_high)}",
        _decided(ratio),
        f"{_figure(ratio.ours)} {unit}",
        f"{_figure(ratio.theirs)} {unit}",
        str(ratio.blocks),
        "not checked" if ratio.wrong is None else f"{ratio.wrong:,}",
    )
    return Line(cells, "bad" if ratio.wrong else "doubtful" if ratio.wrong is None else "")


def _decided(ratio: Ratio) -> str:
    """The interval's verdict; nothing if 1 lies in it."""
    if ratio.void:
        return f"void: {ratio.void}"
    if not math.isfinite(ratio.ci_low):
        return "unknown: too few pairs"
    if ratio.ci_low > 1:
        return "faster"
    return "slower" if ratio.ci_high < 1 else "undecided"


def _figure(value: float) -> str:
    return f"{value:.3g}" if math.isfinite(value) else UNKNOWN


def _wrong(summary: RowSummary) -> str:
    if summary.wrong_found > 0:
        return f"{summary.wrong_found:,} WRONG"
    if is_unchecked(summary):
        return "not checked"
    return UNKNOWN if summary.wrong is None else "0"


_Cell = tuple[Column, Callable[[RowSummary], str]]


def _cell(field: Field) -> _Cell:
    return Column(field.name, field.unit.name), field.page_text


def _cell_in_place(field: Field) -> _Cell:
    return Column(field.name, f"{field.unit.name}, in place"), in_place(field).page_text


def _wrong_in_place(summary: RowSummary) -> str:
    return UNKNOWN if summary.in_place is None else _wrong(summary.in_place)


_ROW_CELLS: tuple[_Cell, ...] = (
    (Column("row"), lambda s: str(s.index)),
    (Column(SIZE.name), lambda s: format_size(s.size_bytes)),
    *map(_cell, (TIME, ALGBW, BUSBW)),
    (Column("wrong bytes"), _wrong),
    *map(_cell, PAGE),
)
#: Of imported rows only.
_IN_PLACE_CELLS: tuple[_Cell, ...] = (
    *map(_cell_in_place, (TIME, BUSBW)),
    (Column(WRONG.key, "in place"), _wrong_in_place),
)
#: What stands out; the rest is as it should be, or news.
_MARKS = {severity: severity.value for severity in (Severity.BAD, Severity.DOUBTFUL)}


def _mark(summary: RowSummary) -> str:
    if summary.wrong_found > 0:
        return "bad"
    return "doubtful" if is_unchecked(summary) else ""


def _most_telling(summaries: Sequence[RowSummary], limit: int) -> list[RowSummary]:
    """At most `limit` rows, in their order: the worst, and for half of the places the first."""
    if len(summaries) <= limit:
        return list(summaries)
    by_size: dict[int, list[float]] = {}
    for summary in summaries:
        by_size.setdefault(summary.size_bytes, []).append(summary.t_max_ns)
    usual = {size: float(np.median(times)) for size, times in by_size.items()}

    def badness(position: int) -> tuple[bool, bool, float]:
        summary = summaries[position]
        slowness = summary.t_max_ns / usual[summary.size_bytes] if summary.t_max_ns > 0 else 0.0
        return summary.wrong_found > 0, is_unchecked(summary), slowness

    worst = sorted(range(len(summaries)), key=badness, reverse=True)
    troubled = sum(any(badness(position)[:2]) for position in worst)
    chosen = set(worst[: min(max(troubled, limit // 2), limit)])
    for position in range(len(summaries)):
        if len(chosen) == limit:
            break
        chosen.add(position)
    return [summaries[position] for position in sorted(chosen)]


def left_out(shown: int, total: int, things: str) -> str:
    """The sentence about what a table does not show; "" if it shows all."""
    if shown == total:
        return ""
    return f"{shown:,} of {total:,} {things}, are shown; all are in the result file."
