"""The `## set-up` table: what listen, connect, accept and regMr took."""

from __future__ import annotations

import numpy as np

from tcpx_mpi.records import SetupTimes
from tcpx_mpi.units import format_time_us


def setup_lines(setup: SetupTimes) -> list[str]:
    """One line a phase; every line is a comment for scripts that read the rows."""
    lines = [
        "#",
        "## set-up",
        f"## {'phase':>10}  {'count':>8}  {'median(us)':>12}  {'max(us)':>12}  {'@rank':>6}",
    ]
    for phase in setup.phases():
        table = setup.of(phase)
        slowest = table[int(np.argmax(table["ns"]))]
        lines.append(
            f"## {phase:>10}  {table.size:>8}  "
            f"{format_time_us(float(np.median(table['ns'])), 12):>12}  "
            f"{format_time_us(float(slowest['ns']), 12):>12}  {'@' + str(slowest['rank']):>6}"
        )
    return lines
