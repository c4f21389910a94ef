"""Limits out of several launches, with the rate of false alarms that they were made for.

The unit is the launch: iterations of one launch are no independent evidence of the next. A limit
is the one-sided prediction limit for the logarithm of one further launch's time,

    exp(mean + t(n - 1, 1 - a / m) * s * sqrt(1 + 1 / n))

with n launches, their mean and standard deviation s of log time, m limits and a false alarms a
gate (Bonferroni over the limits). It assumes log-normal launches; two checks that assume nothing
are stated beside it: how many of the n launches would have failed a gate made of the others, and
the bound m / (n + 1) for a limit at the slowest launch seen (exchangeability alone).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from tcpx_mpi.errors import UsageError
from tcpx_mpi.gates.figures import figures_of, flaws
from tcpx_mpi.gates.gate import Gate, Limit
from tcpx_mpi.gates.student import student_quantile
from tcpx_mpi.records import Run
from tcpx_mpi.units import counted, format_size

#: Fewer launches say next to nothing about the next one: t(3, 0.999) is above 10.
LEAST_LAUNCHES = 5
#: A limit so many times above the median launch is worth a word.
_LOOSE = 2.0

Key = tuple[str, str, int]  # pattern, memory kind, size


@dataclass(frozen=True)
class Calibration:
    """A gate, and how it was found in words, for the top of its file."""

    gate: Gate
    comments: tuple[str, ...]


@dataclass(frozen=True)
class _Group:
    """The launches of one pattern, memory kind and size."""

    key: Key
    #: The run_id of each launch.
    launches: tuple[str, ...]
    #: Of each launch, in ns: the slowest row, over its cycles, for a gate judges each row.
    times_ns: tuple[float, ...]
    factor: float


def calibrate(runs: Sequence[Run], false_alarms: float) -> Calibration:
    """A gate for the runs' plugin, ranks and settings. Raises UsageError where they do not agree,
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
    fewest = min(len(group.times_ns) for group in groups)
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
        f"False alarms: made for {false_alarms:g} a run, if times of launches are log-normal.",
        f"Without that assumption: {failed} of {whole} launches fail a gate made of the others;",
        f"a limit at the slowest launch is broken in {len(groups)} / {fewest + 1} of runs at most.",
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
    times: dict[Key, dict[str, float]] = {}
    factors: dict[Key, float] = {}
    for run in runs:
        for row in run.rows:
            if found := flaws(row):
                raise UsageError(
                    f"{run.path}: {format_size(row.size_bytes)}: {found[0]}; "
                    "calibrate from launches that would pass"
                )
            key = (run.header.pattern, run.header.memory, row.size_bytes)
            launches = times.setdefault(key, {})
            time_ns = figures_of(run, row).time_ns
            launches[run.header.run_id] = max(time_ns, launches.get(run.header.run_id, 0.0))
            factors[key] = run.header.size_factor
    groups = [
        _Group(key, tuple(found), tuple(found.values()), factors[key])
        for key, found in times.items()
    ]
    for group in groups:
        if len(group.times_ns) < LEAST_LAUNCHES:
            pattern, memory, size = group.key
            raise UsageError(
                f"{pattern}, {memory}, {format_size(size)} has {len(group.times_ns)} launches: "
                f"--calibrate needs {LEAST_LAUNCHES} or more different ones"
            )
    return sorted(groups, key=lambda group: group.key)


def _slowest_expected_ns(times_ns: Sequence[float], false_alarms: float) -> float:
    """The time that one more launch exceeds with this chance; never below the slowest seen."""
    import numpy as np

    logs = np.log(np.asarray(times_ns))
    n = logs.size
    quantile = student_quantile(n - 1, 1 - false_alarms)
    reach = quantile * float(logs.std(ddof=1)) * math.sqrt(1 + 1 / n)
    return max(math.exp(float(logs.mean()) + reach), max(times_ns))


def _limit(group: _Group, false_alarms: float) -> Limit:
    pattern, memory, size = group.key
    time_ns = _slowest_expected_ns(group.times_ns, false_alarms)
    provenance = (
        f"{len(group.times_ns)} launches, median {median(group.times_ns) / 1e3:.4g} us, "
        f"{min(group.times_ns) / 1e3:.4g} to {max(group.times_ns) / 1e3:.4g}"
    )
    if size == 0:
        return Limit(pattern, memory, size, "time_us_max", _up(time_ns / 1e3), provenance)
    busbw = size / time_ns * group.factor
    return Limit(pattern, memory, size, "busbw_min", _down(busbw), provenance)


def _held_out(groups: Sequence[_Group], false_alarms: float) -> int:
    """Launches that would have failed a gate made of the other ones."""
    failed: set[str] = set()
    for group in groups:
        for place, time_ns in enumerate(group.times_ns):
            others = group.times_ns[:place] + group.times_ns[place + 1 :]
            if time_ns > _slowest_expected_ns(others, false_alarms):
                failed.add(group.launches[place])
    return len(failed)


def _loose(groups: Sequence[_Group], false_alarms: float) -> Iterator[str]:
    """A line for each limit that would hardly fail anything."""
    for group in groups:
        pattern, memory, size = group.key
        allowed = _slowest_expected_ns(group.times_ns, false_alarms) / median(group.times_ns)
        if allowed > _LOOSE:
            yield (
                f"Loose: {pattern}, {memory}, {format_size(size)} may take {allowed:.2g} x the "
                "median launch's time: use more launches, longer ones, or a quieter machine."
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
