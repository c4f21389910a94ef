"""The progress line on a terminal: drawn between two batches and at no other time.

No thread draws it, so nothing of it runs while something is timed. It is a single line, which
is erased before anything else is printed.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import TextIO

from tcpx_mpi.launch.terminal import Terminal, can_erase
from tcpx_mpi.printable import write_own
from tcpx_mpi.records import Plan, RowFacts
from tcpx_mpi.units import format_size

#: Cheaper than to draw for every batch of a small size.
_REDRAW_S = 0.1
#: What an iteration costs beside its bytes, in bytes: small ones do not take no time.
_ITERATION_BYTES = 64 << 10
_BAR_COLUMNS = 24
#: To the start of the line, and erase it.
_CLEAR = "\r\x1b[2K"
_MAGENTA, _GREY, _RESET = "\x1b[95m", "\x1b[90m", "\x1b[0m"


class Estimate:
    """The progress of a run, and what is left of its time, by bytes and iterations."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._weights = [self._weight(size) for size in plan.sizes]
        cycle = sum(self._weights)
        #: None: a run without an end (`-N 0`).
        self.total = cycle * plan.run_cycles if plan.run_cycles > 0 else None

    def done(self, facts: RowFacts, kind: str, first: int) -> float:
        """The work before iteration `first` ("warmup" or "timed") of a row."""
        cycles, index = divmod(facts.index, len(self._weights))
        before = cycles * sum(self._weights) + sum(self._weights[:index])
        iterations = first + (facts.warmup_iterations if kind == "timed" else 0)
        of_all = max(facts.warmup_iterations + facts.iterations, 1)
        return before + self._weights[index] * min(iterations / of_all, 1)

    def seconds_left(self, done: float, elapsed_s: float) -> float | None:
        """At the speed so far; None if nothing is done yet, or the run has no end."""
        if self.total is None or done <= 0:
            return None
        return elapsed_s * (self.total - done) / done

    def _weight(self, size: int) -> float:
        iterations = self._plan.iters + self._plan.warmup_iters
        return iterations * (size * self._plan.agg_iters + _ITERATION_BYTES)


class Progress:
    """The progress line of a run; `between_batches` draws it and `erase` takes it away."""

    def __init__(
        self,
        stream: TextIO,
        columns: int,
        plan: Plan,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream
        self._columns = columns
        self._colour = not os.environ.get("NO_COLOR")
        self._marks = _marks(stream)
        self._plan = plan
        self._estimate = Estimate(plan)
        self._clock = clock
        self._began = clock()
        self._drawn: float | None = None

    def between_batches(self, facts: RowFacts, kind: str, first: int) -> None:
        """Before the batch that begins with iteration `first`; "kind" is warmup or timed."""
        now = self._clock()
        if self._drawn is not None and now - self._drawn < _REDRAW_S:
            return
        done = self._estimate.done(facts, kind, first)
        # Rows beyond the plan: there are few, and nobody knew of them.
        left = None if facts.pairs else self._estimate.seconds_left(done, now - self._began)
        self._draw(self._text(facts, kind, first, left), done)
        self._drawn = now

    def erase(self) -> None:
        """Leaves the terminal as if there had been no progress line."""
        if self._drawn is not None:
            self._drawn = None
            self._clear()

    def _text(self, facts: RowFacts, kind: str, first: int, left: float | None) -> str:
        plan = self._plan
        rows = len(plan.sizes) * plan.run_cycles
        of_rows = f"/{rows}" if rows and not facts.pairs else ""
        what, iterations = (
            ("warm-up", facts.warmup_iterations)
            if kind == "warmup"
            else ("iteration", facts.iterations)
        )
        of_iterations = f"/{iterations}" if iterations else ""
        text = (
            f"row {facts.index + 1}{of_rows}  {format_size(facts.size_bytes)}  "
            f"{what} {first}{of_iterations}"
        )
        return text if left is None else f"{text}  about {_duration(left)} left"

    def _draw(self, text: str, done: float) -> None:
        # The last column stays free: a cursor behind it would be in the next line.
        room = self._columns - 1
        bar = ""
        if self._estimate.total is not None:
            bar = self._bar(done / self._estimate.total) + " "
            room -= _BAR_COLUMNS + 1
        self._say(_CLEAR + bar + text[: max(room, 0)])

    def _bar(self, part: float) -> str:
        """A bar of `_BAR_COLUMNS`, drawn in halves of a column."""
        full, first_half, second_half = self._marks
        columns, half = divmod(int(2 * _BAR_COLUMNS * min(part, 1.0)), 2)
        done = full * columns + first_half * half
        left = _BAR_COLUMNS - len(done)
        if not self._colour:
            return done + " " * left
        # After a whole column a gap of half a one: the two parts differ without colours too.
        gap = second_half if left and columns and not half else ""
        return f"{_MAGENTA}{done}{_GREY}{gap}{full * (left - len(gap))}{_RESET}"

    def _clear(self) -> None:
        self._say(_CLEAR)

    def _say(self, text: str) -> None:
        write_own(self._stream, text)


def on_terminal(
    terminal: Terminal | None, environ: Mapping[str, str], text: TextIO, plan: Plan
) -> Progress | None:
    """The progress line of rank 0, or None if no terminal can erase one.

    `text` is where the table goes.
    """
    if terminal is None or not can_erase(environ):
        return None
    # By one way with the table where both are shown: mpirun forwards two in any order.
    return Progress(text if terminal.shows_table else sys.stderr, terminal.columns, plan)


def _marks(stream: TextIO) -> tuple[str, str, str]:
    """A full column of the bar, its first half and its second one, as the stream can write them."""
    marks = ("\u2501", "\u2578", "\u257a")
    try:
        "".join(marks).encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        return "-", " ", " "
    return marks


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
