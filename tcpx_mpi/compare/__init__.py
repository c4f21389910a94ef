"""Two runs side by side, row by row: is the second as fast as the first? The unit is the launch.

Needs no MPI and no plugin. `compare_runs` decides, `comparison_lines` and `comparison_document` say
it as text and as JSON; the page is `tcpx_mpi.report.html.write_comparison`.
"""

from tcpx_mpi.compare.document import comparison_document
from tcpx_mpi.compare.metadata import differences, of_one_command, refusals, refusals_of_spread
from tcpx_mpi.compare.rows import launch_times, taken_in_turns
from tcpx_mpi.compare.text import comparison_lines
from tcpx_mpi.compare.verdict import (
    Comparison,
    Limits,
    RowComparison,
    Verdict,
    compare_runs,
    verdict_of,
)

__all__ = [
    "Comparison",
    "Limits",
    "RowComparison",
    "Verdict",
    "compare_runs",
    "comparison_document",
    "comparison_lines",
    "differences",
    "launch_times",
    "of_one_command",
    "refusals",
    "refusals_of_spread",
    "taken_in_turns",
    "verdict_of",
]
