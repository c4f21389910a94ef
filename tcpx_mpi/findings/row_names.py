"""The names of rows in findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tcpx_mpi.stats import RowSummary
from tcpx_mpi.units import format_size

#: What tells rows of one size apart, in the words of the table; the place in it does if no word
#: does.
_WORDS = (("type_name", ""), ("redop", ""), ("root", "root "), ("rate_per_s", "rate "))


def row_names(summaries: Sequence[RowSummary]) -> list[str]:
    """Each row's size, and what tells it from the others of that size: "4 KiB float root 1"."""
    by_size: dict[int, list[RowSummary]] = {}
    for summary in summaries:
        by_size.setdefault(summary.size_bytes, []).append(summary)
    differing = {
        size: [item for item in _WORDS if len({getattr(s, item[0]) for s in same}) > 1]
        for size, same in by_size.items()
    }
    names = [_name(summary, differing[summary.size_bytes]) for summary in summaries]
    times = Counter(names)
    return [
        name if times[name] == 1 else f"{name} (row {place})" for place, name in enumerate(names, 1)
    ]


def _name(summary: RowSummary, words: Sequence[tuple[str, str]]) -> str:
    values = [(title, getattr(summary, name)) for name, title in words]
    told = [f"{title}{value:g}" if title else str(value) for title, value in values]
    return " ".join([format_size(summary.size_bytes), *told])
