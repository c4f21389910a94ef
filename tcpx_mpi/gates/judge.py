"""Whether a run meets a gate. What is not known to be good is bad."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tcpx_mpi.gates.figures import Figures, figures_of, flaws
from tcpx_mpi.gates.gate import BOUNDS, Gate, Limit
from tcpx_mpi.records import Run
from tcpx_mpi.units import format_size


@dataclass(frozen=True)
class Finding:
    """One limit and the row that comes nearest to breaking it; NaN where nothing was found."""

    limit: Limit
    found: float
    passed: bool
    #: Why it fails, beyond the figure; "" otherwise.
    why: str = ""


@dataclass(frozen=True)
class Judgement:
    """`refusals` are what makes a run unfit for this gate, whatever it measured."""

    gate: Gate
    findings: tuple[Finding, ...]
    refusals: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return bool(self.findings) and not self.refusals and all(x.passed for x in self.findings)

    def failures(self) -> list[str]:
        """One line for each reason not to pass."""
        lines = list(self.refusals)
        for finding in self.findings:
            if not finding.passed:
                lines.append(f"{_place(finding.limit)}: {finding.why or _comparison(finding)}")
        if not self.findings and not lines:
            lines.append("the gate has no limit for this run")
        return lines

    def lines(self) -> list[str]:
        """For below a table: each limit with what was found, then the verdict and why."""
        lines = [f"# Gate                 : {self.gate.path} ({self.gate.provenance})"]
        for finding in self.findings:
            verdict = "pass" if finding.passed else "FAILED"
            place, figures = _place(finding.limit), _comparison(finding)
            lines.append(f"#   {place:<34} {figures:<40} {verdict}")
        lines += [f"# Gate failed          : {text}" for text in self.failures()]
        met = sum(finding.passed for finding in self.findings)
        verdict = "OK" if self.passed else "FAILED"
        return [
            *lines,
            f"# Gate verdict         : {verdict}, {met} of {len(self.findings)} limits met",
        ]

    def in_short(self) -> str:
        """The first reason not to pass, and how many more there are."""
        first, *more = self.failures()
        return first + (f" (and {len(more)} more)" if more else "")


def judge(gate: Gate, run: Run) -> Judgement:
    """Every limit of the run's pattern and memory kind against every row of its size.

    Of several launches in one file each must pass.
    """
    found = [text for launch in run.all_launches for text in _circumstances(gate, launch)]
    refusals = [*dict.fromkeys(found), *(f"the file lacks {text}" for text in run.missing)]
    limits = gate.limits_of(run.header.pattern, run.header.memory)
    if not limits:
        refusals.append(
            f"the gate has no limit for {run.header.pattern} in {run.header.memory} memory"
        )
    return Judgement(gate, tuple(_find(limit, run) for limit in limits), tuple(refusals))


def _circumstances(gate: Gate, run: Run) -> list[str]:
    header = run.header
    nodes = len({info.node for info in header.ranks})
    pairs: list[tuple[str, object, object]] = [
        ("plugin", gate.plugin, header.plugin_name),
        ("ranks", gate.ranks, header.world),
        ("plugin_sha256", gate.plugin_sha256, header.plugin_sha256),
        ("nodes", gate.nodes, nodes),
        ("mode", gate.mode, header.mode),
        ("channels", gate.channels, header.plan.channels),
        ("chunk_bytes", gate.chunk_bytes, header.plan.chunk_bytes),
    ]
    lines = [
        f"{name} is {found}, the gate holds for {expected}"
        for name, expected, found in pairs
        if expected is not None and expected != found
    ]
    if header.averages_only:
        lines.append("the run was imported: it has averages by other rules, and no samples")
    if header.unpack == "none":
        lines.append("nothing was unpacked (--unpack none): an ablation has no bandwidth")
    return lines


def _find(limit: Limit, run: Run) -> Finding:
    rows = [
        (launch, [row for row in launch.rows if row.size_bytes == limit.size_bytes])
        for launch in run.all_launches
    ]
    if not all(found for _, found in rows):
        return Finding(limit, math.nan, False, "no row of this size")
    pairs = [(launch, row) for launch, found in rows for row in found]
    for launch, row in pairs:
        if bad := flaws(launch, row):
            return Finding(limit, math.nan, False, "; ".join(bad))
    _, _, is_minimum = BOUNDS[limit.bound]
    values = [_value(figures_of(launch, row), limit.bound) for launch, row in pairs]
    if any(math.isnan(value) for value in values):
        few = limit.bound == "p99_us_max"
        return Finding(limit, math.nan, False, "too few iterations for p99" if few else "no figure")
    worst = min(values) if is_minimum else max(values)
    return Finding(limit, worst, worst >= limit.value if is_minimum else worst <= limit.value)


def _value(figures: Figures, bound: str) -> float:
    return {
        "busbw_min": figures.busbw,
        "time_us_max": figures.time_ns / 1e3,
        "p99_us_max": figures.p99_ns / 1e3,
    }[bound]


def _place(limit: Limit) -> str:
    return f"{limit.pattern}, {limit.memory}, {format_size(limit.size_bytes)}"


def _comparison(finding: Finding) -> str:
    name, unit, is_minimum = BOUNDS[finding.limit.bound]
    found = f"{finding.found:.4g}" if math.isfinite(finding.found) else "n/a"
    sign = ">=" if is_minimum else "<="
    return f"{name} {found} {unit}, must be {sign} {finding.limit.value:.4g}"
