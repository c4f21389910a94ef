"""What the footer says of rows that have a side under load."""

from __future__ import annotations

from collections.abc import Sequence

from tcpx_mpi.report.lines import titled
from tcpx_mpi.stats import RowSummary
from tcpx_mpi.units import format_size


def load_lines(summaries: Sequence[RowSummary]) -> list[str]:
    """What `while loaded` is, and the rows in which the load was over too early."""
    loads = [(summary, summary.load) for summary in summaries if summary.load is not None]
    if not loads:
        return []
    lines = [
        titled(
            "While loaded",
            "half a round trip beside a mesh; ratio to half a round trip alone, above 1 slower; "
            f"median of {min(load.ratio.blocks for _, load in loads)} or more pairs of blocks, "
            "95 % interval",
        )
    ]
    short = [format_size(summary.size_bytes) for summary, load in loads if load.covers < 1]
    if short:
        text = f"the mesh was over before the ping-pong at {', '.join(short)}: use a larger --load"
        lines.append(titled("WARNING", text))
    return lines
