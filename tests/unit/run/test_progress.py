"""The progress line: what it says, when it is drawn, and that nothing of it stays."""

from __future__ import annotations

import io
import re
import sys
from typing import Any

import invented
import pytest
from screen import screen

from tcpx_mpi.launch.terminal import Terminal
from tcpx_mpi.records import Plan
from tcpx_mpi.run.progress import Estimate, Progress, on_terminal

PLAN = Plan(sizes=(1024, 1 << 20), iters=100, warmup_iters=0)
COLOUR = re.compile(r"\x1b\[[0-9;]*[39][0-9][0-9;]*m")


class Clock:
    """A clock that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Line:
    """A progress line on a stream in memory."""

    def __init__(self, plan: Plan = PLAN, columns: int = 100) -> None:
        self.stream, self.clock = io.StringIO(), Clock()
        self._progress = Progress(self.stream, columns, plan, self.clock)
        self.erase = self._progress.erase

    def batch(self, now: float, index: int, kind: str, first: int, **changes: Any) -> str:
        """What the terminal shows after the start of a batch."""
        self.clock.now = now
        sizes = {"size_bytes": PLAN.sizes[index % 2], "iterations": 100, "warmup_iterations": 0}
        facts = invented.row_facts(index, **{**sizes, **changes})
        self._progress.between_batches(facts, kind, first)
        return screen(self.stream.getvalue())[-1]


def test_a_row_beyond_the_plan_is_one_and_nobody_knows_how_many_there_are() -> None:
    line = Line()
    line.batch(0.0, 0, "timed", 0)
    shown = line.batch(60.9, 2, "timed", 50, pairs="0>1")
    assert shown.endswith("row 3  1 KiB  iteration 50/100")


def test_it_says_row_size_iterations_and_what_is_left() -> None:
    line = Line()
    first = line.batch(0.0, 0, "timed", 0)
    assert first.endswith("row 1/2  1 KiB  iteration 0/100")
    assert "left" not in first, "nothing is known yet"
    # Row 1 weighs 65 KiB an iteration and row 2 1088: after half of row 2 there is 544 / 609 left.
    shown = line.batch(60.9, 1, "timed", 50)
    assert shown.endswith("row 2/2  1 MiB  iteration 50/100  about 54 s left")
    assert line.batch(60.95, 1, "warmup", 0, warmup_iterations=5, iterations=95) == shown, (
        "too soon"
    )
    assert "warm-up 0/5" in line.batch(62.0, 1, "warmup", 0, warmup_iterations=5)


def test_a_run_without_end_has_no_time_left() -> None:
    line = Line(Plan(sizes=(1024, 2048), run_cycles=0))
    line.batch(0.0, 0, "timed", 0)
    # Nor a bar.
    assert line.batch(5.0, 3, "timed", 10) == "row 4  1 MiB  iteration 10/100"


def test_the_estimate_ends_at_nothing_left() -> None:
    estimate = Estimate(Plan(sizes=(1024, 1 << 20), iters=10, warmup_iters=2, run_cycles=3))
    facts = invented.row_facts(5, iterations=10, warmup_iterations=2)
    assert estimate.total is not None
    assert estimate.done(facts, "timed", 10) == pytest.approx(estimate.total)
    assert estimate.seconds_left(estimate.total, 9.0) == 0.0
    assert estimate.seconds_left(estimate.total / 4, 9.0) == pytest.approx(27.0)
    assert estimate.seconds_left(0.0, 9.0) is None
    order = [
        estimate.done(invented.row_facts(i, iterations=10, warmup_iterations=2), kind, first)
        for i in range(6)
        for kind, first in (("warmup", 0), ("timed", 0), ("timed", 5))
    ]
    assert order == sorted(set(order))


def test_it_is_erased_and_drawn_anew_at_the_next_batch() -> None:
    line = Line()
    line.batch(0.0, 0, "timed", 0)
    line.erase()
    assert screen(line.stream.getvalue()) == [""]
    said = line.stream.getvalue()
    line.erase()
    assert line.stream.getvalue() == said, "there was nothing to erase"
    assert "iteration 7/100" in line.batch(0.01, 0, "timed", 7)


@pytest.mark.parametrize("columns", [30, 60, 200])
def test_it_never_fills_the_line_of_a_terminal(columns: int) -> None:
    line = Line(columns=columns)
    line.batch(0.0, 0, "timed", 0)
    shown = line.batch(10_000.0, 1, "timed", 1)
    assert 24 < len(shown) < columns
    assert "\n" not in line.stream.getvalue()


def test_colours_are_off_with_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = Line()
    coloured.batch(0.0, 1, "timed", 50)
    assert COLOUR.search(coloured.stream.getvalue())
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Line()
    plain.batch(0.0, 1, "timed", 50)
    assert not COLOUR.search(plain.stream.getvalue())
    shown = [screen(line.stream.getvalue())[0].split("row")[1] for line in (plain, coloured)]
    assert shown[0] == shown[1]


def test_the_bar_is_of_what_the_stream_can_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    facts = invented.row_facts(1, iterations=100, warmup_iterations=0, size_bytes=1 << 20)
    bars = []
    for encoding in ("utf-8", "ascii"):
        written = io.BytesIO()
        stream = io.TextIOWrapper(written, encoding)
        Progress(stream, 100, PLAN, Clock()).between_batches(facts, "timed", 50)
        bars.append(screen(written.getvalue().decode(encoding))[0].split(" row")[0].rstrip())
    # 609 / 1153 of 24 columns: 12 and a half.
    assert bars == ["\u2501" * 12 + "\u2578", "-" * 12]


# --- Where there is a terminal -------------------------------------------------------------------


@pytest.mark.parametrize("terminal", [None, Terminal(90, shows_table=True)])
@pytest.mark.parametrize("environ", [{}, {"TERM": "dumb"}])
def test_without_a_terminal_that_erases_there_is_none(
    terminal: Terminal | None, environ: dict[str, str]
) -> None:
    assert on_terminal(terminal, environ, sys.stdout, PLAN) is None


def test_it_goes_the_way_of_the_table_where_both_are_shown() -> None:
    table, facts = io.StringIO(), invented.row_facts(0)
    line = on_terminal(Terminal(90, shows_table=True), {"TERM": "xterm"}, table, PLAN)
    assert line is not None
    line.between_batches(facts, "timed", 0)
    assert "row 1/2" in table.getvalue()
