"""Judges: pure functions of what was measured or seen, to findings in one form.

Terminal, pipe, page, JSON, gates, preflight and doctor render them, and read nothing back that was
printed.
"""

from tcpx_mpi.findings.finding import Finding, Severity, worst_first

__all__ = ["Finding", "Severity", "worst_first"]
