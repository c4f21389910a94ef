"""Findings on who begins last, between nodes with clocks of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tcpx_mpi.findings.finding import Finding, Severity
from tcpx_mpi.records import Row, RunHeader, rank_name
from tcpx_mpi.stats import RowSummary
from tcpx_mpi.stragglers.entries import behind_first_ns, chosen
from tcpx_mpi.units import figure, format_size

#: A rank that begins later by less of an iteration keeps nobody waiting.
_SHARE = 0.1


def last_to_begin(
    header: RunHeader, rows: Sequence[Row], summaries: Sequence[RowSummary]
) -> Iterator[Finding[str]]:
    """The rank that begins last, at the size where that counts most; nothing that is within the
    bound of its clock. Only where ranks wait for several others, back to back.
    """
    worst: tuple[float, str] | None = None
    for row, summary in zip(rows, summaries, strict=True):
        clock = row.clock
        if clock is None or not row.arrivals.size or not header.back_to_back or header.is_open_loop:
            continue
        numbers = [max(info.clock, 0) for info in header.ranks]
        picked = chosen(row.iterations)
        starts = np.array([
            clock.tree.to_common(number, row.samples["start"][rank][picked])
            for rank, number in enumerate(numbers)
        ])  # fmt: skip
        behind = behind_first_ns(starts)
        last, first = int(behind.argmax()), int(behind.argmin())
        bound = clock.tree.bound_between_ns(numbers[last], numbers[first])
        late = float(behind[last] - behind[first])
        share = late / summary.per_iteration.p50
        if late > bound and share > max(_SHARE, worst[0] if worst else 0):
            text = (
                f"{rank_name(header, last)} begins its iterations {figure(late / 1e3, 3)} us "
                f"(+-{figure(bound / 1e3, 3)}) after {rank_name(header, first)}, the median at "
                f"{format_size(row.size_bytes)}: {figure(100 * share, 2)} % of one"
            )
            worst = share, text
    if worst is not None:
        yield Finding(Severity.NOTE, "Last to begin", worst[1])
