"""Axes, ticks and legends that all plots of a page share."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tcpx_mpi.report.html.svg import WIDTH, inline, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Plot:
    """A finished plot: its heading, the SVG, and the sentence below it."""

    heading: str
    svg: str
    caption: str


@dataclass(frozen=True)
class EmptyAxes:
    """Empty axes, and how they become an SVG."""

    axes: Axes
    finished: Callable[[str, str], str]


@contextlib.contextmanager
def empty_axes(name: str, height: int) -> Iterator[EmptyAxes]:
    """Axes of a figure named `name` on the page, `height` of its units high."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(style(name)):
        # A figure's own unit is 1/72 inch, which becomes one unit of the SVG.
        figure = Figure(figsize=(WIDTH / 72, height / 72), layout="constrained")
        yield EmptyAxes(
            figure.add_subplot(), lambda title, words: inline(figure, name, title, words)
        )


def plain_log_ticks(axes: Axes, which: str) -> None:
    """Ticks like 0.5, 1, 100, 20 000 in place of powers of ten, as few as can be read."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axis.get_view_interval()
    # Within a decade or two, powers of ten alone would be no ticks at all.
    ratio = high / max(low, 1e-9)
    subs = (1, 2, 5) if ratio < 100 else (1,)
    axis.set_major_locator(
        MaxNLocator(4) if ratio < 5 else LogLocator(base=10, subs=subs, numticks=6)
    )
    axis.set_major_formatter(plain_number)
    axis.set_minor_formatter(NullFormatter())


def plain_number(value: float, _position: object) -> str:
    """The text of a tick."""
    return f"{value:,g}"


def legend(axes: Axes) -> None:
    """The labels of what is drawn, above the axes."""
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=4, borderaxespad=0.2, borderpad=0,
        fontsize=11, handletextpad=0.5,
    )  # fmt: skip
