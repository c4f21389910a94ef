"""The clock of this node, as the engine reads it. A seam: tests have clocks that drift and step."""

from __future__ import annotations

import time
from typing import Protocol


class ClockSource(Protocol):
    """A clock, as this package asks it."""

    def now_ns(self) -> int:
        """Its time."""

    def suspended_ns(self) -> int:
        """The time that the machine has been suspended so far, from any zero."""


class Monotonic:
    """CLOCK_MONOTONIC, as all stamps of the engine."""

    def now_ns(self) -> int:
        return time.monotonic_ns()

    def suspended_ns(self) -> int:
        # CLOCK_BOOTTIME goes on in a suspended machine; between two reads of it no time is taken.
        before = time.monotonic_ns()
        boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        return boot - (before + time.monotonic_ns()) // 2
