"""A comparison as lines of text."""

from __future__ import annotations

import math

import numpy as np

from tcpx_mpi.arrays import Float64s
from tcpx_mpi.compare.verdict import Comparison, RowComparison, Verdict
from tcpx_mpi.records import Run
from tcpx_mpi.units import counted, format_time_us

_UNKNOWN = "n/a"
_LONGEST_VALUE = 60
TEST_NAMES = {
    "pairs": "Wilcoxon's signed ranks of pairs of launches, exact",
    "ranks": "Mann and Whitney's test of the launches, exact",
    "": "none: too few launches",
}


def comparison_lines(comparison: Comparison) -> list[str]:
    """The lines of `tcpx-mpi compare`, the verdict last."""
    lines = [f"# A: {_run_text(comparison.first)}", f"# B: {_run_text(comparison.second)}"]
    lines += [
        f"# differs: {each.section} {each.name}: {_value(each.first)} | {_value(each.second)}"
        for each in comparison.differences
    ] or ["# differs: nothing that is recorded"]
    tests = dict.fromkeys(TEST_NAMES[row.shift.test] for row in comparison.rows)
    lines += [
        f"# test: {'; '.join(tests) or TEST_NAMES['']}",
        "# ratio: time of A / time of B, above 1 B is faster; intervals hold for all rows together "
        "in 95 % of comparisons",
        f"# {'row':>14}  {'A(us)':>10}  {'B(us)':>10}  {'launches':>8}  {'ratio':>7}  "
        f"{'low':>7}  {'high':>7}  {'p':>7}  verdict",
    ]
    lines += [_row_line(row) for row in comparison.rows]
    lines += [f"# only in one file: {key}" for key in comparison.unmatched]
    return [*lines, f"# verdict: {verdict_text(comparison)}"]


def verdict_text(comparison: Comparison) -> str:
    """The verdict in a line: the word, how many rows, and the limits."""
    verdict, limits = comparison.verdict, comparison.limits
    count = sum(row.verdict is verdict for row in comparison.rows)
    if comparison.unmatched and not count:
        return (
            f"{verdict.value}: {counted(len(comparison.unmatched), 'row')} "
            f"{'is' if len(comparison.unmatched) == 1 else 'are'} in one file only"
        )
    what = {
        Verdict.SAME: "B is as fast as A",
        Verdict.BETTER: "B is faster than A",
        Verdict.WORSE: "B is slower than A",
        Verdict.INCONCLUSIVE: "nothing was decided",
    }[verdict]
    return (
        f"{verdict.value}: {what} in {count} of {counted(len(comparison.rows), 'row')} "
        f"(tolerance {100 * limits.tolerance:g} %, resolution {100 * limits.resolution:g} %)"
    )


def _run_text(run: Run) -> str:
    header = run.header
    launches = 1 + len(run.launches)
    return (
        f"{run.path}: {header.pattern}, {counted(header.world, 'rank')}, {header.plugin_name}, "
        f"{counted(launches, 'launch')}, {header.start_time}"
    )


def _row_line(row: RowComparison) -> str:
    ratio = row.shift.ratio
    figures = "  ".join(
        _ratio(value) for value in (ratio.estimate, ratio.low, ratio.high, row.shift.p_value)
    )
    launches = f"{row.first_ns.size}+{row.second_ns.size}"
    reason = f" ({row.reason})" if row.reason else ""
    return (
        f"  {row.key!s:>14}  {_time(row.first_ns)}  {_time(row.second_ns)}  {launches:>8}  "
        f"{figures}  {row.verdict.value}{reason}"
    )


def _time(times_ns: Float64s) -> str:
    return format_time_us(float(np.median(times_ns)), 10, _UNKNOWN).rjust(10)


def _ratio(value: float) -> str:
    return (f"{value:.4f}" if math.isfinite(value) else _UNKNOWN).rjust(7)


def _value(text: str) -> str:
    short = " ".join(text.split())
    return (short if len(short) <= _LONGEST_VALUE else short[: _LONGEST_VALUE - 3] + "...") or "-"
