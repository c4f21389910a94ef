"""`tcpx-mpi simulate`: the rows of a run as `schedule.simulator` predicts them."""

from tcpx_mpi.simulate.fit import Fitted, fit_costs, measured_rows
from tcpx_mpi.simulate.rows import PredictedRow, Simulation
from tcpx_mpi.simulate.text import document, head_lines, row_line, shown_fields

__all__ = [
    "Fitted",
    "PredictedRow",
    "Simulation",
    "document",
    "fit_costs",
    "head_lines",
    "measured_rows",
    "row_line",
    "shown_fields",
]
