"""`-T`: seconds in total, from when this process began; what a run sets up counts, too."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tcpx_mpi import _native
from tcpx_mpi.errors import Stalled

#: Of /proc/PID/stat, behind the name in brackets: ticks of the system's clock when it began.
_STARTTIME = 19


def began_ns() -> int:
    """When this process began, on the clock of `_native.now_ns`, to a tick of 10 ms."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    began_s = int(fields[_STARTTIME]) / os.sysconf("SC_CLK_TCK")
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - began_s
    return _native.now_ns() - int(age_s * 1e9)


def end_by_ns(timeout_s: float) -> int:
    """The instant at which `-T` ends the run; 0 for never."""
    return began_ns() + int(timeout_s * 1e9) if timeout_s else 0


def require_time(timeout_s: float, done: str) -> None:
    """Raises Stalled if `-T` is over by now; `done` is what took the time."""
    if 0 < end_by_ns(timeout_s) < _native.now_ns():
        age_s = (_native.now_ns() - began_ns()) / 1e9
        raise Stalled(
            f"the run took longer than -T {timeout_s:g} s: {done} {age_s:.1f} s after its start"
        )
