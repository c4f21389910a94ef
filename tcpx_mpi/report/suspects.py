"""Below the table: who sent to whom how fast, and who is slow, where pairs were measured apart."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tcpx_mpi.patterns.pair import begins, partner
from tcpx_mpi.patterns.pairs import sender_of
from tcpx_mpi.records import Row, RunHeader
from tcpx_mpi.report.preamble import rank_name
from tcpx_mpi.suspects import (
    LEAST_SHARE,
    TIMES_NOISE,
    Measured,
    Places,
    Suspect,
    Way,
    find_suspects,
)
from tcpx_mpi.units import format_size

#: A wider matrix is for notebooks (analysis/).
_WIDEST = 16
_MOST_LINES = 8
_PATTERNS = ("pairs", "pair")


def ways_by_size(header: RunHeader, rows: Iterable[Row]) -> dict[int, dict[Way, Measured]]:
    """Of patterns whose ways do not wait for each other; repeats of a way are taken together."""
    found: dict[int, dict[Way, list[Measured]]] = defaultdict(lambda: defaultdict(list))
    for row in rows if header.pattern in _PATTERNS and not header.averages_only else []:
        for receiver in np.flatnonzero(row.receives).tolist():
            times = row.samples["iteration"][receiver] / row.agg
            if row.size_bytes and times.size and bool((times >= 0).all()):
                way = (_sender(header, row, receiver), receiver)
                found[row.size_bytes][way].append(_measured(times, row.batches))
    return {
        size: {way: _together(parts) for way, parts in ways.items()} for size, ways in found.items()
    }


def _sender(header: RunHeader, row: Row, receiver: int) -> int:
    if header.pattern == "pairs":
        return sender_of(row.cycle % rounds_of(header), receiver, header.world)
    assert not begins(receiver, header.world)
    return partner(receiver, header.world)


def rounds_of(header: RunHeader) -> int:
    """Rounds of a run of `pairs`: all of the tournament, or one encounter."""
    everybody = any(item[:2] == ("all_pairs", "true") for item in header.settings)
    return 2 * (header.world - 1) if everybody else 2


def _measured(times: NDArray[np.float64], batches: NDArray[np.int64]) -> Measured:
    """Medians over batches, for single iterations run back to back, and of both halves."""
    firsts = np.concatenate([[0], np.cumsum(batches)[:-1]])
    by_batch = np.add.reduceat(times, firsts) / batches
    if by_batch.size < 2:  # `pair` with few iterations
        half = max(times.size // 2, 1)
        halves = float(times[:half].mean()), float(times[-half:].mean())
    else:
        half = by_batch.size // 2
        halves = float(np.median(by_batch[:half])), float(np.median(by_batch[-half:]))
    return Measured(float(np.median(by_batch)), *halves)


def _together(parts: Sequence[Measured]) -> Measured:
    """Several times the same way, in cycles: medians, and the first cycle against the last."""
    if len(parts) == 1:
        return parts[0]
    times = [part.time_ns for part in parts]
    return Measured(float(np.median(times)), times[0], times[-1])


def suspect_lines(header: RunHeader, rows: Sequence[Row]) -> list[str]:
    """Matrices of `pairs`, then what is slow, or that nothing is; nothing for other patterns."""
    lines: list[str] = []
    named: list[str] = []
    places = _places(header)
    by_size = ways_by_size(header, rows)
    if places is None or not by_size:
        return []
    for size, ways in by_size.items():
        if header.pattern == "pairs" and header.world <= _WIDEST:
            lines += _matrix(size, ways, header.world)
        named += [_sentence(header, size, each) for each in find_suspects(ways, places)]
    if not named and header.pattern == "pairs":
        named = [
            f"nobody: no way is {TIMES_NOISE:g} x the noise, and {LEAST_SHARE:.0%}, over the good"
        ]
    shown = named[:_MOST_LINES]
    if len(named) > len(shown):
        shown.append(f"and {len(named) - len(shown)} more: the slowest is above")
    return lines + [f"# {'Slow':<20} : {text}" for text in shown]


def _places(header: RunHeader) -> Places | None:
    infos = {info.rank: info for info in header.ranks}
    if sorted(infos) != list(range(header.world)):
        return None
    ranks = [infos[rank] for rank in range(header.world)]
    return Places([info.node for info in ranks], [info.nic for info in ranks])


def _matrix(size: int, ways: Mapping[Way, Measured], world: int) -> list[str]:
    lines = [f"# {format_size(size)}, GB/s: a row sends, a column receives"]
    lines.append("#       " + "".join(f"{rank:>8}" for rank in range(world)))
    for sender in range(world):
        cells = []
        for receiver in range(world):
            found = ways.get((sender, receiver))
            cells.append(f"{size / found.time_ns:8.3f}" if found else f"{'-':>8}")
        lines.append(f"#  {sender:>5}" + "".join(cells))
    return lines


def _sentence(header: RunHeader, size: int, suspect: Suspect) -> str:
    names = [rank_name(header, rank) for rank in suspect.ranks]
    noise = math.expm1(suspect.noise)
    figure = f"{suspect.factor:.3g} x the good ones at {format_size(size)} (noise {noise:.1%})"
    if suspect.kind == "rank":
        return f"{names[0]}, {' and '.join(suspect.roles)}: {figure}"
    if suspect.kind == "NIC":
        roles = " and ".join(suspect.roles)
        return f"the NIC of {names[0]}, {roles}: {figure}; fast within its node"
    if suspect.kind == "link":
        return f"the way from {names[0]} to {names[1]}: {figure}; both are fast with others"
    return f"{names[0]} or {names[1]}, or their way: {figure}; `run pairs --all` tells which"
