"""Findings on the clocks of several nodes: their bound, and what broke one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from tcpx_mpi.findings.finding import Finding, Severity
from tcpx_mpi.records import Row, RunHeader
from tcpx_mpi.records.clock import ClockFit
from tcpx_mpi.records.header import SYNCHRONISED
from tcpx_mpi.stats import RowSummary
from tcpx_mpi.units import counted, figure, format_size

#: So many rows are named in which something broke.
_MOST_ROWS = 4
TITLE = "Clock"


def clocks(
    header: RunHeader, rows: Sequence[Row], summaries: Sequence[RowSummary]
) -> Iterator[Finding[str]]:
    """The findings on instants of two nodes: how well they can be compared, and in which rows they
    cannot."""
    fits = [fit for row in rows if row.clock is not None for fit in row.clock.fits]
    if not fits:
        return
    least, most = (pick(fit.bound_ns for fit in fits) for pick in (min, max))
    known = [abs(fit.drift_ppm) for fit in fits if math.isfinite(fit.drift_ppm)]
    sources = ", ".join(sorted({fit.source for fit in fits}))
    text = f"{counted(1 + max(fit.clock for fit in fits), 'clock')} on one time, +-"
    text += f"{figure(most / 1e3, 3)} us at most, +-{figure(least / 1e3, 3)} us at best ({sources})"
    if known:
        text += f", a drift of up to {figure(max(known), 2)} ppm"
    yield Finding(Severity.NOTE, TITLE, text)
    broken = [
        (row, fit, what)
        for row in rows
        if row.clock is not None
        for fit in row.clock.fits
        if (what := _broken(fit))
    ]
    for row, fit, what in broken[:_MOST_ROWS]:
        text = f"that of {_host(header, fit.clock)} {what}: +-{figure(fit.bound_ns / 1e3, 3)} us"
        yield Finding(Severity.DOUBTFUL, TITLE, text, evidence=format_size(row.size_bytes))
    if len(broken) > _MOST_ROWS:
        text = f"and {len(broken) - _MOST_ROWS} times more"
        yield Finding(Severity.DOUBTFUL, TITLE, text)
    yield from _too_wide(header, rows, summaries)


def _broken(fit: ClockFit) -> str:
    """The mishap of a clock in a row, in words; "" for none."""
    if fit.suspended_ns:
        return f"stood still for {figure(fit.suspended_ns / 1e9, 3)} s, its machine was suspended"
    if fit.moved_ns:
        return f"was stepped or slewed by {figure(fit.moved_ns / 1e3, 3)} us beyond its drift"
    if fit.contradicted_ns:
        return (
            f"is not where what keeps it says, by {figure(fit.contradicted_ns / 1e3, 3)} us beyond "
            "all bounds, so the round trips count"
        )
    return ""


def _too_wide(
    header: RunHeader, rows: Sequence[Row], summaries: Sequence[RowSummary]
) -> Iterator[Finding[str]]:
    """Rows of which something was asked between two clocks that is less than their bound."""
    asked: dict[str, list[tuple[int, int, float]]] = {}
    for row, summary in zip(rows, summaries, strict=True):
        if row.clock is None:
            continue
        of_row: dict[str, tuple[int, float]] = {}
        if header.mode == SYNCHRONISED:
            together = "iterations start together no better than they last"
            of_row[together] = row.clock.bound_ns, summary.per_iteration.p50
        if (one := summary.one_way) is not None:
            # Of a pattern without an answer there is one direction.
            way = float(np.nanmin([one.there_ns, one.back_ns]))
            of_row["a direction is known no better than it lasts"] = one.bound_ns, way
        if (loop := summary.open_loop) is not None:
            start = "the time from the intended start is known no better than it lasts"
            of_row[start] = loop.bound_ns, loop.latency.p50
        for what, (bound_ns, figure_ns) in of_row.items():
            if bound_ns > figure_ns:
                asked.setdefault(what, []).append((row.size_bytes, bound_ns, figure_ns))
    for what, wide in asked.items():
        named = (
            f"{format_size(size)} (+-{figure(bound_ns / 1e3, 3)} us of {figure(ns / 1e3, 3)} us)"
            for size, bound_ns, ns in wide[:_MOST_ROWS]
        )
        yield Finding(Severity.DOUBTFUL, TITLE, f"{what} at {', '.join(named)}")


def _host(header: RunHeader, clock: int) -> str:
    return next((info.host for info in header.ranks if info.clock == clock), f"clock {clock}")
