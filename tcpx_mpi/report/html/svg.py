"""A matplotlib figure as inline SVG: text stays text, and colours are those of the page."""

from __future__ import annotations

import html
import io
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Width of every figure in its own units; it is shown from 0.8 to 1.4 times as wide.
WIDTH = 400

#: The colours that plots draw with. Each stands for a variable of the page's style, so that one
#: picture is right on light and on dark. No two may be equal, nor be black or white.
COLOURS = {
    "ink": "#101011",
    "muted": "#101012",
    "grid": "#101013",
    "series-1": "#101014",
    "series-2": "#101015",
    "series-3": "#101016",
    "series-4": "#101017",
    "series-5": "#101018",
    "ceiling": "#101019",
    "bad": "#10101a",
    "doubtful": "#10101b",
}

_STYLE = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 11.5,
    "axes.edgecolor": COLOURS["muted"],
    "axes.labelcolor": COLOURS["muted"],
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": COLOURS["grid"],
    "grid.linewidth": 0.8,
    "xtick.color": COLOURS["muted"],
    "ytick.color": COLOURS["muted"],
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "text.color": COLOURS["ink"],
    "lines.linewidth": 2,
    "legend.frameon": False,
    "legend.labelcolor": COLOURS["ink"],
    "legend.handlelength": 1.4,
    "legend.columnspacing": 1.4,
}


def style(name: str) -> Any:  # matplotlib's type lists the names of all its settings
    """The settings of the figure `name`, for `matplotlib.rc_context` around making and drawing."""
    # The salt makes the ids within a figure its own, and the same each time.
    return {**_STYLE, "svg.hashsalt": name}


def inline(figure: Figure, name: str, title: str, description: str) -> str:
    """The figure as an `<svg>` element that a reader without eyes understands too."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None})
    text = stream.getvalue()
    text = text[text.index("<svg ") :]
    body = text[text.index(">") + 1 :]
    view = re.search(r'viewBox="([^"]+)"', text)
    assert view is not None, "matplotlib writes a viewBox"
    body = re.sub(r"<metadata>.*?</metadata>", "", body, count=1, flags=re.DOTALL)
    # Ids of groups are numbered anew in each figure, and nothing refers to them.
    body = re.sub(r'<g id="[^"]*"', "<g", body)
    body = re.sub(r"<!--.*?-->\s*", "", body, flags=re.DOTALL)
    for variable, colour in COLOURS.items():
        body = body.replace(colour, f"var(--{variable})")
    return (
        f'<svg viewBox="{view[1]}" role="img" aria-labelledby="{name}-title {name}-text">'
        f'<title id="{name}-title">{html.escape(title)}</title>'
        f'<desc id="{name}-text">{html.escape(description)}</desc>{body}'
    )
