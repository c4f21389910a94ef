"""What a reader must know before any figure: wrong bytes, unchecked bytes, missing parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tcpx_mpi.records import Run
from tcpx_mpi.report.footer import baseline_faults, minimum_bandwidth, passes_minimum_bandwidth
from tcpx_mpi.stats import RowSummary, mean_bus_bandwidth

BAD, DOUBTFUL, GOOD = "bad", "doubtful", "good"


@dataclass(frozen=True)
class Verdict:
    """`level` is BAD, DOUBTFUL or GOOD; `sentences` say why, the worst first."""

    level: str
    sentences: tuple[str, ...]


def verdict_of(run: Run, summaries: Sequence[RowSummary]) -> Verdict:
    """The verdict on a run, of several launches on all of them; `summaries` are of the rows shown.

    GOOD is only what is complete, checked and right.
    """
    bad = _wrong_bytes(summaries) + _wrong_of_baselines(summaries)
    bad += _below_gate(run, summaries) + _ended_early(run)
    doubtful = _imported(run) + _unchecked(summaries) + _incomplete(run, summaries)
    if bad or doubtful:
        return Verdict(BAD if bad else DOUBTFUL, (*bad, *doubtful))
    what = _counted(len(summaries), "row")
    if run.launches:
        what = f"{len(run.all_launches):,} launches of {what}"
    return Verdict(GOOD, (f"Complete: {what}, and every timed byte was checked and right.",))


def is_unchecked(summary: RowSummary) -> bool:
    """Whether a row moved bytes that nobody, or not everybody, checked."""
    return summary.size_bytes > 0 and not summary.checked


def _imported(run: Run) -> list[str]:
    if not run.header.averages_only:
        return []
    return [
        "Imported from nccl-tests: averages only, without samples, and not the timed bytes but "
        "those of an iteration of their own were checked."
    ]


def _wrong_bytes(summaries: Sequence[RowSummary]) -> list[str]:
    wrong = [summary for summary in summaries if summary.wrong_found > 0]
    if not wrong:
        return []
    count = _counted(sum(summary.wrong_found for summary in wrong), "wrong byte")
    return [
        f"{count} in {len(wrong)} of {_counted(len(summaries), 'row')}: no figure here counts "
        "until that is explained."
    ]


def _wrong_of_baselines(summaries: Sequence[RowSummary]) -> list[str]:
    return [
        f"The {text}: no ratio to it counts until that is explained."
        for text in baseline_faults(summaries)
    ]


def _below_gate(run: Run, summaries: Sequence[RowSummary]) -> list[str]:
    bandwidth = mean_bus_bandwidth(summaries)
    if passes_minimum_bandwidth(run.header, bandwidth) is not False:
        return []
    limit = minimum_bandwidth(run.header)
    return [f"Below NCCL_TESTS_MIN_BW: {bandwidth:.4g} GB/s on average, asked for {limit:g}."]


def _ended_early(run: Run) -> list[str]:
    return [
        f"Ended early: {fault.kind} (exit code {fault.exit_code})."
        for launch in run.all_launches
        if (fault := launch.fault) is not None
    ]


def _unchecked(summaries: Sequence[RowSummary]) -> list[str]:
    unchecked = [summary for summary in summaries if is_unchecked(summary)]
    if not unchecked:
        return []
    return [
        f"Unchecked bytes in {len(unchecked)} of {_counted(len(summaries), 'row')}: "
        "their bandwidth proves nothing."
    ]


def _incomplete(run: Run, summaries: Sequence[RowSummary]) -> list[str]:
    sentences = [] if summaries else ["Not a single row was measured."]
    if missing := len(run.missing):
        things = "1 thing is" if missing == 1 else f"{missing} things are"
        sentences.append(f"Incomplete: {things} missing, listed under Findings.")
    return sentences


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
