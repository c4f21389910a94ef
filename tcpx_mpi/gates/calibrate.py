"""Limits from several launches, made for a given rate of false alarms.

The unit is the launch: iterations of one launch are no independent evidence of the next. A limit
is the one-sided prediction limit for the logarithm of one further launch's cost,

    exp(mean + t(n - 1, 1 - a / m) * s * sqrt(1 + 1 / n))

with n launches, their mean and standard deviation s of log cost, m limits and a false alarms a
gate (Bonferroni over the limits). A cost is a figure that is bounded from above, or 1 over one that
is bounded from below. It assumes log-normal launches; two checks that assume nothing are stated
beside it: how many of the n launches would have failed a gate made of the others, and the bound
m / (n + 1) for a limit at the worst launch seen (exchangeability alone).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from tcpx_mpi.errors import UsageError
from tcpx_mpi.gates.figures import FIGURES, figures_of, flaws
from tcpx_mpi.gates.gate import BOUNDS, Gate, Limit
from tcpx_mpi.records import Row, Run
from tcpx_mpi.stats.student import student_quantile
from tcpx_mpi.units import counted, format_size

#: Fewer launches say next to nothing about the next one: t(3, 0.999) is above 10.
LEAST_LAUNCHES = 5
#: A limit so many times worse than the median launch is worth a word.
_LOOSE = 2.0
#: Of ranks of one node it would say how the kernel has laid them on its CPUs.
_BETWEEN_NODES = "node_spread_max"

Key = tuple[str, str, int, str]  # pattern, memory kind, size, key of BOUNDS


@dataclass(frozen=True)
class Calibration:
    """A gate, and how it was found in words, for the top of its file."""

    gate: Gate
    comments: tuple[str, ...]


@dataclass(frozen=True)
class _Group:
    """The launches of one limit."""

    key: Key
    #: The run_id of each launch.
    launches: tuple[str, ...]
    #: Of each launch the worst row, over its cycles, for a gate judges each row.
    costs: tuple[float, ...]

    @property
    def place(self) -> str:
        pattern, memory, size, bound = self.key
        return f"{pattern}, {memory}, {format_size(size)}, {BOUNDS[bound].name}"


def calibrate(runs: Sequence[Run], false_alarms: float) -> Calibration:
    """A gate for the runs' plugin, ranks and settings. Raises UsageError if they do not agree,
    are too few, or have anything that a gate would refuse. Each launch of a file counts."""
    runs = [launch for run in runs for launch in run.all_launches]
    if not 0 < false_alarms < 0.5:
        raise UsageError(f"--false-alarms ({false_alarms:g}) must be above 0 and below 0.5")
    if not runs:
        raise UsageError("--calibrate needs the files of several launches")
    gate = _metadata(runs)
    groups = _groups(runs)
    per_limit = false_alarms / len(groups)
    if 1 - per_limit == 1:
        raise UsageError(f"--false-alarms ({false_alarms:g}) is too small to be told from 0")
    fewest = min(len(group.costs) for group in groups)
    failed = _held_out(groups, per_limit)
    whole = len({launch for group in groups for launch in group.launches})
    starts = [run.header.start_time for run in runs]
    provenance = (
        f"calibrated from {fewest} or more launches a limit, {min(starts)} to "
        f"{max(starts)}, on {_hosts(runs)}; made for {false_alarms:g} false alarms "
        f"a run over {counted(len(groups), 'limit')}"
    )
    limits = tuple(_limit(group, per_limit) for group in groups)
    comments = (
        f"Limits of tcpx-mpi for {gate.plugin}, {gate.ranks} ranks.",
        f"False alarms: made for {false_alarms:g} a run, if launches are log-normal.",
        f"Without that assumption: {failed} of {whole} launches fail a gate made of the others;",
        f"a limit at the worst launch is broken in {len(groups)} / {fewest + 1} of runs at most.",
        *_loose(groups, per_limit),
    )
    return Calibration(replace(gate, limits=limits, provenance=provenance), comments)


def _metadata(runs: Sequence[Run]) -> Gate:
    first: Gate | None = None
    for run in runs:
        header = run.header
        if run.missing:
            raise UsageError(f"{run.path} is partial: {run.missing[0]}; calibrate from whole files")
        if header.averages_only or header.unpack == "none":
            raise UsageError(f"{run.path} has no bandwidth of its own samples; leave it out")
        gate = Gate(
            limits=(),
            plugin=header.plugin_name,
            ranks=header.world,
            provenance="",
            plugin_sha256=header.plugin_sha256,
            nodes=len({info.node for info in header.ranks}),
            mode=header.mode,
            channels=header.plan.channels,
            chunk_bytes=header.plan.chunk_bytes,
        )
        first = first or gate
        for name in (
            "plugin",
            "plugin_sha256",
            "ranks",
            "nodes",
            "mode",
            "channels",
            "chunk_bytes",
        ):
            ours, theirs = getattr(first, name), getattr(gate, name)
            if ours != theirs:
                raise UsageError(
                    f"{run.path}: {name} is {theirs}, in {runs[0].path} it is {ours}; "
                    "calibrate from launches that are alike"
                )
    assert first is not None
    return first


def _groups(runs: Sequence[Run]) -> list[_Group]:
    costs: dict[Key, dict[str, float]] = {}
    for run in runs:
        for row in run.rows:
            if found := flaws(row):
                raise UsageError(
                    f"{run.path}: {format_size(row.size_bytes)}: {found[0]}; "
                    "calibrate from launches that would pass"
                )
            for bound, cost in _costs(run, row):
                key = (run.header.pattern, run.header.memory, row.size_bytes, bound)
                launches = costs.setdefault(key, {})
                before = launches.get(run.header.run_id, 0.0)
                # NaN, which is unknown, stays.
                worse = math.isnan(before) or before > cost
                launches[run.header.run_id] = before if worse else cost
    groups = [_Group(key, tuple(found), tuple(found.values())) for key, found in costs.items()]
    order = list(BOUNDS)
    return sorted(
        filter(_is_known, groups), key=lambda group: (group.key[:3], order.index(group.key[3]))
    )


def _costs(run: Run, row: Row) -> Iterator[tuple[str, float]]:
    """The figures of this row that may be bounded, by the key of their bound; of time one key is
    enough."""
    figures = figures_of(run, row)
    relative = [key for key, bound in BOUNDS.items() if bound.relative]
    if len({info.node for info in run.header.ranks}) < 2:
        relative.remove(_BETWEEN_NODES)
    for bound in ("busbw_min" if row.size_bytes else "time_us_max", *relative):
        figure = FIGURES[bound](figures)
        yield bound, (1 / figure if BOUNDS[bound].is_minimum and figure else figure)


def _is_known(group: _Group) -> bool:
    """Whether the launches have this figure. Raises UsageError if some have and some have not,
    or where they are too few."""
    unknown = sum(map(math.isnan, group.costs))
    if unknown == len(group.costs):
        return False
    if unknown:
        raise UsageError(
            f"{group.place} is unknown in {unknown} of {len(group.costs)} launches; calibrate from "
            "launches that are alike"
        )
    if len(group.costs) < LEAST_LAUNCHES:
        raise UsageError(
            f"{group.place} has {len(group.costs)} launches: "
            f"--calibrate needs {LEAST_LAUNCHES} or more different ones"
        )
    return True


def _worst_expected(costs: Sequence[float], false_alarms: float) -> float:
    """The cost that one more launch exceeds with this chance; never below the worst seen."""
    import numpy as np

    logs = np.log(np.asarray(costs))
    n = logs.size
    quantile = student_quantile(n - 1, 1 - false_alarms)
    reach = quantile * float(logs.std(ddof=1)) * math.sqrt(1 + 1 / n)
    return max(math.exp(float(logs.mean()) + reach), max(costs))


def _limit(group: _Group, false_alarms: float) -> Limit:
    pattern, memory, size, key = group.key
    bound, cost = BOUNDS[key], _worst_expected(group.costs, false_alarms)
    figures = [1 / each if bound.is_minimum else each for each in group.costs]
    provenance = (
        f"{len(figures)} launches, median {median(figures):.4g} {bound.unit}, "
        f"{min(figures):.4g} to {max(figures):.4g}"
    )
    value = _down(1 / cost) if bound.is_minimum else _up(cost)
    return Limit(pattern, memory, size, key, value, provenance)


def _held_out(groups: Sequence[_Group], false_alarms: float) -> int:
    """Launches that would have failed a gate made of the other ones."""
    failed: set[str] = set()
    for group in groups:
        for place, cost in enumerate(group.costs):
            others = group.costs[:place] + group.costs[place + 1 :]
            if cost > _worst_expected(others, false_alarms):
                failed.add(group.launches[place])
    return len(failed)


def _loose(groups: Sequence[_Group], false_alarms: float) -> Iterator[str]:
    """A line for each limit that would hardly fail anything."""
    for group in groups:
        allowed = _worst_expected(group.costs, false_alarms) / median(group.costs)
        if allowed > _LOOSE:
            yield (
                f"Loose: {group.place} may be {allowed:.2g} x worse than in the median launch: use "
                "more launches, longer ones, or a quieter machine."
            )


def _down(value: float, digits: int = 4) -> float:
    """Rounded towards 0 to some significant digits, so that no launch seen falls below."""
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(value)))
    return math.floor(value * scale) / scale


def _up(value: float, digits: int = 4) -> float:
    scale = 10.0 ** (digits - 1 - math.floor(math.log10(value)))
    return math.ceil(value * scale) / scale


def _hosts(runs: Sequence[Run]) -> str:
    return ", ".join(dict.fromkeys(info.host for run in runs for info in run.header.ranks))
