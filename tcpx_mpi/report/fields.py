"""The columns of a row, each said once: its name, its unit, and the figure that stands in it.

The table of a pipe and that of a terminal, the page, JSON, CSV and the table of columns in
docs/reference/measuring.md are made of these fields, in the orders at the end.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from tcpx_mpi.patterns import PROGRAMS, find, find_program
from tcpx_mpi.records import IN_PLACE, BaselineInfo, RunHeader, SideKey
from tcpx_mpi.report.field import BOOL, INT, MAYBE_INT, TEXT, UNKNOWN, VOID, Field, Figure, Unit
from tcpx_mpi.stats import RowSummary
from tcpx_mpi.stats.ratios import Ratio, strongest
from tcpx_mpi.units import ABSENT, figure, fit_number, format_gb_per_s, format_time_us, gbits_per_s


def _plain(figure: Any, _width: int, _unknown: str) -> str:
    return str(figure)


def _significant(value: float, _width: int, unknown: str) -> str:
    return figure(value, 4) if math.isfinite(value) else unknown


def _ratio_text(figure: float | str, _width: int, unknown: str) -> str:
    if isinstance(figure, str):
        return figure
    return f"{figure:.3f}" if math.isfinite(figure) else unknown


def _interval_text(found: Ratio, width: int, unknown: str) -> str:
    if found.void or math.isnan(found.ratio):
        return VOID if found.void else unknown
    figures = found.ratio, found.ci_low, found.ci_high
    for decimals in (2, 1, 0):
        text = "{:.{n}f} [{:.{n}f} {:.{n}f}]".format(*figures, n=decimals)
        if len(text) <= width:
            break
    return text


# fmt: off
US = Unit("us", format_time_us, 9, lambda ns: ns / 1e3)
_RATE = Unit("GB/s", format_gb_per_s, long="1e9 B/s")
_NUMBER = Unit("", fit_number)
PERCENT = Unit("%", lambda share, *how: fit_number(100 * share, *how), data=lambda x: x * 100)
_GBITS = Unit("Gb/s", lambda rate, *how: fit_number(gbits_per_s(rate), *how), long="1e9 bit/s")
_CPU_COST = Unit("s/GB", _significant, 12, long="s / 1e9 B")
_RATIO, _INTERVAL = Unit("", _ratio_text, 6), Unit("", _interval_text, 16)
BYTES, _ELEMENTS = Unit("B", _plain, 12, kind=INT), Unit("elements", _plain, 12, kind=INT)
COUNTS, _MAYBE_COUNTS = Unit("", _plain, 6, kind=INT), Unit("", _plain, 6, kind=MAYBE_INT)
_WORD, _TRUTH = Unit("", _plain, kind=TEXT), Unit("", _plain, kind=BOOL)
_RANK = Unit("", lambda rank, *_: f"@{rank}", 6, kind=MAYBE_INT)
_STAMP = Unit("UTC", lambda time, _width, unknown: time or unknown, 24, kind=TEXT)

# --- Those of nccl-tests ------------------------------------------------------------------------

SIZE = Field("size", BYTES, attrgetter("size_bytes"), meaning=(
    "bytes: of a message; for `mesh`, of a rank's whole send buffer; of nccl-tests' programs as "
    "there ([patterns.md](patterns.md))"))
COUNT = Field("count", _ELEMENTS, attrgetter("count"), meaning=(
    "elements; transfer patterns move bytes, so equal to `size`"))
TYPE = Field("type", _WORD, attrgetter("type_name"))
REDOP = Field("redop", _WORD, attrgetter("redop"), 6)
ROOT = Field("root", COUNTS, attrgetter("root"))
TIME = Field("time", US, attrgetter("time_ns"), 7, "time_us", unknown=ABSENT, meaning=(
    "as above; with `-m M`, of one of the M messages"))
ALGBW = Field("algbw", _RATE, attrgetter("algbw"), 6, "algbw", unknown=ABSENT, meaning=(
    "`size / time`"))
BUSBW = Field("busbw", _RATE, attrgetter("busbw"), 6, "busbw", unknown=ABSENT, meaning=(
    "`algbw` x factor: `mesh` (n-1)/n, other transfer patterns 1, programs as nccl-tests "
    "([patterns.md](patterns.md))"))
WRONG = Field("#wrong", _MAYBE_COUNTS, attrgetter("wrong"), 0, "wrong", unknown=ABSENT, meaning=(
    "wrong bytes, of nccl-tests' programs elements, summed over ranks; `N/A` where nothing was "
    "checked"))

# --- The slowest rank, and iterations -----------------------------------------------------------

_SLOWEST, _MAXIMUM = "slowest rank", "maximum of an iteration"
#: What a terminal has over what is of the slowest rank, iteration by iteration.
_NARROW_MAXIMUM = "maximum"
_OF_SLOWEST = "mean time of the slowest rank that receives, and which"
_PERCENTILES = (
    "nearest rank percentiles of the maximum over those ranks, iteration by iteration; `n/a` below "
    "59 (p95), 299 (p99), 2995 (p99.9) iterations")
_BOUNDS = (
    "the interval that holds the true median in 95 % of cases ([how](#statistics-of-a-row)); `n/a` "
    "where the iterations are worth fewer than 6")
_SINGLE = "`-I`: minimum, maximum, mean, standard deviation of the same, and that over the mean"


def _spread(name: str, part: str, meaning: str = "", key: str = "", unit: Unit = US) -> Field:
    """The spread of the maximum over ranks, iteration by iteration."""
    group = "" if meaning == _SINGLE else _MAXIMUM
    return Field(name, unit, attrgetter(f"per_iteration.{part}"), 0, key or f"{name}_us", group,
                 meaning=meaning)


T_MAX = Field("t_max", US, attrgetter("t_max_ns"), 0, "t_max_us", _SLOWEST, meaning=_OF_SLOWEST)
T_MAX_RANK = Field("@rank", _RANK, lambda s: s.t_max_rank if s.t_max_rank >= 0 else None, 0,
                   "t_max_rank", _SLOWEST, meaning=_OF_SLOWEST)
P50, P95, P99 = (_spread(name, name, _PERCENTILES) for name in ("p50", "p95", "p99"))
P50_LOW, P50_HIGH = (_spread(name, name, _BOUNDS) for name in ("p50_low", "p50_high"))
P99_9 = _spread("p99_9", "p99_9")
MINIMUM = _spread("i_min", "min", _SINGLE, "min_us")
MAXIMUM = _spread("i_max", "max", _SINGLE, "max_us")
MEAN = _spread("i_avg", "mean", _SINGLE, "avg_us")
STDEV = _spread("i_stdev", "stdev", _SINGLE, "stdev_us")
CV = _spread("i_cv%", "cv", _SINGLE, "cv_pct", PERCENT)

# --- Network, CPUs, and what an option asks for -------------------------------------------------

NET_BW = Field("net_bw", _RATE, attrgetter("net_bw"), 0, "net_bw", meaning=(
    "bytes that the sockets of a receiving rank took in, by `TCP_INFO`, over the time of its "
    "batches; `n/a` where they cannot be read, with `--unpack none`, and where a part of an "
    "iteration is timed (`loaded_pingpong`)"))
CPU = Field("cpu_s_per_GB", _CPU_COST, attrgetter("cpu_s_per_gb"), 0, "cpu_s_per_GB", meaning=(
    "user + system time of all ranks' processes within the batches, over the payload received"))
ALGO = Field("algo", _WORD, attrgetter("algo"), 9, meaning="the algorithm of nccl-tests' programs")
MESSAGES = Field("Mmsg/s", _NUMBER, attrgetter("mmsg_per_s"), 0, "mmsg_per_s", meaning=(
    "with `-m`: millions of messages that a rank receives a second"))
ALGBW_GBITS = Field("algbw", _GBITS, ALGBW.of, meaning="the same with `--report_gbits`")
BUSBW_GBITS = Field("busbw", _GBITS, BUSBW.of, meaning="the same with `--report_gbits`")


def _cpu_ns_a_copy(summary: RowSummary) -> float:
    copies = summary.iterations * summary.agg * summary.time_ns_by_rank.size
    return summary.cpu_ns / copies if copies > 0 else math.nan


CPU_TIME = Field("cputime", US, _cpu_ns_a_copy, meaning=(
    "`-C`: CPU time of a rank for one copy of the pattern, averaged over ranks"))
FLUSH = Field("flush", US, attrgetter("flush_ns"), 0, "flush_us", meaning=(
    "of a run that flushes receives: how long of an iteration passed behind the plugin's last done "
    "of a receive until all were flushed, the mean over the ranks that receive"))


def _one_way(part: str) -> Figure:
    return lambda s: None if s.one_way is None else getattr(s.one_way, part)


_BY_DIRECTION = (
    "with `--one-way`, of the slowest pair: the median from the start of an iteration on its "
    "sender until all was received, and from then until the answer was; `n/a` without an answer. "
    "Each is off by at most `+-`, the bound of [both clocks](clock.md)")
ONE_WAY = tuple(
    Field(name, US, _one_way(f"{part}_ns"), 0, f"one_way_{part}_us", "one way",
          meaning=_BY_DIRECTION, turn=1)
    for name, part in (("there", "there"), ("back", "back"), ("+-", "bound")))


def _of_open_loop(figure: Figure) -> Figure:
    return lambda s: None if s.open_loop is None else figure(s.open_loop)


_OFFERED = (
    "with `--rate`: iterations a second as asked for, size x that, and iterations a second as they "
    "went")
_BY_CLOCK = (
    "with `--rate`: nearest rank percentiles of the time from the intended start of an iteration "
    "until the last rank had all, off by at most `o_+-`; `n/a` where the ranks do not keep up, and "
    "below 299 (p99), 2995 (p99.9) iterations")
_INTENDED = "from the intended start"
_PER_S = Unit("1/s", _significant)
RATE = Field("rate", _PER_S, attrgetter("rate_per_s"), 0, "rate_per_s", _INTENDED,
             meaning=_OFFERED, turn=1)
OPEN_LOOP = (
    RATE,
    Field("offered", Unit("MB/s", _significant, long="1e6 B/s"),
          lambda s: s.size_bytes * s.agg * s.rate_per_s / 1e6, 0, "offered_mb_per_s", _INTENDED,
          meaning=_OFFERED),
    Field("achieved", _PER_S, _of_open_loop(attrgetter("achieved")), 0, "achieved_per_s",
          _INTENDED, meaning=_OFFERED),
    *(Field(f"o_{part}", US, _of_open_loop(attrgetter(f"latency.{part}")), 0, f"open_{part}_us",
            _INTENDED, meaning=_BY_CLOCK, turn=turn)
      for part, turn in (("p50", 1), ("p99", 1), ("p99_9", 2))),
    Field("o_+-", US, _of_open_loop(attrgetter("bound_ns")), 0, "open_bound_us", _INTENDED,
          meaning=_BY_CLOCK))
FINISHED = Field("timestamp", _STAMP, attrgetter("finished_time"), 0, "finished_time", meaning=(
    "`-S`: when the row was complete"))

# --- For programs alone -------------------------------------------------------------------------

CHECKED = Field("", _TRUTH, attrgetter("checked"), key="checked")
PAYLOAD_SENT = Field("", COUNTS, attrgetter("payload_sent"), key="payload_bytes_sent")
PAYLOAD_RECEIVED = Field("", COUNTS, attrgetter("payload_received"), key="payload_bytes_received")
PAYLOAD_CHECKED = Field(
    "", COUNTS, attrgetter("payload_received_checked"), key="payload_bytes_checked")
NET_SENT = Field("", _MAYBE_COUNTS, attrgetter("net_sent"), key="net_bytes_sent")
NET_RECEIVED = Field("", _MAYBE_COUNTS, attrgetter("net_received"), key="net_bytes_received")
RETRANSMITS = Field("", _MAYBE_COUNTS, attrgetter("tcp_retransmits"), key="tcp_retransmits")
UNTIMED = Field("", _NUMBER, attrgetter("prepare_and_check_s"), key="prepare_and_check_s")
LATE_STARTS = Field("", COUNTS, attrgetter("late_starts"), key="late_starts")
# fmt: on

# --- Under load, and beside baselines -------------------------------------------------------------

_WHILE_LOADED = "while loaded"
_MEANING_LOADED = (
    "`while loaded`, of `loaded_pingpong`: beside a mesh, as the row has them alone; `ratio low "
    "high`: the median over pairs of neighbouring blocks of time loaded over time alone, and its "
    "95 % interval; `mesh_bw`: of the mesh meanwhile ([patterns.md](patterns.md))"
)


def _under_load(field: Field) -> Field:
    def of(summary: RowSummary) -> Any:
        return None if summary.loaded is None else field.of(summary.loaded)

    found = dataclasses.replace(field, of=of, group=_WHILE_LOADED, meaning=_MEANING_LOADED)
    return found if field is WRONG else dataclasses.replace(found, unknown=UNKNOWN, width=0)


def _ratio_fields(
    label: str,
    find: Callable[[RowSummary], Ratio | None],
    meaning: str = "beside a peer, see below",
) -> list[Field]:
    def part(name: str) -> Figure:
        def of(summary: RowSummary) -> Any:
            found = find(summary)
            return None if found is None else VOID if found.void else getattr(found, name)

        return of

    titles = (("ratio", "ratio"), ("low", "ci_low"), ("high", "ci_high"))
    return [
        Field(title, _RATIO, part(name), group=label, meaning=meaning) for title, name in titles
    ]


MESH_BW = Field(
    "mesh_bw", _RATE, lambda s: math.nan if s.load is None else s.load.mesh_gbps, 0, "mesh_bw",
    _WHILE_LOADED, meaning=_MEANING_LOADED,
)  # fmt: skip
_LOADED_OVER_ALONE, *_ITS_INTERVAL = _ratio_fields(
    _WHILE_LOADED, lambda s: None if s.load is None else s.load.ratio, _MEANING_LOADED
)
UNDER_LOAD = (
    *map(_under_load, (TIME, P50, P95, P99)),
    dataclasses.replace(_LOADED_OVER_ALONE, turn=1),
    *_ITS_INTERVAL,
    MESH_BW,
    _under_load(WRONG),
)


def _names_by_kind(header: RunHeader) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for baseline in header.baselines:
        names.setdefault(baseline.kind, []).append(baseline.name)
    return names


def _baseline_fields(
    kind: str, names: Sequence[str], baselines: Sequence[BaselineInfo]
) -> list[Field]:
    """The baseline as asked for and, where it has variants, the best of them."""
    streams = {baseline.name: baseline.streams for baseline in baselines}
    label = f"beside {kind}"
    fields = _ratio_fields(label, lambda s: s.ratios.get(SideKey(kind)))
    if any(baseline.own_process for baseline in baselines if baseline.name == kind):
        # All of what it used is its own; a baseline in our process shares it with ours.
        def cpu_of(summary: RowSummary) -> float:
            found = summary.ratios.get(SideKey(kind))
            return math.nan if found is None else found.cpu_s_per_gb

        fields.append(dataclasses.replace(CPU, of=cpu_of, group=label))
    if len(names) > 1:
        label = f"{kind} at its best"
        fields += _ratio_fields(label, lambda s: strongest(s.ratios, names))

        def best_variant(summary: RowSummary) -> Any:
            best = strongest(summary.ratios, names)
            if best is None:
                return None
            return streams[best.baseline] if by_streams else best.baseline

        # Variants differ in their streams, where they have a number of those, else in their names.
        by_streams = all(streams[name] for name in names)
        title = "streams" if by_streams else "variant"
        width = len(title) if by_streams else max(map(len, names))
        fields.append(Field(title, _WORD, best_variant, width, group=label))
    return fields


def _in_place_baselines(kind: str, names: Sequence[str], header: RunHeader) -> list[Field]:
    """The ratios of what ran in place on both sides, of a collective that NCCL has itself."""
    of_nccl_tests = header.pattern in PROGRAMS
    if kind != "nccl" or not (of_nccl_tests and find_program(header.pattern).nccl_call):
        return []
    fields = _ratio_fields(f"{kind} in place", lambda s: s.ratios.get(SideKey(kind, IN_PLACE)))
    if len(names) > 1:
        label = f"{kind} in place at its best"
        fields += _ratio_fields(label, lambda s: strongest(s.ratios, names, IN_PLACE))
    return fields


# --- Who shows what -------------------------------------------------------------------------------


def in_place(field: Field) -> Field:
    """The same figure of what ran in place: nccl-tests' programs have that, and not all of them."""

    def of(summary: RowSummary) -> Any:
        return None if summary.in_place is None else field.of(summary.in_place)

    return dataclasses.replace(field, of=of)


SIDE = (TIME, ALGBW, BUSBW, WRONG)
SIDE_IN_PLACE = tuple(map(in_place, SIDE))
IDENTITY = (SIZE, COUNT, TYPE, REDOP, ROOT)
#: nccl-tests' 13.
STANDARD = (*IDENTITY, *SIDE, *SIDE_IN_PLACE)


def pipe_fields(header: RunHeader) -> list[Field]:
    """All that stand to the right of nccl-tests' in a pipe and in a file."""
    if header.averages_only:
        return []
    beside: list[Field] = []
    for kind, names in _names_by_kind(header).items():
        beside += _baseline_fields(kind, names, header.baselines) + _in_place_baselines(
            kind, names, header
        )
    return [
        *([ALGO] if header.pattern in PROGRAMS else []),
        *(T_MAX, T_MAX_RANK, P50, P50_LOW, P50_HIGH, P95, P99, NET_BW, CPU),
        *(UNDER_LOAD if _is_loaded(header) else ()),
        *beside,
        *_asked_for(header),
    ]


def _is_loaded(header: RunHeader) -> bool:
    pattern = find(header.pattern)
    return pattern is not None and pattern.loaded is not None


def _asked_for(header: RunHeader) -> list[Field]:
    plan = header.plan
    groups = (
        (plan.agg_iters > 1, (MESSAGES,)),
        (header.facts.get("flush_chosen", "").startswith("always"), (FLUSH,)),
        (plan.report_gbits, (ALGBW_GBITS, BUSBW_GBITS)),
        (plan.per_iter_timing, (MINIMUM, MAXIMUM, MEAN, STDEV, CV)),
        (plan.report_cputime, (CPU_TIME,)),
        (plan.one_way, ONE_WAY),
        (header.is_open_loop, OPEN_LOOP),
        (plan.report_timestamps, (FINISHED,)),
    )
    return [field for asked, fields in groups if asked for field in fields]


#: The last turn of those that a narrow terminal keeps before nccl-tests' own: the slowest rank, and
#: the ratio to each kind of peer.
POINT = 1


def terminal_fields(header: RunHeader) -> list[Field]:
    """Those that a terminal has room for beside nccl-tests', if it is wide enough, in order."""
    if header.averages_only:
        return []
    by_kind = _names_by_kind(header)
    best = {kind: names for kind, names in by_kind.items() if len(names) > 1}
    spread = [
        dataclasses.replace(field, group=_NARROW_MAXIMUM)
        for field in (P50_LOW, P50_HIGH, P95, P99)
    ]  # fmt: skip
    return [
        _slowest(header.world),
        dataclasses.replace(P50, width=8, group=_NARROW_MAXIMUM, turn=2),
        *(_ratio_in_one(f"beside {kind}", [kind], 1) for kind in by_kind),
        *(_ratio_in_one(f"{kind} best", names, 3) for kind, names in best.items()),
        *([ALGO] if header.pattern in PROGRAMS else []),
        *(UNDER_LOAD if _is_loaded(header) else ()),
        *(f for kind, names in by_kind.items() for f in _in_place_baselines(kind, names, header)),
        *_asked_for(header),
        *spread,
        NET_BW,
        CPU,
    ]


def _slowest(world: int) -> Field:
    """The time of the slowest rank and its number, in one."""

    def of(summary: RowSummary) -> str | None:
        if summary.t_max_rank < 0:
            return None
        return f"{format_time_us(summary.t_max_ns, 7, UNKNOWN)} @{summary.t_max_rank}"

    width = 9 + len(str(world - 1))
    return Field("slowest", _WORD, of, width, group="slowest", under="(us) rank", turn=0)


def _ratio_in_one(title: str, names: Sequence[str], turn: int) -> Field:
    """A ratio with its interval, in one; of several baselines that to the strongest."""

    def of(summary: RowSummary) -> Ratio | None:
        if len(names) == 1:
            return summary.ratios.get(SideKey(names[0]))
        return strongest(summary.ratios, names)

    return Field(title, _INTERVAL, of, group=title, under="ratio [95 %]", turn=turn)


#: Of the page, but for how it says sizes and wrong bytes.
PAGE = (T_MAX, T_MAX_RANK, P50, P95, P99)
#: Of CSV, beside the facts of a row.
FIGURES = (
    TIME, ALGBW, BUSBW, NET_BW, WRONG, CHECKED, T_MAX, T_MAX_RANK, MINIMUM, MAXIMUM, MEAN, STDEV,
    CV, P50, P50_LOW, P50_HIGH, P95, P99, P99_9, MESSAGES, CPU, PAYLOAD_SENT, PAYLOAD_RECEIVED,
    PAYLOAD_CHECKED, NET_SENT, NET_RECEIVED, RETRANSMITS, UNTIMED, LATE_STARTS, FINISHED,
    *ONE_WAY, *OPEN_LOOP[1:],  # the rate is one of the facts
)  # fmt: skip
#: Of JSON, by the keys of nccl-tests where it has them.
JSON_SIDE = {"time": TIME, "alg_bw": ALGBW, "bus_bw": BUSBW, "nwrong": WRONG}
JSON_SPREAD = (MINIMUM, MAXIMUM, MEAN, P50, P50_LOW, P50_HIGH, P95, P99, P99_9, STDEV, CV)
JSON_TRAFFIC = (
    PAYLOAD_SENT, PAYLOAD_RECEIVED, NET_SENT, NET_RECEIVED, RETRANSMITS, CPU, UNTIMED, LATE_STARTS,
    FINISHED, NET_BW,
)  # fmt: skip
JSON_BY_CLOCK = (*ONE_WAY, *OPEN_LOOP)
#: Of the reference: what any run may show in a pipe.
EXPLAINED = (
    *IDENTITY, *SIDE, T_MAX, T_MAX_RANK, P50, P95, P99, P50_LOW, P50_HIGH, NET_BW, CPU,
    *_ratio_fields("", lambda s: None), *UNDER_LOAD, ALGO,
    MESSAGES, FLUSH, ALGBW_GBITS, BUSBW_GBITS, MINIMUM, MAXIMUM, MEAN, STDEV, CV, CPU_TIME,
    *ONE_WAY, *OPEN_LOOP, FINISHED,
)  # fmt: skip
