"""What else this machine does while something is measured on it."""

from __future__ import annotations

import psutil


def busy_percent() -> int:
    """How much of all cores is in use in the coming second, in %; asked before a measurement."""
    return round(psutil.cpu_percent(interval=1.0))
