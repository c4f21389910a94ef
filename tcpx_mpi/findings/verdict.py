"""The verdict on a run, and whether it counts: for scripts of nccl-tests, on a terminal, on the
page, and as an exit code.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tcpx_mpi.errors import ExitCode
from tcpx_mpi.findings.baselines import wrong_of_baselines
from tcpx_mpi.findings.finding import Finding, Severity, worst_first
from tcpx_mpi.findings.row_names import row_names
from tcpx_mpi.findings.rows import ended_early, is_unchecked, wrong_bytes
from tcpx_mpi.records import IMPORTED_BOUNDS, Run, RunHeader, SideKey
from tcpx_mpi.stats import RowSummary, mean_bus_bandwidth, sides_of
from tcpx_mpi.stats.ratios import Ratio, strongest
from tcpx_mpi.units import ABSENT, counted, figure, format_size

#: NCCL_TESTS_MIN_BW passes at this part of its value, as in nccl-tests.
_MIN_BW_TOLERANCE = 0.9

Summaries = Sequence[RowSummary]


def out_of_bounds(header: RunHeader, summaries: Summaries) -> tuple[int | None, bool | None]:
    """The number of wrong values, and whether that is well; None if an imported log does not count
    them in its rows."""
    wrong = sum(summary.wrong_found for summary in summaries)
    if not header.averages_only or wrong or any(s.checked for s in sides_of(summaries)):
        return wrong, wrong == 0
    count, _, verdict = header.facts.get(IMPORTED_BOUNDS, "").partition(" ")
    return (int(count), verdict == "OK") if verdict else (None, None)


def minimum_bandwidth(header: RunHeader) -> float | None:
    """NCCL_TESTS_MIN_BW of the run in GB/s; NaN for text that is no number, None if unset."""
    text = header.environment.get("NCCL_TESTS_MIN_BW")
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return math.nan


def passes_minimum_bandwidth(header: RunHeader, bandwidth: float) -> bool | None:
    """Whether the run reaches its NCCL_TESTS_MIN_BW, or None if it has none.

    Fails closed: an unknown bandwidth, or an unreadable limit, does not pass.
    """
    limit = minimum_bandwidth(header)
    if limit is None:
        return None
    return bandwidth >= _MIN_BW_TOLERANCE * limit


def below_minimum(header: RunHeader, summaries: Summaries) -> str:
    """Why a run does not pass its NCCL_TESTS_MIN_BW; "" if it does, or has none."""
    bandwidth = mean_bus_bandwidth(summaries)
    if passes_minimum_bandwidth(header, bandwidth) is not False:
        return ""
    return (
        f"the average bus bandwidth is {bandwidth:.4g} GB/s: NCCL_TESTS_MIN_BW asks for "
        f"{header.environment.get('NCCL_TESTS_MIN_BW')}; {_MIN_BW_TOLERANCE:g} of it must be "
        "reached"
    )


def errors_of(summaries: Summaries) -> list[str]:
    """Wrong bytes of this run and of its baselines, a sentence each."""
    found = [*wrong_bytes(summaries), *wrong_of_baselines(summaries).values()]
    return [finding.text for finding in found]


def outcome_of(header: RunHeader, summaries: Summaries) -> tuple[ExitCode, str]:
    """The exit code of a run that was measured to its end, and why it is not 0."""
    if any(summary.wrong_found for summary in summaries) or wrong_of_baselines(summaries):
        return ExitCode.WRONG_BYTES, [*errors_of(summaries), "wrong bytes were received"][0]
    text = below_minimum(header, summaries)
    return (ExitCode.BELOW_GATE, text) if text else (ExitCode.OK, "")


def strict_outcome(findings: Iterable[Finding[Any]]) -> tuple[ExitCode, str]:
    """The exit code of a run that is whole and right, where every finding counts, and the worst."""
    for worst in worst_first(findings):
        text = f"{worst.title}: {worst.text}" if worst.title else worst.text
        if worst.severity is Severity.BAD:
            return ExitCode.WORSE, text
        if worst.severity is Severity.DOUBTFUL:
            return ExitCode.INCONCLUSIVE, text
    return ExitCode.OK, ""


# --- For those who read nccl-tests ----------------------------------------------------------------


def as_nccl_tests(header: RunHeader, summaries: Summaries) -> list[Finding[str]]:
    """The two figures with which nccl-tests ends."""
    count, well = out_of_bounds(header, summaries)
    bounds = ABSENT if count is None else f"{count} {_passed(well)}"
    bandwidth = mean_bus_bandwidth(summaries)
    passes = _passed(passes_minimum_bandwidth(header, bandwidth))
    return [
        Finding(Severity.NOTE, "Out of bounds values", bounds),
        # The blank before nothing is nccl-tests' own.
        Finding(Severity.NOTE, "Avg bus bandwidth", f"{figure(bandwidth)} {passes}"),
    ]


def _passed(passes: bool | None) -> str:
    return "" if passes is None else "OK" if passes else "FAILED"


# --- For a terminal -------------------------------------------------------------------------------


def in_words(header: RunHeader, summaries: Summaries) -> Iterator[Finding[str]]:
    """Bytes, speed, and how the run stands beside its peers; the most important first."""
    yield from _bytes(header, summaries)
    yield from _speed(summaries)
    if text := below_minimum(header, summaries):
        yield Finding(Severity.BAD, "Too slow", text)
    names: dict[str, list[str]] = {}
    for baseline in header.baselines:
        names.setdefault(baseline.kind, []).append(baseline.name)
    for kind, variants in names.items():
        yield from _ratio_findings(
            f"Beside {kind}", [s.ratios.get(SideKey(kind)) for s in summaries]
        )
        if len(variants) > 1:
            best = [strongest(s.ratios, variants) for s in summaries]
            yield from _ratio_findings(f"{kind} at its best", best)


def _bytes(header: RunHeader, summaries: Summaries) -> Iterator[Finding[str]]:
    wrong = sum(summary.wrong_found for summary in summaries)
    moved = [summary for summary in summaries if summary.size_bytes > 0]
    title = "Bytes"
    if wrong:
        yield Finding(Severity.BAD, title, f"{wrong} WRONG: no figure of this run is valid")
    elif header.averages_only or not moved:
        return  # of an imported one it is said by whose check
    elif any(map(is_unchecked, moved)):
        text = "not all were checked, so the bandwidth is only claimed, not proved"
        yield Finding(Severity.DOUBTFUL, title, text)
    else:
        total = format_size(sum(side.payload_received_checked for side in sides_of(moved)))
        yield Finding(Severity.GOOD, title, f"right: all {total} that were timed are checked")


def _speed(summaries: Summaries) -> Iterator[Finding[str]]:
    average = mean_bus_bandwidth(summaries)
    if not math.isfinite(average):
        return
    name, best = max(
        zip(row_names(summaries), map(_faster_side, summaries), strict=True),
        key=lambda item: item[1],
    )
    text = f"{average:.4g} GB/s bus bandwidth on average over {counted(len(summaries), 'row')}"
    if len(summaries) > 1 and best >= 0:
        text += f", most at {name} ({best:.4g})"
    yield Finding(Severity.NOTE, "Speed", text)


def _faster_side(summary: RowSummary) -> float:
    known = [side.busbw for side in sides_of([summary]) if math.isfinite(side.busbw)]
    return max(known, default=-1.0)


def _ratio_findings(title: str, found: Sequence[Ratio | None]) -> Iterator[Finding[str]]:
    """In how many rows the plugin was faster or slower, by the interval."""
    ratios = [each for each in found if each is not None and not each.void]
    ratios = [each for each in ratios if math.isfinite(each.ratio)]
    if not ratios:
        return
    faster = sum(each.ci_low > 1 for each in ratios)
    slower = sum(each.ci_high < 1 for each in ratios)
    equal = len(ratios) - faster - slower
    parts = [f"faster in {faster}"] if faster else []
    parts += [f"slower in {slower}"] if slower else []
    parts += [f"no difference shown in {equal}"] if equal else []
    low, high = min(each.ratio for each in ratios), max(each.ratio for each in ratios)
    span = f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
    text = f"{span} times its speed: {', '.join(parts)} of {counted(len(found), 'row')}"
    yield Finding(Severity.NOTE, title, text)


# --- For the page ---------------------------------------------------------------------------------


def on_page(run: Run, summaries: Summaries) -> list[Finding[str]]:
    """The findings that a reader must know before any figure, of several launches of all; the worst
    first.

    `summaries` are of the rows shown. GOOD is only what is complete, checked and right.
    """
    rows = _counted(len(summaries), "row")
    found: list[Finding[str]] = [
        Finding(Severity.BAD, "", text) for text in _spoilt(run, summaries, rows)
    ]
    found += [Finding(Severity.DOUBTFUL, "", text) for text in _unproved(run, summaries, rows)]
    if not found:
        if run.launches:
            rows = f"{len(run.all_launches):,} launches of {rows}"
        text = f"Complete: {rows}, and every timed byte was checked and right."
        found.append(Finding(Severity.GOOD, "", text))
    return worst_first(found)


def _spoilt(run: Run, summaries: Summaries, rows: str) -> Iterator[str]:
    wrong = [summary.wrong_found for summary in summaries if summary.wrong_found > 0]
    if wrong:
        yield (
            f"{_counted(sum(wrong), 'wrong byte')} in {len(wrong)} of {rows}: no figure here "
            "counts until that is explained."
        )
    for finding in wrong_of_baselines(summaries).values():
        yield f"The {finding.text}: no ratio to it counts until that is explained."
    if below_minimum(run.header, summaries):
        bandwidth, limit = mean_bus_bandwidth(summaries), minimum_bandwidth(run.header)
        yield f"Below NCCL_TESTS_MIN_BW: {bandwidth:.4g} GB/s on average, asked for {limit:g}."
    for launch in run.all_launches:
        yield from (f"{each.title}: {each.text}." for each in ended_early(launch))


def _unproved(run: Run, summaries: Summaries, rows: str) -> Iterator[str]:
    if run.header.averages_only:
        yield (
            "Imported from nccl-tests: averages only, without samples, and not the timed bytes but "
            "those of an iteration of their own were checked."
        )
    if unchecked := sum(map(is_unchecked, summaries)):
        yield f"Unchecked bytes in {unchecked} of {rows}: their bandwidth proves nothing."
    if not summaries:
        yield "Not a single row was measured."
    if missing := len(run.missing):
        things = "1 thing is" if missing == 1 else f"{missing} things are"
        yield f"Incomplete: {things} missing, listed under Findings."


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
