"""The verdict of a comparison, row by row and over all rows. Pure.

A ratio is the first file's time over the second's: above 1 the second is faster.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass

from tcpx_mpi.arrays import Float64s
from tcpx_mpi.compare.metadata import Difference, differences
from tcpx_mpi.compare.rows import RowKey, launch_times, taken_in_turns
from tcpx_mpi.errors import ExitCode
from tcpx_mpi.records import Run
from tcpx_mpi.stats import CONFIDENCE, Shift, compare_launches, spread_of


class Verdict(enum.Enum):
    """The verdict on the second file beside the first."""

    SAME = "same"
    BETTER = "better"
    WORSE = "worse"
    INCONCLUSIVE = "inconclusive"

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of `tcpx-mpi compare`."""
        return {
            Verdict.SAME: ExitCode.OK,
            Verdict.BETTER: ExitCode.BETTER,
            Verdict.WORSE: ExitCode.WORSE,
            Verdict.INCONCLUSIVE: ExitCode.INCONCLUSIVE,
        }[self]


@dataclass(frozen=True)
class Limits:
    """The size from which a difference counts."""

    #: A difference up to this share is none, however sure it is.
    tolerance: float = 0.01
    #: "Same" is said only where a difference beyond this share is excluded.
    resolution: float = 0.05


@dataclass(frozen=True)
class RowComparison:
    """A row of both files."""

    key: RowKey
    #: Of each launch, ns.
    first_ns: Float64s
    second_ns: Float64s
    shift: Shift
    #: What single launches of the machine may differ by; NaN where it is not known, or not needed.
    spread: float
    verdict: Verdict
    reason: str


@dataclass(frozen=True)
class Comparison:
    """Two files compared."""

    first: Run
    second: Run
    limits: Limits
    #: All intervals hold together with 95 %; each of them alone with this.
    confidence: float
    #: The launches came in pairs, one of each file.
    in_turns: bool
    rows: list[RowComparison]
    #: Rows that only one file has.
    unmatched: list[RowKey]
    differences: list[Difference]

    @property
    def verdict(self) -> Verdict:
        """Worse if a row is; else inconclusive if a row is, or is missing; else better if one is.

        Without a common row nothing was compared: inconclusive.
        """
        found = {row.verdict for row in self.rows}
        if self.unmatched or not self.rows:
            found.add(Verdict.INCONCLUSIVE)
        order = (Verdict.WORSE, Verdict.INCONCLUSIVE, Verdict.BETTER, Verdict.SAME)
        return next(verdict for verdict in order if verdict in found)


def compare_runs(
    first: Run, second: Run, limits: Limits, spread_of_machine: Run | None = None
) -> Comparison:
    """Compare two files; `spread_of_machine` has launches by which to judge single ones.

    Whether they are comparable at all is `refusals`' question.
    """
    ours, theirs = launch_times(first), launch_times(second)
    common = sorted(ours.keys() & theirs.keys())
    recorded = launch_times(spread_of_machine) if spread_of_machine is not None else {}
    # Of m rows at 95 % each, one would be called different by chance in up to m of 20 comparisons.
    confidence = 1 - (1 - CONFIDENCE) / max(len(common), 1)
    in_turns = taken_in_turns(first, second)
    rows = [
        _compare_row(key, ours[key], theirs[key], confidence, in_turns, limits, recorded)
        for key in common
    ]
    return Comparison(
        first=first,
        second=second,
        limits=limits,
        confidence=confidence,
        in_turns=in_turns,
        rows=rows,
        unmatched=sorted(ours.keys() ^ theirs.keys()),
        differences=differences(first, second),
    )


def _compare_row(
    key: RowKey,
    first_ns: Float64s,
    second_ns: Float64s,
    confidence: float,
    in_turns: bool,
    limits: Limits,
    recorded: Mapping[RowKey, Float64s],
) -> RowComparison:
    shift = compare_launches(first_ns, second_ns, confidence, in_turns)
    spread = math.nan
    if not shift.test and min(first_ns.size, second_ns.size) == 1:
        candidates = (recorded.get(key), first_ns, second_ns)
        known = (spread_of(times) for times in candidates if times is not None)
        spread = next((each for each in known if not math.isnan(each)), math.nan)
        verdict, reason = _by_spread(shift.ratio.estimate, spread, limits)
    else:
        verdict, reason = verdict_of(shift, (first_ns.size, second_ns.size), limits, "more --runs")
    return RowComparison(key, first_ns, second_ns, shift, spread, verdict, reason)


def verdict_of(
    shift: Shift, launches: tuple[int, int], limits: Limits, remedy: str
) -> tuple[Verdict, str]:
    """The verdict on launches of two sides, and why where it needs words; `remedy` is what to use
    for more of them."""
    if math.isnan(shift.ratio.estimate):
        return Verdict.INCONCLUSIVE, "a launch has no time"
    if not shift.test:
        few = f"{launches[0]} and {launches[1]} launches are too few"
        return Verdict.INCONCLUSIVE, f"{few}: use {remedy}"
    ratio = shift.ratio
    if ratio.high < 1 and ratio.estimate < 1 - limits.tolerance:
        return Verdict.WORSE, ""
    if ratio.low > 1 and ratio.estimate > 1 + limits.tolerance:
        return Verdict.BETTER, ""
    if 1 - limits.resolution <= ratio.low and ratio.high <= 1 + limits.resolution:
        different = ratio.high < 1 or ratio.low > 1
        return Verdict.SAME, "a difference within --tolerance" if different else ""
    return Verdict.INCONCLUSIVE, f"the interval is wider than --resolution: use {remedy}"


def _by_spread(ratio: float, spread: float, limits: Limits) -> tuple[Verdict, str]:
    """A single launch: only what goes beyond all that launches of this machine do is a verdict."""
    if math.isnan(ratio):
        return Verdict.INCONCLUSIVE, "a launch has no time"
    if math.isnan(spread):
        return Verdict.INCONCLUSIVE, "one launch, and no recorded spread (--spread): use --runs"
    if ratio < min(1 / spread, 1 - limits.tolerance):
        return Verdict.WORSE, "one launch, beyond the recorded spread"
    if ratio > max(spread, 1 + limits.tolerance):
        return Verdict.BETTER, "one launch, beyond the recorded spread"
    return Verdict.INCONCLUSIVE, "one launch, within the recorded spread"
