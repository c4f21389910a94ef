"""All findings of a run, in the order in which they are printed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tcpx_mpi.findings.baselines import baseline_findings, detours, while_loaded
from tcpx_mpi.findings.clock import clocks
from tcpx_mpi.findings.entries import last_to_begin
from tcpx_mpi.findings.finding import Finding, Severity
from tcpx_mpi.findings.gpus import gpus
from tcpx_mpi.findings.losses import losses
from tcpx_mpi.findings.open_loop import pace
from tcpx_mpi.findings.percentiles import percentiles
from tcpx_mpi.findings.placement import placement, stolen, usage
from tcpx_mpi.findings.rows import (
    checks,
    connections,
    ended_early,
    endings,
    late_starts,
    network,
    resolution,
    slowest,
    traps,
    wrong_bytes,
)
from tcpx_mpi.findings.spikes import spikes
from tcpx_mpi.findings.steadiness import steadiness
from tcpx_mpi.findings.stragglers import matrices, stragglers
from tcpx_mpi.findings.tails import tails
from tcpx_mpi.records import Run
from tcpx_mpi.stats import RowSummary
from tcpx_mpi.stragglers.links import Link, Measured


@dataclass(frozen=True)
class Matrix:
    """The bandwidth from each rank to each other one at one size, as evidence."""

    size_bytes: int
    links: Mapping[Link, Measured]


RunFinding = Finding[str | Matrix]


def findings_of(
    run: Run, summaries: Sequence[RowSummary], missing: Sequence[str] = ()
) -> list[RunFinding]:
    """All findings of a run and of its rows; `missing` is what it lacks.

    Evidence is the row or the rank, or a matrix, whose finding has no words.
    """
    header = run.header
    return [
        *wrong_bytes(summaries),
        *traps(header),
        *checks(header, summaries),
        *slowest(header, summaries),
        *(
            Finding(Severity.NOTE, "", "", evidence=Matrix(size, links))
            for size, links in matrices(header, run.rows).items()
        ),
        *stragglers(header, run.rows),
        *last_to_begin(header, run.rows, summaries),
        *losses(header, run.rows),
        *connections(header),
        *tails(header, run.rows, summaries),
        *percentiles(header, summaries),
        *resolution(header, summaries),
        *network(header, summaries),
        *pace(summaries),
        *late_starts(header, run.rows),
        *clocks(header, run.rows, summaries),
        *endings(header, summaries),
        *spikes(header, run.rows, summaries),
        *steadiness(summaries),
        *usage(header, summaries),
        *placement(header, summaries),
        *stolen(header, summaries),
        *gpus(header, summaries),
        *while_loaded(summaries),
        *baseline_findings(header, summaries),
        *detours(header),
        *ended_early(run),
        *(Finding(Severity.DOUBTFUL, "Missing", text) for text in missing),
    ]
