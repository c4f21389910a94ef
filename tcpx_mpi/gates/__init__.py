"""Limits that a run must meet, in a file with their provenance: read, judged, calibrated.

A gate fails closed: whatever is missing, unchecked, unknown or not comparable does not pass.
"""

from tcpx_mpi.gates.calibrate import calibrate
from tcpx_mpi.gates.gate import Gate, Limit, gate_text, read_gate, require_judgeable
from tcpx_mpi.gates.judge import Judgement, judge

__all__ = [
    "Gate",
    "Judgement",
    "Limit",
    "calibrate",
    "gate_text",
    "judge",
    "read_gate",
    "require_judgeable",
]
