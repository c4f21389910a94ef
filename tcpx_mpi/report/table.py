"""The table in the format of nccl-tests: 13 standard columns first, ours to their right."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

from tcpx_mpi.patterns import PROGRAMS, find, find_program
from tcpx_mpi.records import (
    IN_PLACE,
    LOADED,
    BaselineInfo,
    Row,
    RunHeader,
    in_place_of,
    is_in_place,
)
from tcpx_mpi.report.preamble import ABSENT
from tcpx_mpi.stats import RowSummary, summarise
from tcpx_mpi.stats.bursts import without_gaps
from tcpx_mpi.stats.load import load_figures
from tcpx_mpi.stats.ratios import Ratio, ratios, strongest
from tcpx_mpi.units import (
    fit_number,
    format_gb_per_s,
    format_time_us,
    gbits_per_s,
)

#: Where we have no figure; where nccl-tests has none it is ABSENT, which alone its scripts know.
UNKNOWN = "n/a"
#: A ratio to what was weakened; the footer says why.
VOID = "void"


@dataclass(frozen=True)
class Column:
    """A column: its two lines of title, its width, and a row's text in it."""

    title: str
    unit: str
    width: int
    text: Callable[[RowSummary], str]
    group: str = ""


def summarise_row(header: RunHeader, row: Row) -> RowSummary:
    """The numbers of a row as this run's options ask for them."""
    plan = header.plan
    summary = summarise(
        row, plan.average, header.busbw_factor, header.time_divisor, plan.per_iter_skip,
        header.algbw_factor,
    )  # fmt: skip
    summary = without_gaps(header, summary)
    if header.unpack == "none":
        # An ablation: time without a part of the work is no bandwidth of anything.
        rates = dict.fromkeys(("algbw", "busbw", "mmsg_per_s", "net_bw"), math.nan)
        return dataclasses.replace(summary, **rates)  # type: ignore[arg-type]  # by name
    if (load := load_figures(row, plan.average)) is not None:
        # What is timed is a part of an iteration, and what crosses the network all of it.
        summary = dataclasses.replace(summary, load=load, net_bw=math.nan)
    peers = {name: side for name, side in row.against.items() if name not in (IN_PLACE, LOADED)}
    against: dict[str, Ratio] = {}
    for ours, in_place in ((row, False), (row.against.get(IN_PLACE), True)):
        if ours is None:
            continue
        beside = {name: side for name, side in peers.items() if is_in_place(name) == in_place}
        against |= ratios(
            ours, beside, plan.average, header.size_factor,
            header.time_divisor,
            {baseline.name: baseline.floor_gbps for baseline in header.baselines},
        )  # fmt: skip
    return dataclasses.replace(summary, against=against)


def title_lines(header: RunHeader) -> list[str]:
    """The three heading lines over the rows, all comments."""
    standard, ours = standard_columns(), our_columns(header)
    columns = [*standard, *ours]
    groups = f"{'#':<63}out-of-place{'':<23}in-place".ljust(_width(standard))
    for label, members in groupby(ours, key=lambda column: column.group):
        groups += "  " + label.center(_width(list(members)))
    # The trailing blanks are nccl-tests' own.
    return [
        "#",
        groups.rstrip() + " ",
        "#" + _joined([column.title for column in columns], columns)[1:] + " ",
        "#" + _joined([column.unit for column in columns], columns)[1:] + " ",
    ]


def row_line(header: RunHeader, summary: RowSummary) -> str:
    """One row of the table; splitting it at blanks gives the 13 fields of nccl-tests first."""
    columns = [*standard_columns(), *our_columns(header)]
    return _joined([column.text(summary) for column in columns], columns)


def _joined(texts: Sequence[str], columns: Sequence[Column]) -> str:
    pairs = zip(texts, columns, strict=True)
    return "  ".join(text.rjust(column.width) for text, column in pairs)


def _width(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + 2 * (len(columns) - 1)


def standard_columns() -> list[Column]:
    """nccl-tests' 13."""

    def in_place(text: Callable[[RowSummary], str]) -> Callable[[RowSummary], str]:
        # Only nccl-tests' programs have it, and not all of them.
        return lambda s: ABSENT if s.in_place is None else text(s.in_place)

    sides = _side_columns()
    return [
        Column("size", "(B)", 12, lambda s: str(s.size_bytes)),
        Column("count", "(elements)", 12, lambda s: str(s.count)),
        Column("type", "", 8, lambda s: s.type_name),
        Column("redop", "", 6, lambda s: s.redop),
        Column("root", "", 6, lambda s: str(s.root)),
        *sides,
        *(dataclasses.replace(column, text=in_place(column.text)) for column in sides),
    ]


def _side_columns() -> list[Column]:
    return [
        Column("time", "(us)", 7, lambda s: format_time_us(s.time_ns, 7, ABSENT)),
        Column("algbw", "(GB/s)", 6, lambda s: format_gb_per_s(s.algbw, 6, ABSENT)),
        Column("busbw", "(GB/s)", 6, lambda s: format_gb_per_s(s.busbw, 6, ABSENT)),
        Column("#wrong", "", 6, lambda s: ABSENT if s.wrong is None else str(s.wrong)),
    ]


def our_columns(header: RunHeader) -> list[Column]:
    """All that stand to the right of nccl-tests'."""
    if header.averages_only:
        return []
    plan = header.plan
    columns = [Column("algo", "", 9, lambda s: s.algo)] if header.pattern in PROGRAMS else []
    columns += [
        _time_column("t_max", lambda s: s.t_max_ns, "slowest rank"),
        Column(
            "@rank",
            "",
            6,
            lambda s: f"@{s.t_max_rank}" if s.t_max_rank >= 0 else UNKNOWN,
            "slowest rank",
        ),
        _time_column("p50", lambda s: s.per_iteration.p50, "maximum of an iteration"),
        _time_column("p50_low", lambda s: s.per_iteration.p50_low, "maximum of an iteration"),
        _time_column("p50_high", lambda s: s.per_iteration.p50_high, "maximum of an iteration"),
        _time_column("p95", lambda s: s.per_iteration.p95, "maximum of an iteration"),
        _time_column("p99", lambda s: s.per_iteration.p99, "maximum of an iteration"),
        _number_column("net_bw", "(GB/s)", lambda s: s.net_bw),
        Column("cpu_s_per_GB", "(s/GB)", 12, lambda s: _significant(s.cpu_s_per_gb)),
    ]
    pattern = find(header.pattern)
    if pattern is not None and pattern.loaded is not None:
        columns += _load_columns()
    for kind in dict.fromkeys(baseline.kind for baseline in header.baselines):
        columns += _baseline_columns(kind, header.baselines)
        of_nccl_tests = header.pattern in PROGRAMS
        if kind == "nccl" and of_nccl_tests and find_program(header.pattern).nccl_call:
            names = [baseline.name for baseline in header.baselines if baseline.kind == kind]
            columns += _in_place_columns(kind, names)
    if plan.agg_iters > 1:
        columns.append(_number_column("Mmsg/s", "", lambda s: s.mmsg_per_s))
    if plan.report_gbits:
        columns += [
            _number_column("algbw", "(Gb/s)", lambda s: gbits_per_s(s.algbw)),
            _number_column("busbw", "(Gb/s)", lambda s: gbits_per_s(s.busbw)),
        ]
    if plan.per_iter_timing:
        columns += [
            _time_column("i_min", lambda s: s.per_iteration.min),
            _time_column("i_max", lambda s: s.per_iteration.max),
            _time_column("i_avg", lambda s: s.per_iteration.mean),
            _time_column("i_stdev", lambda s: s.per_iteration.stdev),
            _number_column("i_cv%", "(%)", lambda s: 100 * s.per_iteration.cv),
        ]
    if plan.report_cputime:
        columns += [
            _time_column("cputime", lambda s: _cpu_ns_a_copy(s)),
        ]
    if plan.report_timestamps:
        columns.append(Column("timestamp", "(UTC)", 24, lambda s: s.finished_time or UNKNOWN))
    return columns


def _load_columns() -> list[Column]:
    """The latency under load, how many times that alone it is, and what the mesh had meanwhile."""
    label = "while loaded"

    def of_loaded(number: Callable[[RowSummary], float]) -> Callable[[RowSummary], float]:
        return lambda s: math.nan if s.loaded is None else number(s.loaded)

    def wrong(summary: RowSummary) -> str:
        loaded = summary.loaded
        return ABSENT if loaded is None or loaded.wrong is None else str(loaded.wrong)

    return [
        _time_column("time", of_loaded(lambda s: s.time_ns), label),
        _time_column("p50", of_loaded(lambda s: s.per_iteration.p50), label),
        _time_column("p95", of_loaded(lambda s: s.per_iteration.p95), label),
        _time_column("p99", of_loaded(lambda s: s.per_iteration.p99), label),
        *_ratio_columns(label, lambda s: None if s.load is None else s.load.ratio),
        dataclasses.replace(
            _number_column(
                "mesh_bw", "(GB/s)", lambda s: math.nan if s.load is None else s.load.mesh_gbps
            ),
            group=label,
        ),
        Column("#wrong", "", 6, wrong, label),
    ]


def _baseline_columns(kind: str, baselines: Sequence[BaselineInfo]) -> list[Column]:
    """Beside the baseline as asked for and, where it has variants, beside the best of them."""
    names = [baseline.name for baseline in baselines if baseline.kind == kind]
    streams = {baseline.name: baseline.streams for baseline in baselines}

    def cpu_of(summary: RowSummary) -> str:
        baseline = summary.against.get(kind)
        return _significant(math.nan if baseline is None else baseline.cpu_s_per_gb)

    columns = _ratio_columns(f"beside {kind}", lambda s: s.against.get(kind))
    if any(baseline.own_process for baseline in baselines if baseline.name == kind):
        # All of what it used is its own; a baseline in our process shares it with ours.
        columns.append(Column("cpu_s_per_GB", "(s/GB)", 12, cpu_of, f"beside {kind}"))
    if len(names) > 1:
        label = f"{kind} at its best"
        columns += _ratio_columns(label, lambda s: strongest(s.against, names))

        def best_variant(summary: RowSummary) -> str:
            best = strongest(summary.against, names)
            if best is None:
                return UNKNOWN
            return str(streams[best.baseline]) if by_streams else best.baseline

        # Variants differ in their streams, where they have a number of those, else in their names.
        by_streams = all(streams[name] for name in names)
        title = "streams" if by_streams else "variant"
        width = len(title) if by_streams else max(map(len, names))
        columns.append(Column(title, "", width, best_variant, label))
    return columns


def _in_place_columns(kind: str, names: Sequence[str]) -> list[Column]:
    """The ratios of what ran in place on both sides."""
    in_place = [in_place_of(name) for name in names]
    columns = _ratio_columns(f"{kind} in place", lambda s: s.against.get(in_place_of(kind)))
    if len(names) > 1:
        label = f"{kind} in place at its best"
        columns += _ratio_columns(label, lambda s: strongest(s.against, in_place))
    return columns


def _ratio_columns(label: str, find: Callable[[RowSummary], Ratio | None]) -> list[Column]:
    def text(part: str) -> Callable[[RowSummary], str]:
        def of(summary: RowSummary) -> str:
            found = find(summary)
            if found is not None and found.void:
                return VOID
            value = math.nan if found is None else float(getattr(found, part))
            return f"{value:.3f}" if math.isfinite(value) else UNKNOWN

        return of

    return [
        Column("ratio", "", 6, text("ratio"), label),
        Column("low", "", 6, text("ci_low"), label),
        Column("high", "", 6, text("ci_high"), label),
    ]


def _time_column(title: str, time_ns: Callable[[RowSummary], float], group: str = "") -> Column:
    return Column(title, "(us)", 9, lambda s: format_time_us(time_ns(s), 9, UNKNOWN), group)


def _number_column(title: str, unit: str, number: Callable[[RowSummary], float]) -> Column:
    return Column(title, unit, 8, lambda s: fit_number(number(s), 8, UNKNOWN))


def _cpu_ns_a_copy(summary: RowSummary) -> float:
    """CPU time of one rank for one copy of the pattern, averaged over ranks."""
    copies = summary.iterations * summary.agg * summary.time_ns_by_rank.size
    return summary.cpu_ns / copies if copies > 0 else math.nan


def _significant(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else UNKNOWN
