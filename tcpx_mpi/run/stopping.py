"""The end of a row: after a planned number of batches, or when it has enough. Pure.

Every rank has one of these and makes the same decisions, because it gets the same looks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tcpx_mpi.arrays import Float64s
from tcpx_mpi.stats import half_width
from tcpx_mpi.stats.stop_rule import GROWTH, LEAST_ITERATIONS
from tcpx_mpi.transport.slots import RowPlan

#: Why a row ended: its planned iterations were done, the interval was narrow enough (--ci), the
#: time for that was up (--max-time), the time asked for was full (--duration), or the room for
#: samples was.
ENDINGS = ("iterations", "ci", "max-time", "duration", "sample-space")

#: Batches grow up to this, so that what is between them does not take longer than they.
_LONG_BATCH_NS = 50_000_000


@dataclass(frozen=True)
class Until:
    """When a row without a planned number of iterations ends."""

    #: Half of the interval's width over the median; 0: not asked for.
    ci: float
    max_time_ns: int
    #: Time within batches; 0: not asked for.
    duration_ns: int
    #: As many as there is space for samples.
    most_iterations: int
    #: Beside a baseline: at least so many batches, equally long, so that they can be compared.
    even_batches: int = 0


@dataclass(frozen=True)
class Look:
    """The state of a row on one rank after a batch."""

    #: Time within its timed batches, and since the first of them began, in ns.
    measured_ns: int
    elapsed_ns: int
    #: Half of its interval's width over its median; 0 where it receives nothing, None if this
    #: look did not ask for it.
    half_width: float | None


class StoppingRule:
    """The timed batches of a row; `done` and `ended_by` hold for the row when it is over."""

    def __init__(self, plan: RowPlan, until: Until | None) -> None:
        self._until = until
        self._planned = list(plan.batches)
        self._longest = plan.batch
        self._next = plan.batches[0] if plan.batches else 0
        self._measured_ns = 0
        self._batches = 0
        self._next_look = LEAST_ITERATIONS
        self.done = 0
        self.ended_by = ""

    @property
    def open_ended(self) -> bool:
        """Whether ranks have to look, together, after each batch."""
        return self._until is not None

    def next_batch(self) -> int:
        """Iterations of the batch to come; 0 when the row is over."""
        if self._until is None:
            if not self._planned:
                self.ended_by = "iterations"
                return 0
            count = self._planned.pop(0)
        elif self.ended_by:
            return 0
        else:
            count = min(self._next, self._until.most_iterations - self.done)
        self.done += count
        return count

    def own_look(self, measured_ns: int, elapsed_ns: int, times_ns: Callable[[], Float64s]) -> Look:
        """This rank's look; `times_ns` makes its iterations so far, empty if it receives nothing.

        They are asked for only where the answer can end the row.
        """
        assert self._until is not None
        if self._until.ci <= 0 or self.done < self._next_look:
            return Look(measured_ns, elapsed_ns, None)
        times = times_ns()
        return Look(measured_ns, elapsed_ns, half_width(times) if times.size else 0.0)

    def take(self, looks: Sequence[Look]) -> None:
        """The looks of all ranks: goes on, or ends the row."""
        until = self._until
        assert until is not None
        measured_ns = max(look.measured_ns for look in looks)
        elapsed_ns = max(look.elapsed_ns for look in looks)
        widths = [look.half_width for look in looks if look.half_width is not None]
        if widths:
            self._next_look = math.ceil(self.done * GROWTH)
        self._batches += 1
        if self.done >= until.most_iterations:
            self.ended_by = "sample-space"
        elif self._batches < until.even_batches:
            pass
        elif widths and max(widths) <= until.ci:
            self.ended_by = "ci"
        elif until.ci > 0 and elapsed_ns >= until.max_time_ns:
            self.ended_by = "max-time"
        elif until.duration_ns and measured_ns >= until.duration_ns:
            self.ended_by = "duration"
        if not until.even_batches and measured_ns - self._measured_ns < _LONG_BATCH_NS:
            self._next = min(2 * self._next, self._longest)
        self._measured_ns = measured_ns
