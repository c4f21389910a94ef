"""Whether a run meets a gate. What is not known to be good is bad.

The unit is the launch, as it is in a calibration. Of several launches the median is held against a
limit, so that more of them raise no more false alarms; but each has to be whole, checked and right.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tcpx_mpi.findings import Finding, Severity
from tcpx_mpi.gates.figures import FIGURES, figures_of, flaws
from tcpx_mpi.gates.gate import BOUNDS, Gate, Limit
from tcpx_mpi.records import Run, RunHeader
from tcpx_mpi.units import format_size


@dataclass(frozen=True)
class Held:
    """A limit and what was held against it; NaN if a launch has no figure for it."""

    limit: Limit
    #: The median over launches; a launch counts by its row that comes nearest to breaking it.
    found: float
    #: The launches, from 1, that alone would not have met it.
    beyond: tuple[int, ...] = ()


#: GOOD or BAD; without a limit it is why the run is unfit for this gate.
GateFinding = Finding[Held]


@dataclass(frozen=True)
class Judgement:
    """Findings in the order of the limits; what makes a run unfit stands first, by launch."""

    gate: Gate
    findings: tuple[GateFinding, ...]
    launches: int

    @property
    def passed(self) -> bool:
        return not any(finding.severity is Severity.BAD for finding in self.findings)

    @property
    def limits(self) -> list[tuple[GateFinding, Held]]:
        """The figure found for each limit."""
        return [(each, each.evidence) for each in self.findings if each.evidence is not None]

    def refusals(self) -> list[str]:
        """Why the run is unfit, whatever its figures are."""
        return [finding.text for finding in self.findings if finding.evidence is None]

    def failures(self) -> list[str]:
        """One line for each reason not to pass."""
        return self.refusals() + [
            f"{finding.title}: {finding.text}"
            for finding, held in self.limits
            if finding.severity is Severity.BAD and math.isfinite(held.found)
        ]

    def lines(self) -> list[str]:
        """Lines below a table: each limit with its figure, then the verdict and why."""
        by = f", by the median of {self.launches} launches" if self.launches > 1 else ""
        lines = [f"# Gate                 : {self.gate.path} ({self.gate.provenance}){by}"]
        for finding, held in self.limits:
            verdict = "FAILED" if finding.severity is Severity.BAD else "pass"
            if self.launches > 1 and held.beyond:
                numbers = ", ".join(map(str, held.beyond))
                few = f"{len(held.beyond)} of {self.launches} launches beyond: {numbers}"
                all_of_them = len(held.beyond) == self.launches
                verdict += f" ({'all launches beyond' if all_of_them else few})"
            if held.limit.provenance:
                verdict += f"  [{held.limit.provenance}]"
            lines.append(f"#   {finding.title:<34} {finding.text:<40} {verdict}")
        lines += [f"# Gate failed          : {text}" for text in self.failures()]
        met = sum(finding.severity is Severity.GOOD for finding, _ in self.limits)
        verdict = "OK" if self.passed else "FAILED"
        text = f"{verdict}, {met} of {len(self.limits)} limits met"
        if count := len(self.refusals()):
            text += f"; {count} reason{'s' if count > 1 else ''} to fail beside them"
        return [*lines, f"# Gate verdict         : {text}"]

    def document(self) -> dict[str, Any]:
        """The same for a program: each limit with what was found (NaN: no figure), and why not."""
        return {
            "path": self.gate.path,
            "provenance": self.gate.provenance,
            "passed": self.passed,
            "launches": self.launches,
            "limits": [
                {
                    "pattern": held.limit.pattern,
                    "memory": held.limit.memory,
                    "size": held.limit.size_bytes,
                    "and_above": held.limit.and_above,
                    "bound": held.limit.bound,
                    "limit": held.limit.value,
                    "found": held.found,
                    "passed": finding.severity is Severity.GOOD,
                    "launches_beyond": list(held.beyond),
                }
                for finding, held in self.limits
            ],
            "failures": self.failures(),
        }

    def in_short(self) -> str:
        """The first reason not to pass, and how many more there are."""
        first, *more = self.failures()
        return first + (f" (and {len(more)} more)" if more else "")


def judge(gate: Gate, run: Run) -> Judgement:
    """Every limit of the run's pattern and memory kind against all rows of its size.

    The gate must hold for each of several launches in one file, and each has a figure for every
    limit. The median of these meets the limit or does not.
    """
    header = run.header
    limits = gate.limits_of(header.pattern, header.memory)
    launches = [_looked_at(gate, limits, launch, header) for launch in run.all_launches]
    numbers: dict[str, list[int]] = {}
    for number, launch in enumerate(launches, start=1):
        for text in dict.fromkeys(launch.unfit):
            numbers.setdefault(text, []).append(number)
    refusals = [_by_launches(text, of, len(launches)) for text, of in numbers.items()]
    if (absent := run.launches_planned - len(launches)) > 0:
        refusals.append(f"the file lacks {absent} of {run.launches_planned} launches")
    if not limits:
        text = f"the gate has no limit for {header.pattern} in {header.memory} memory"
        others = [_asks(limit) for limit in gate.limits if limit.is_of(header.pattern, None)]
        refusals.append("; ".join([text, *others]))
    unfit: list[GateFinding] = [Finding(Severity.BAD, "", text) for text in refusals]
    found = [_find(limit, [launch.figures[limit] for launch in launches]) for limit in limits]
    return Judgement(gate, (*unfit, *found), len(launches))


@dataclass(frozen=True)
class _Launch:
    """A launch, as a gate sees it."""

    #: Why it fails whatever its figures are.
    unfit: tuple[str, ...]
    #: For each limit that of the row which comes nearest to breaking it; NaN: there is none.
    figures: dict[Limit, float]


def _looked_at(gate: Gate, limits: Sequence[Limit], launch: Run, first: RunHeader) -> _Launch:
    """Rows without a limit are looked at, too: wrong bytes at one size spoil all trust."""
    # The first launch of a file has the others with it.
    alone = dataclasses.replace(launch, launches=[], launches_planned=1)
    missing = [f"the file lacks {text}" for text in alone.missing]
    unfit = [*_metadata(gate, launch.header, first), *missing]
    if missing or launch.header.averages_only:
        return _Launch(tuple(unfit), dict.fromkeys(limits, math.nan))
    spoilt = set()
    for row in launch.rows:
        for flaw in flaws(row):
            unfit.append(f"{_place(launch.header, row.size_bytes)}: {flaw}")
            spoilt.add(row.size_bytes)
    figures = {}
    of_row = [figures_of(launch, row) for row in launch.rows]
    for limit in limits:
        values = {
            number: math.nan if row.size_bytes in spoilt else FIGURES[limit.bound](of_row[number])
            for number, row in enumerate(launch.rows)
            if limit.is_of_size(row.size_bytes)
        }
        figures[limit] = _worst(limit, list(values.values()))
        unknown = {
            launch.rows[number].size_bytes for number in values if math.isnan(values[number])
        }
        if not values:
            unfit.append(f"{limit.place}: no row of this size")
        for size in sorted(unknown - spoilt):
            unfit.append(f"{_place(launch.header, size)}: {BOUNDS[limit.bound].unknown}")
    return _Launch(tuple(unfit), figures)


def _metadata(gate: Gate, header: RunHeader, first: RunHeader) -> Iterator[str]:
    pairs: list[tuple[str, object, object]] = [
        ("plugin", gate.plugin, header.plugin_name),
        ("ranks", gate.ranks, header.world),
        ("plugin_sha256", gate.plugin_sha256, header.plugin_sha256),
        ("nodes", gate.nodes, len({info.node for info in header.ranks})),
        ("mode", gate.mode, header.mode),
        ("channels", gate.channels, header.plan.channels),
        ("chunk_bytes", gate.chunk_bytes, header.plan.chunk_bytes),
    ]
    for name, expected, found in pairs:
        if expected is not None and expected != found:
            yield f"{name} is {found}, the gate holds for {expected}"
    if (header.pattern, header.memory) != (first.pattern, first.memory):
        yield (
            f"it is {header.pattern} in {header.memory} memory, the first launch is "
            f"{first.pattern} in {first.memory} memory"
        )
    if header.averages_only:
        yield "the run was imported: it has averages by other rules, and no samples"
    if header.unpack == "none":
        yield "nothing was unpacked (--unpack none): an ablation has no bandwidth"
    if header.left_unflushed:
        yield "receives were not flushed (--flush never): an ablation has no bandwidth"


def _find(limit: Limit, values: Sequence[float]) -> GateFinding:
    """`values` are the figures of the launches."""
    if any(math.isnan(value) for value in values):
        return _finding(Severity.BAD, Held(limit, math.nan))
    # The best first: of an even number the worse one of the two in the middle counts.
    median = sorted(values, reverse=_is_minimum(limit))[len(values) // 2]
    beyond = tuple(n for n, value in enumerate(values, start=1) if not _meets(limit, value))
    severity = Severity.GOOD if _meets(limit, median) else Severity.BAD
    return _finding(severity, Held(limit, median, beyond))


def _worst(limit: Limit, values: Sequence[float]) -> float:
    if not values or any(math.isnan(value) for value in values):
        return math.nan
    return min(values) if _is_minimum(limit) else max(values)


def _meets(limit: Limit, value: float) -> bool:
    return value >= limit.value if _is_minimum(limit) else value <= limit.value


def _is_minimum(limit: Limit) -> bool:
    return BOUNDS[limit.bound].is_minimum


def _by_launches(text: str, numbers: Sequence[int], of: int) -> str:
    """A reason with the launches that it holds for, where it does not hold for all."""
    if len(numbers) == of:
        return text
    which = ", ".join(map(str, numbers))
    return f"launch{'es' if len(numbers) > 1 else ''} {which}: {text}"


def _asks(limit: Limit) -> str:
    """ "cuda, 64 MiB: busbw >= 42.4 GB/s [where it is from]"."""
    place = limit.place_of_pattern
    text = f"{place}: {BOUNDS[limit.bound].name} {_must_be(limit)} {BOUNDS[limit.bound].unit}"
    return f"{text} [{limit.provenance}]" if limit.provenance else text


def _must_be(limit: Limit) -> str:
    return f"{'>=' if _is_minimum(limit) else '<='} {limit.value:.4g}"


def _place(header: RunHeader, size_bytes: int) -> str:
    return f"{header.pattern}, {header.memory}, {format_size(size_bytes)}"


def _finding(severity: Severity, held: Held) -> GateFinding:
    bound = BOUNDS[held.limit.bound]
    found = f"{held.found:.4g}" if math.isfinite(held.found) else "n/a"
    text = f"{bound.name} {found} {bound.unit}, must be {_must_be(held.limit)}"
    return Finding(severity, held.limit.place, text, evidence=held)
